#include "scheduler/simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "scheduler/rate_curve.h"
#include "scheduler/round_steps.h"
#include "scheduler/simulated_rates.h"
#include "scheduler/simulation_state.h"
#include "scheduler/site_step.h"
#include "scheduler/transfer_network.h"

namespace causeway::scheduler {
namespace {

// A job whose rounds are dropped so many times in a row is not going to end.
constexpr int kMaxDroppedRounds = 10;
// The number of samples that a round needs may be missed by so much, relative: sums of doubles.
constexpr double kQuorumSlack = 1e-12;

using internal::Book;
using internal::Event;
using internal::Exchange;
using internal::kData;
using internal::kModel;
using internal::Participant;

class Simulation {
 public:
  Simulation(const SimulatedJob& job, const SimulationOptions& options);

  SimulationResult Run();

 private:
  using State = Exchange::State;

  int fragments() const { return static_cast<int>(job_.rounds.fragment_bytes.size()); }
  bool blocking() const { return fragments() == 1 && job_.rounds.delay == 0; }
  const SimulatedWorker& Worker(int w) const { return job_.workers[static_cast<size_t>(w)]; }
  const SimulatedSite& Site(const Participant& p) const { return job_.sites[static_cast<size_t>(p.site)]; }
  WorkerTotals& Totals(int w) { return result_.workers[static_cast<size_t>(w)]; }
  Exchange& ExchangeOf(Participant& p, int fragment) {
    return fragment == kModel ? p.model : p.exchanges[static_cast<size_t>(fragment)];
  }
  int IndexOf(const Participant& p) const { return static_cast<int>(&p - participants_.data()); }
  double BytesOf(int fragment) const {
    return fragment == kModel ? model_bytes_ : job_.rounds.fragment_bytes[static_cast<size_t>(fragment)];
  }
  // Of the model; a model without bytes has equal fragments.
  double ShareOf(int fragment) const {
    if (fragment == kModel) return 1;
    return model_bytes_ > 0 ? BytesOf(fragment) / model_bytes_ : 1.0 / fragments();
  }

  int64_t RoundStart(const Participant& p, int64_t round) const { return steps_.RoundStart(p.epoch_steps, round); }
  int64_t StepsOf(const Participant& p, int64_t round) const { return steps_.StepsOf(p.epoch_steps, round); }
  int64_t SendPosition(const Participant& p, int fragment, int64_t round) const {
    return steps_.SendPosition(p.epoch_steps, fragment, round);
  }
  double SamplesOf(const Participant& p, int64_t round, const std::vector<int>& workers) const {
    return steps_.SamplesOf(p.epoch_steps, round, workers);
  }
  // What its members have for the round that was sent last.
  void CountSamples(const Participant& p, Exchange& exchange) const {
    const int64_t round = exchange.round - 1;
    exchange.samples = steps_.SamplesOf(p.epoch_steps, round, p.members.workers, exchange.steps);
    exchange.planned = SamplesOf(p, round, p.members.workers);
  }

  void Push(double time_s, Event::Type type, int index, int fragment = 0, int64_t stamp = 0) {
    events_.push({time_s, ++last_sequence_, type, index, fragment, stamp});
  }
  void Handle(const Event& event);
  void Handle(const TransferNetwork::Transfer& transfer, bool up);

  // The beginning.
  void StartIfReady();
  void Start(Participant& p);
  void Enter(Participant& p, const std::vector<int>& workers);
  void AddMember(Participant& p, int w, double ready_s);

  // A participant's course.
  void Advance(Participant& p);
  void SkipClosedRounds(Participant& p);
  void StartStep(Participant& p);
  void TakeIn(Participant& p);
  // Whether it is late, and has something to send all the same.
  bool IsAsked(const Participant& p, int fragment) const;
  void Send(Participant& p, int fragment);
  void BeginPush(Participant& p, int fragment);
  void Contributed(Participant& p, int fragment);
  void StartPull(Participant& p, int fragment);
  void Merge(Participant& p, int fragment);
  void BreakOff(Participant& p, int fragment);
  void WaitUntil(Participant& p, double time_s);
  double LatestReady(const Participant& p) const;
  // Between steps, on the site's link; everybody waits for it.
  void UseLink(Participant& p, double work_s);

  // Workers that stop and return.
  void Stop(int w);
  void Return(int w);
  void Join(int w);
  // The first time from `time_s` on at which the worker stops.
  double NextStop(int w, double time_s) const;

  // Rounds.
  void Open(int fragment);
  void CountMissing(int fragment);
  void Decide(int fragment);
  void Commit(int fragment);
  void Drop(int fragment);
  void Close(int fragment, bool committed);
  void DecideAll();

  const SimulatedJob& job_;
  const SimulationOptions& options_;
  const RoundSteps steps_;
  double model_bytes_ = 0;
  std::vector<RateCurve> compute_;     // [workers]
  std::vector<RateCurve> site_links_;  // [sites]
  TransferNetwork down_;
  TransferNetwork up_;
  std::vector<Participant> participants_;
  std::vector<int> participant_of_;         // [workers]; -1: takes no part.
  std::vector<std::vector<double>> stops_;  // [workers], ascending.
  std::vector<double> absent_since_;        // [workers]; kNever: it is there.
  std::vector<double> data_left_;           // [workers]; bytes of samples that it lacks.
  std::vector<Book> books_;                 // [fragments]
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  int64_t last_sequence_ = 0;
  double now_s_ = 0;
  bool training_ = false;
  bool done_ = false;
  int fragments_left_ = 0;
  int dropped_in_a_row_ = 0;
  double all_reduce_free_s_ = 0;
  SpanRecorder recorder_;
  SimulationResult result_;
};

Simulation::Simulation(const SimulatedJob& job, const SimulationOptions& options)
    : job_(job),
      options_(options),
      steps_(job),
      compute_(CurvesOf(job, SimulatedChange::What::kCompute)),
      site_links_(CurvesOf(job, SimulatedChange::What::kSiteCollective)),
      down_(NetworkOf(job, /*up=*/false)),
      up_(NetworkOf(job, /*up=*/true)),
      participant_of_(job.workers.size(), -1),
      stops_(job.workers.size()),
      absent_since_(job.workers.size(), kNever),
      data_left_(job.workers.size(), 0),
      books_(job.rounds.fragment_bytes.size()),
      fragments_left_(fragments()),
      recorder_({.max_spans = options.max_spans,
                 .from_s = options.spans_from_s,
                 .until_s = options.spans_until_s,
                 .workers = options.span_workers}) {
  for (const double bytes : job.rounds.fragment_bytes) model_bytes_ += bytes;
  result_.workers.resize(job.workers.size());
  result_.sites.resize(job.sites.size());
  for (const std::vector<int>& workers : ParticipantsOf(job)) {
    Participant p{.workers = workers,
                  .site = Worker(workers[0]).site,
                  .epoch_steps = EpochSteps(job, workers),
                  .present = static_cast<int>(workers.size())};
    p.link = {.speed = &site_links_[static_cast<size_t>(p.site)],
              .jitter = job.collective_jitter,
              .seed = job.seed,
              .index = (uint64_t{1} << 32) + static_cast<uint64_t>(p.site)};
    p.exchanges.resize(job.rounds.fragment_bytes.size());
    for (const int w : workers) participant_of_[static_cast<size_t>(w)] = static_cast<int>(participants_.size());
    participants_.push_back(std::move(p));
  }
  for (const SimulatedAbsence& absence : job.absences) {
    stops_[static_cast<size_t>(absence.worker)].push_back(absence.stop_s);
    Push(absence.stop_s, Event::Type::kStop, absence.worker);
    if (absence.return_s < kNever) Push(absence.return_s, Event::Type::kReturn, absence.worker);
  }
  for (std::vector<double>& stops : stops_) std::sort(stops.begin(), stops.end());
}

SimulationResult Simulation::Run() {
  for (size_t w = 0; w < job_.workers.size(); ++w) {
    const SimulatedWorker& worker = job_.workers[w];
    if (participant_of_[w] < 0 || worker.reads_data_locally) continue;
    data_left_[w] = static_cast<double>(worker.samples) * job_.sample_bytes;
    if (data_left_[w] > 0) down_.Start(0, static_cast<int>(w), kData, data_left_[w]);
  }
  StartIfReady();
  while (!done_ && result_.events < options_.max_events) {
    const double down_s = down_.NextEvent();
    const double up_s = up_.NextEvent();
    const double event_s = events_.empty() ? kNever : events_.top().time_s;
    const double next_s = std::min({down_s, up_s, event_s});
    if (next_s == kNever) break;
    ++result_.events;
    now_s_ = next_s;
    // What has arrived counts before anything is decided at the same moment.
    if (next_s == up_s) {
      for (const TransferNetwork::Transfer& transfer : up_.Advance()) Handle(transfer, /*up=*/true);
    } else if (next_s == down_s) {
      for (const TransferNetwork::Transfer& transfer : down_.Advance()) Handle(transfer, /*up=*/false);
    } else {
      const Event event = events_.top();
      events_.pop();
      Handle(event);
    }
  }
  result_.completed = done_ && fragments_left_ == 0;
  result_.total_s = now_s_;
  for (Participant& p : participants_) {
    if (p.waiting) WaitUntil(p, now_s_);
  }
  for (size_t w = 0; w < job_.workers.size(); ++w) {
    if (absent_since_[w] < now_s_) result_.workers[w].absent_s += now_s_ - absent_since_[w];
  }
  for (const Participant& p : participants_) {
    SiteTotals& site = result_.sites[static_cast<size_t>(p.site)];
    site.collective_s += p.link.busy_s;
    site.collective_bytes += p.link.bytes;
  }
  for (SiteTotals& site : result_.sites) {
    if (site.steps > 0) site.iteration_s = site.training_s / static_cast<double>(site.steps);
  }
  recorder_.Cut(0, now_s_);
  result_.spans_left_out = recorder_.left_out();
  result_.spans = recorder_.Take();
  return std::move(result_);
}

void Simulation::Handle(const Event& event) {
  if (event.type == Event::Type::kStop) return Stop(event.index);
  if (event.type == Event::Type::kReturn) return Return(event.index);
  if (event.type == Event::Type::kDecide) {
    if (books_[static_cast<size_t>(event.fragment)].round == event.stamp) Decide(event.fragment);
    return;
  }
  if (event.type == Event::Type::kCommit) return Commit(event.fragment);
  Participant& p = participants_[static_cast<size_t>(event.index)];
  if (event.type == Event::Type::kStepDone) {
    if (p.stamp != event.stamp) return;
    p.in_step = false;
    ++p.step;
    ++p.position;
    return Advance(p);
  }
  if (ExchangeOf(p, event.fragment).attempt != event.stamp) return;
  event.type == Event::Type::kBeginPush ? BeginPush(p, event.fragment) : StartPull(p, event.fragment);
}

void Simulation::Handle(const TransferNetwork::Transfer& transfer, bool up) {
  const double seconds = transfer.end_s - transfer.start_s;
  WorkerTotals& totals = Totals(transfer.worker);
  const int tag = static_cast<int>(transfer.tag);
  (up ? totals.sent_bytes : totals.received_bytes) += transfer.bytes;
  const SpanKind kind = up ? SpanKind::kPush : tag == kData ? SpanKind::kSend : SpanKind::kPull;
  Participant& p = participants_[static_cast<size_t>(participant_of_[static_cast<size_t>(transfer.worker)])];
  const bool of_round = tag >= 0;
  recorder_.Add({.kind = kind,
                 .worker = transfer.worker,
                 .fragment = of_round ? tag : -1,
                 .round = of_round ? ExchangeOf(p, tag).round - 1 : -1,
                 .bytes = transfer.bytes,
                 .start_s = transfer.start_s,
                 .duration_s = seconds});
  if (tag == kData) {
    totals.send_s = now_s_;
    data_left_[static_cast<size_t>(transfer.worker)] = 0;
    return Join(transfer.worker);
  }
  (up ? totals.push_s : totals.pull_s) += seconds;
  Exchange& exchange = ExchangeOf(p, tag);
  if (--exchange.pending > 0) return;
  if (up) return Contributed(p, tag);
  exchange.state = State::kPulled;
  Advance(p);
}

// --- The beginning -------------------------------------------------------------------------------------------------------

void Simulation::StartIfReady() {
  const auto has_data = [&](int w) { return data_left_[static_cast<size_t>(w)] == 0; };
  const auto absent = [&](int w) { return absent_since_[static_cast<size_t>(w)] < kNever; };
  const auto ready = [&](const Participant& p) {
    return std::all_of(p.workers.begin(), p.workers.end(), [&](int w) { return has_data(w) || absent(w); });
  };
  if (job_.wait_for_all_data && !training_ && !std::all_of(participants_.begin(), participants_.end(), ready)) return;
  for (Participant& p : participants_) {
    if (!p.started && p.present > 0 && ready(p)) Start(p);
  }
}

void Simulation::Start(Participant& p) {
  if (!training_) {
    training_ = true;
    result_.training_start_s = now_s_;
    for (int f = 0; f < fragments(); ++f) Open(f);
  }
  p.started = true;
  std::vector<int> workers;
  for (const int w : p.workers) {
    if (absent_since_[static_cast<size_t>(w)] == kNever) workers.push_back(w);
  }
  Enter(p, workers);
}

void Simulation::AddMember(Participant& p, int w, double ready_s) {
  p.members.workers.push_back(w);
  p.members.ready_s.push_back(ready_s);
  p.members.scale.push_back(1);
  p.members.speed.push_back(&compute_[static_cast<size_t>(w)]);
  p.members.exposed_s.push_back(0);
}

// Begins, with these workers, at the beginning of the first round that is still open.
void Simulation::Enter(Participant& p, const std::vector<int>& workers) {
  p.members = {};
  for (const int w : workers) AddMember(p, w, now_s_);
  p.joining.clear();
  p.in_step = p.waiting = p.repeat = false;
  ++p.stamp;
  int64_t round = job_.rounds.rounds;
  for (int f = 0; f < fragments(); ++f) {
    BreakOff(p, f);
    p.exchanges[static_cast<size_t>(f)].round = books_[static_cast<size_t>(f)].round;
    round = std::min(round, books_[static_cast<size_t>(f)].round);
  }
  p.position = RoundStart(p, round);
  Exchange& first = p.exchanges[0];
  if (!p.planned && blocking() && first.round < job_.rounds.rounds) {
    // The open round was planned without it: it waits for what that makes.
    first.state = State::kWaiting;
    p.position = first.due = RoundStart(p, ++first.round);
  } else {
    StartPull(p, kModel);
  }
  Advance(p);
}

// --- A participant's course ----------------------------------------------------------------------------------------------

double Simulation::LatestReady(const Participant& p) const {
  return *std::max_element(p.members.ready_s.begin(), p.members.ready_s.end());
}

void Simulation::WaitUntil(Participant& p, double time_s) {
  for (size_t k = 0; k < p.members.workers.size(); ++k) {
    const double waited_s = time_s - p.members.ready_s[k];
    if (waited_s <= 0) continue;
    recorder_.Add({.kind = SpanKind::kWait,
                   .worker = p.members.workers[k],
                   .start_s = p.members.ready_s[k],
                   .duration_s = waited_s});
    Totals(p.members.workers[k]).wait_s += waited_s;
    p.members.ready_s[k] = time_s;
  }
}

void Simulation::UseLink(Participant& p, double work_s) {
  const double start_s = std::max(p.link.free_s, LatestReady(p));
  WaitUntil(p, start_s);
  if (work_s == 0) return;
  p.link.free_s = p.link.speed->Finish(start_s, work_s);
  p.link.busy_s += p.link.free_s - start_s;
  WaitUntil(p, p.link.free_s);
}

// Goes on until the participant is in a step, waits, or has done all of its rounds.
void Simulation::Advance(Participant& p) {
  if (p.members.workers.empty() || p.in_step) return;
  if (p.waiting) WaitUntil(p, now_s_);
  p.waiting = false;
  while (true) {
    if (p.repeat) {
      p.repeat = false;
      p.position = RoundStart(p, p.exchanges[0].round);
      StartPull(p, kModel);
    }
    if (p.model.state == State::kPulled) Merge(p, kModel);
    if (p.model.state != State::kIdle) {
      p.waiting = true;
      return;
    }
    SkipClosedRounds(p);
    bool sent = false;
    bool finished = true;
    for (int f = 0; f < fragments(); ++f) {
      Exchange& exchange = p.exchanges[static_cast<size_t>(f)];
      if (exchange.state == State::kPulled && exchange.due <= p.position) Merge(p, f);
      if (exchange.state != State::kIdle && exchange.due <= p.position) p.waiting = true;
      finished = finished && exchange.state == State::kIdle && exchange.round == job_.rounds.rounds;
    }
    if (p.waiting || finished) return;
    for (int f = 0; f < fragments(); ++f) {
      Exchange& exchange = p.exchanges[static_cast<size_t>(f)];
      if (exchange.state != State::kIdle || exchange.round == job_.rounds.rounds) continue;
      if (SendPosition(p, f, exchange.round) > p.position && !IsAsked(p, f)) continue;
      Send(p, f);
      sent = true;
    }
    if (!sent) return StartStep(p);
  }
}

// Rounds that were closed before it came to send its part.
void Simulation::SkipClosedRounds(Participant& p) {
  for (int f = 0; f < fragments(); ++f) {
    Exchange& exchange = p.exchanges[static_cast<size_t>(f)];
    const Book& book = books_[static_cast<size_t>(f)];
    if (exchange.state != State::kIdle || exchange.round >= book.round) continue;
    exchange.round = book.round;
    p.position = std::max(p.position, SendPosition(p, f, book.round - 1));
    exchange.due = p.position;
    if (book.last_committed && book.round < job_.rounds.rounds) StartPull(p, f);
  }
}

void Simulation::StartStep(Participant& p) {
  if (p.position == RoundStart(p, p.exchanges[0].round)) TakeIn(p);
  const SiteProgram& program = Site(p).program;
  const size_t first_span = recorder_.size();
  while (!p.members.workers.empty()) {
    StepMembers members = p.members;
    StepLink link = p.link;
    for (size_t k = 0; k < members.workers.size(); ++k) {
      const auto w = static_cast<uint64_t>(members.workers[k]);
      members.scale[k] = Worker(members.workers[k]).slowdown;
      members.exposed_s[k] = 0;
      if (job_.compute_jitter > 0) {
        members.scale[k] *= 1 + job_.compute_jitter * TriangularNoise(job_.seed, w, static_cast<uint64_t>(p.step), 0);
      }
    }
    RunStep(program, {.iteration = p.step, .step = p.step, .round = p.exchanges[0].round}, members, link, recorder_);

    const double end_s = *std::max_element(members.ready_s.begin(), members.ready_s.end());
    size_t lost = members.workers.size();
    double stop_s = end_s;
    for (size_t k = 0; k < members.workers.size(); ++k) {
      const double next_s = NextStop(members.workers[k], now_s_);
      if (next_s >= stop_s) continue;
      lost = k;
      stop_s = next_s;
    }
    if (lost < members.workers.size()) {
      // The step will not be finished, and is repeated by the others. That the worker is gone, the round learns at stop_s.
      recorder_.Cut(first_span, stop_s);
      p.members.Erase(lost);
      for (double& ready_s : p.members.ready_s) ready_s = std::max(ready_s, stop_s) + job_.reform_s;
      continue;
    }

    SiteTotals& site = result_.sites[static_cast<size_t>(p.site)];
    ++site.steps;
    site.training_s += end_s - LatestReady(p);
    for (size_t k = 0; k < members.workers.size(); ++k) {
      WorkerTotals& totals = Totals(members.workers[k]);
      ++totals.steps;
      totals.exposed_s += members.exposed_s[k];
      totals.compute_s += members.ready_s[k] - p.members.ready_s[k] - members.exposed_s[k];
    }
    p.members = std::move(members);
    p.link = link;
    Push(end_s, Event::Type::kStepDone, IndexOf(p), 0, p.stamp);
    break;
  }
  p.in_step = true;  // Also where nobody is left to finish it.
}

void Simulation::TakeIn(Participant& p) {
  if (p.joining.empty()) return;
  WaitUntil(p, LatestReady(p));
  const double ready_s = std::max(now_s_, LatestReady(p)) + job_.reform_s;
  for (const int w : p.joining) AddMember(p, w, ready_s);
  p.joining.clear();
  std::fill(p.members.ready_s.begin(), p.members.ready_s.end(), ready_s);
}

void Simulation::Send(Participant& p, int fragment) {
  Exchange& exchange = ExchangeOf(p, fragment);
  const int64_t round = exchange.round++;
  const int64_t steps = p.position - RoundStart(p, round);
  p.position = std::max(p.position, SendPosition(p, fragment, round));
  exchange.due = p.position + job_.rounds.delay;
  exchange.state = State::kWaiting;
  if (StepsOf(p, round) == 0) return;
  exchange.steps = std::min(steps, StepsOf(p, round));
  CountSamples(p, exchange);
  exchange.state = State::kSending;
  UseLink(p, Site(p).round_scatter_s * ShareOf(fragment));
  const double ready_s = LatestReady(p);
  if (ready_s <= now_s_) return BeginPush(p, fragment);
  Push(ready_s, Event::Type::kBeginPush, IndexOf(p), fragment, exchange.attempt);
}

bool Simulation::IsAsked(const Participant& p, int fragment) const {
  const Book& book = books_[static_cast<size_t>(fragment)];
  return job_.rounds.late_grace_s > 0 && now_s_ >= book.deadline_s && !book.closing &&
         p.position > RoundStart(p, book.round);
}

void Simulation::BeginPush(Participant& p, int fragment) {
  if (p.members.workers.empty()) return;
  if (job_.rounds.all_reduce_s) return Contributed(p, fragment);
  Exchange& exchange = ExchangeOf(p, fragment);
  exchange.state = State::kPushing;
  exchange.pending = static_cast<int>(p.members.workers.size());
  for (const int w : p.members.workers) up_.Start(now_s_, w, fragment, BytesOf(fragment) / exchange.pending);
}

void Simulation::Contributed(Participant& p, int fragment) {
  Exchange& exchange = ExchangeOf(p, fragment);
  exchange.state = State::kWaiting;
  Book& book = books_[static_cast<size_t>(fragment)];
  const auto index = static_cast<size_t>(IndexOf(p));
  if (book.closing || book.in[index]) return;
  book.in[index] = true;
  book.samples += exchange.samples;
  book.towards_quorum += exchange.planned;
  ++book.contributors;
  if (p.planned) --book.missing;
  Decide(fragment);
}

void Simulation::StartPull(Participant& p, int fragment) {
  Exchange& exchange = ExchangeOf(p, fragment);
  exchange.state = State::kPulling;
  if (job_.rounds.all_reduce_s) {
    exchange.state = State::kPulled;
    return;
  }
  exchange.pending = static_cast<int>(p.members.workers.size());
  for (const int w : p.members.workers) down_.Start(now_s_, w, fragment, BytesOf(fragment) / exchange.pending);
}

void Simulation::Merge(Participant& p, int fragment) {
  UseLink(p, Site(p).round_gather_s * ShareOf(fragment));
  ExchangeOf(p, fragment).state = State::kIdle;
}

// Whatever is under way of this exchange goes.
void Simulation::BreakOff(Participant& p, int fragment) {
  Exchange& exchange = ExchangeOf(p, fragment);
  for (const int w : p.workers) {
    if (exchange.state == State::kPushing) up_.Cancel(now_s_, w, fragment);
    if (exchange.state == State::kPulling) down_.Cancel(now_s_, w, fragment);
  }
  ++exchange.attempt;
  exchange.state = State::kIdle;
}

// --- Workers that stop and return ----------------------------------------------------------------------------------------

double Simulation::NextStop(int w, double time_s) const {
  const std::vector<double>& stops = stops_[static_cast<size_t>(w)];
  const auto next = std::lower_bound(stops.begin(), stops.end(), time_s);
  return next == stops.end() ? kNever : *next;
}

void Simulation::Stop(int w) {
  absent_since_[static_cast<size_t>(w)] = now_s_;
  recorder_.CutWorker(w, now_s_);
  if (participant_of_[static_cast<size_t>(w)] < 0) return;
  Participant& p = participants_[static_cast<size_t>(participant_of_[static_cast<size_t>(w)])];
  --p.present;
  if (data_left_[static_cast<size_t>(w)] > 0) data_left_[static_cast<size_t>(w)] = down_.Cancel(now_s_, w, kData);
  const bool trained = p.started && data_left_[static_cast<size_t>(w)] == 0 && std::erase(p.joining, w) == 0;
  const auto member = std::find(p.members.workers.begin(), p.members.workers.end(), w);
  if (member != p.members.workers.end()) p.members.Erase(static_cast<size_t>(member - p.members.workers.begin()));

  if (!p.started) {
    StartIfReady();
  } else if (p.members.workers.empty()) {
    for (int f = kModel; f < fragments(); ++f) BreakOff(p, f);
    p.in_step = p.waiting = false;
    ++p.stamp;
  } else if (trained) {
    if (!p.in_step) {
      WaitUntil(p, now_s_);
      for (double& ready_s : p.members.ready_s) ready_s += job_.reform_s;
    }
    for (int f = kModel; f < fragments(); ++f) {
      Exchange& exchange = ExchangeOf(p, f);
      const State state = exchange.state;
      if (state != State::kSending && state != State::kPushing && state != State::kPulling) continue;
      BreakOff(p, f);
      const bool pull = state == State::kPulling;
      exchange.state = pull ? State::kPulling : State::kSending;
      if (f != kModel) CountSamples(p, exchange);
      Push(now_s_ + job_.reform_s, pull ? Event::Type::kBeginPull : Event::Type::kBeginPush, IndexOf(p), f,
           exchange.attempt);
    }
  }
  DecideAll();
}

void Simulation::Return(int w) {
  Totals(w).absent_s += now_s_ - absent_since_[static_cast<size_t>(w)];
  absent_since_[static_cast<size_t>(w)] = kNever;
  if (participant_of_[static_cast<size_t>(w)] < 0) return;
  ++participants_[static_cast<size_t>(participant_of_[static_cast<size_t>(w)])].present;
  const double bytes = data_left_[static_cast<size_t>(w)];
  bytes > 0 ? down_.Start(now_s_, w, kData, bytes) : Join(w);
  DecideAll();
}

// It is there and has its data.
void Simulation::Join(int w) {
  Participant& p = participants_[static_cast<size_t>(participant_of_[static_cast<size_t>(w)])];
  if (!p.started) return StartIfReady();
  if (!p.members.workers.empty()) {
    p.joining.push_back(w);
    return;
  }
  if (std::none_of(participants_.begin(), participants_.end(), [](const Participant& q) { return q.planned; })) {
    p.planned = true;
    for (int f = 0; f < fragments(); ++f) {
      if (books_[static_cast<size_t>(f)].round < job_.rounds.rounds) Open(f);
    }
  }
  Enter(p, {w});
}

// --- Rounds --------------------------------------------------------------------------------------------------------------

void Simulation::Open(int fragment) {
  Book& book = books_[static_cast<size_t>(fragment)];
  book.opened_s = now_s_;
  book.deadline_s = now_s_ + job_.rounds.deadline_s;
  book.replan_s = book.deadline_s + job_.rounds.replan_after_s;
  book.samples = book.towards_quorum = book.planned = 0;
  book.contributors = 0;
  book.closing = false;
  book.in.assign(participants_.size(), false);
  int planned = 0;
  int with_steps = 0;
  for (const Participant& p : participants_) {
    if (!p.planned) continue;
    ++planned;
    with_steps += StepsOf(p, book.round) > 0;
    book.planned += SamplesOf(p, book.round, p.workers);
  }
  book.empty = planned > 0 && with_steps == 0;
  CountMissing(fragment);
  if (planned == 0) return;  // Until somebody returns.
  for (const double time_s :
       {book.empty ? now_s_ : kNever, book.deadline_s + job_.rounds.late_grace_s, book.replan_s}) {
    if (time_s < kNever) Push(time_s, Event::Type::kDecide, 0, fragment, book.round);
  }
}

void Simulation::CountMissing(int fragment) {
  Book& book = books_[static_cast<size_t>(fragment)];
  book.missing = 0;
  for (size_t i = 0; i < participants_.size(); ++i) {
    const Participant& p = participants_[i];
    if (p.planned && p.present > 0 && !book.in[i] && StepsOf(p, book.round) > 0) ++book.missing;
  }
}

void Simulation::DecideAll() {
  for (int f = 0; training_ && f < fragments(); ++f) {
    if (books_[static_cast<size_t>(f)].round == job_.rounds.rounds) continue;
    CountMissing(f);
    Decide(f);
  }
}

void Simulation::Decide(int fragment) {
  Book& book = books_[static_cast<size_t>(fragment)];
  if (book.closing || book.round == job_.rounds.rounds) return;
  const bool quorum =
      book.contributors > 0 && book.towards_quorum >= job_.rounds.quorum * book.planned * (1 - kQuorumSlack);
  const bool in_time = now_s_ < book.deadline_s + job_.rounds.late_grace_s;
  if ((quorum && (book.missing == 0 || !in_time)) || book.empty) {
    book.closing = true;
    double commit_s = now_s_;
    if (job_.rounds.all_reduce_s) {
      commit_s = std::max(now_s_, all_reduce_free_s_) + *job_.rounds.all_reduce_s * ShareOf(fragment);
      all_reduce_free_s_ = commit_s;
    }
    Push(commit_s, Event::Type::kCommit, 0, fragment);
  } else if (now_s_ >= book.replan_s) {
    Drop(fragment);
  }
}

void Simulation::Close(int fragment, bool committed) {
  const Book& book = books_[static_cast<size_t>(fragment)];
  result_.rounds.push_back({.fragment = fragment,
                            .round = book.round,
                            .opened_s = book.opened_s,
                            .closed_s = now_s_,
                            .committed = committed,
                            .contributors = book.contributors,
                            .planned_samples = book.planned,
                            .samples = book.samples});
  dropped_in_a_row_ = committed ? 0 : dropped_in_a_row_ + 1;
  if (dropped_in_a_row_ >= kMaxDroppedRounds) done_ = true;
}

void Simulation::Commit(int fragment) {
  Book& book = books_[static_cast<size_t>(fragment)];
  Close(fragment, /*committed=*/true);
  book.last_committed = true;
  const bool last = ++book.round == job_.rounds.rounds;
  for (Participant& p : participants_) p.planned = p.planned || p.present > 0;
  if (last) {
    done_ = --fragments_left_ == 0;
    if (done_) return;
  } else {
    Open(fragment);
  }
  for (Participant& p : participants_) {
    if (p.members.workers.empty()) continue;
    Exchange& exchange = ExchangeOf(p, fragment);
    if (exchange.state != State::kIdle && exchange.round == book.round) {
      BreakOff(p, fragment);
      // What the job ends with, nobody needs who has no more to do.
      if (!last || p.position < RoundStart(p, job_.rounds.rounds)) StartPull(p, fragment);
    }
    Advance(p);
  }
}

void Simulation::Drop(int fragment) {
  Book& book = books_[static_cast<size_t>(fragment)];
  Close(fragment, /*committed=*/false);
  if (done_) return;
  for (Participant& p : participants_) p.planned = p.present > 0;
  if (blocking()) {
    const int64_t round = book.round;
    Open(fragment);
    for (Participant& p : participants_) {
      if (!p.started) continue;
      BreakOff(p, fragment);
      BreakOff(p, kModel);
      p.exchanges[0].round = round;
      p.repeat = true;
      Advance(p);
    }
    return;
  }
  book.last_committed = false;
  if (++book.round == job_.rounds.rounds) {
    done_ = --fragments_left_ == 0;
    if (done_) return;
  } else {
    Open(fragment);
  }
  for (Participant& p : participants_) {
    if (ExchangeOf(p, fragment).state != State::kIdle && ExchangeOf(p, fragment).round == book.round) {
      BreakOff(p, fragment);
    }
    Advance(p);
  }
}

}  // namespace

absl::StatusOr<SimulationResult> Simulate(const SimulatedJob& job, const SimulationOptions& options) {
  if (absl::Status status = Validate(job); !status.ok()) return status;
  if (options.max_spans < 0) return absl::InvalidArgumentError(absl::StrCat("max_spans is ", options.max_spans));
  if (options.max_events < 1) return absl::InvalidArgumentError(absl::StrCat("max_events is ", options.max_events));
  if (options.span_workers < 0)
    return absl::InvalidArgumentError(absl::StrCat("span_workers is ", options.span_workers));
  return Simulation(job, options).Run();
}

}  // namespace causeway::scheduler
