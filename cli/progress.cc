#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/output.h"

namespace causeway::cli {
namespace {

constexpr int kBarWidth = 20;

std::string AccuracyText(const v1::Evaluation& evaluation) {
  return absl::StrFormat("accuracy %.4f, loss %.4f", evaluation.accuracy(), evaluation.loss());
}

std::string PlanText(const v1::GetJobResponse& status) {
  const v1::Plan& plan = status.plan();
  std::set<std::string> emulated;
  for (const v1::WorkerInJob& worker : status.workers()) {
    if (worker.has_emulation()) emulated.insert(worker.worker());
  }
  std::vector<std::string> shares;
  for (const v1::WorkerPlan& worker : plan.workers()) {
    const std::string name = absl::StrCat(worker.worker(), emulated.contains(worker.worker()) ? " (emulated)" : "");
    shares.push_back(worker.samples() == 0
                         ? absl::StrCat(name, " none")
                         : absl::StrCat(name, " ", worker.samples(), " samples in batches of ", worker.batch_size()));
  }
  return absl::StrCat("plan ", plan.number(), plan.pinned() ? " (pinned)" : "",
                      plan.reason().empty() ? "" : absl::StrCat(" (", plan.reason(), ")"), ": ",
                      absl::StrJoin(shares, ", "), "; predicted ", HumanSeconds(plan.predicted_total_s()),
                      " in all, even split ", HumanSeconds(plan.even_split_total_s()));
}

std::string RoundText(const v1::RoundRecord& round) {
  std::string text =
      absl::StrCat("round ", round.round(), ": version ", round.version(), ", ", round.samples(), " samples, ",
                   round.contributions(), " of ", round.planned_contributions(), " contributions, ",
                   HumanSeconds(round.seconds()), ", train loss ", HumanNumber(round.train_loss(), 4));
  return text;
}

// How far a worker is in what it does now.
double Fraction(const v1::WorkerProgress& progress) {
  auto share = [](int64_t done, int64_t total) {
    return total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 0.0;
  };
  switch (progress.phase()) {
    case v1::WORKER_PHASE_FETCHING: return share(progress.fetch_bytes_done(), progress.fetch_bytes_total());
    case v1::WORKER_PHASE_TRAINING: return share(progress.steps_done(), progress.steps_planned());
    case v1::WORKER_PHASE_PUSHING:
    case v1::WORKER_PHASE_WAITING: return 1;
    default: return 0;
  }
}

// Seconds a round takes this worker: planned, and measured over the rounds under this plan.
std::string PredictedAndMeasured(const v1::WorkerInJob& worker, int64_t rounds_per_epoch) {
  double predicted = (worker.plan().compute_s() + worker.plan().comm_s()) /
                     static_cast<double>(std::max<int64_t>(rounds_per_epoch, 1));
  double measured = worker.compute_s() + worker.pull_s() + worker.push_s();
  return absl::StrCat(HumanSeconds(predicted), " / ",
                      worker.rounds() > 0 ? HumanSeconds(measured / static_cast<double>(worker.rounds())) : "-");
}

class PlainView : public WatchView {
 public:
  PlainView(std::ostream* out, std::ostream* err) : out_(out), err_(err) {}
  void Show(const v1::GetJobResponse& status) override {
    for (const std::string& line : events_.Update(status)) *out_ << line << '\n';
    out_->flush();
  }
  void Note(absl::string_view text) override { *err_ << std::string(text) << std::endl; }

 private:
  std::ostream* const out_;
  std::ostream* const err_;
  JobEvents events_;
};

class TerminalView : public WatchView {
 public:
  TerminalView(std::ostream* out, int columns) : out_(out), columns_(columns) {}
  void Show(const v1::GetJobResponse& status) override {
    // An ended job leaves its last block behind.
    Draw(events_.Update(status), RenderProgress(status, columns_));
  }
  void Note(absl::string_view text) override { Draw({std::string(text)}, {}); }

 private:
  // Writes lines that stay over the old block, and the block below them, in one piece, so that nothing flickers.
  void Draw(const std::vector<std::string>& lines, const std::vector<std::string>& block) {
    std::string text = drawn_ > 0 ? absl::StrCat("\x1b[", drawn_, "A\r\x1b[J") : "";
    for (const std::string& line : lines) absl::StrAppend(&text, line, "\n");
    for (const std::string& line : block) absl::StrAppend(&text, line, "\n");
    drawn_ = block.size();
    *out_ << text << std::flush;
  }

  std::ostream* const out_;
  const int columns_;
  JobEvents events_;
  size_t drawn_ = 0;
};

class JsonView : public WatchView {
 public:
  JsonView(std::ostream* out, std::ostream* err) : out_(out), err_(err) {}
  void Show(const v1::GetJobResponse& status) override {
    Json document = {{"schema", "causeway.job/1"}};
    document.update(ToJson(status));
    std::string line = document.dump(-1, ' ', false, Json::error_handler_t::replace);
    if (line == std::exchange(last_, line)) return;
    *out_ << line << std::endl;
  }
  void Note(absl::string_view text) override { *err_ << std::string(text) << std::endl; }

 private:
  std::ostream* const out_;
  std::ostream* const err_;
  std::string last_;
};

}  // namespace

bool HasEnded(v1::JobState state) {
  return state == v1::JOB_STATE_FINISHED || state == v1::JOB_STATE_FAILED || state == v1::JOB_STATE_ABORTED;
}

std::vector<std::string> JobEvents::Update(const v1::GetJobResponse& status) {
  const v1::JobSummary& summary = status.summary();
  std::vector<std::string> lines;
  auto add = [&](absl::string_view text) { lines.push_back(absl::StrCat(summary.job(), ": ", text)); };
  auto add_state = [&] {
    add(absl::StrCat(StateName(summary.state()),
                     summary.reason().empty() ? "" : absl::StrCat(" (", summary.reason(), ")")));
  };

  bool state_changed = summary.state() != state_ || summary.reason() != reason_;
  // The end is said last, what led to it before.
  if (state_changed && !HasEnded(summary.state())) add_state();
  if (status.has_plan() && status.plan().number() != plan_) {
    plan_ = status.plan().number();
    add(PlanText(status));
  }
  for (const v1::WorkerInJob& worker : status.workers()) {
    auto [it, inserted] = live_.emplace(worker.worker(), worker.live());
    if (inserted ? !worker.live() : it->second != worker.live()) {
      add(absl::StrCat("worker ", worker.worker(), worker.live() ? " is back" : " is lost"));
    }
    it->second = worker.live();
    std::string& excluded = excluded_[worker.worker()];
    if (worker.excluded() != excluded) {
      excluded = worker.excluded();
      add(excluded.empty() ? absl::StrCat("worker ", worker.worker(), " takes part again")
                           : absl::StrCat("worker ", worker.worker(), " is left out: ", excluded));
    }
  }
  for (const v1::RoundRecord& round : status.rounds()) {
    if (round.round() <= round_) continue;
    round_ = round.round();
    if (!first_) add(RoundText(round));
  }
  if (summary.has_evaluation() && summary.evaluation().version() > evaluated_) {
    evaluated_ = summary.evaluation().version();
    add(absl::StrCat("version ", evaluated_, " evaluated: ", AccuracyText(summary.evaluation()), " on ",
                     summary.evaluation().total(), " samples"));
  }
  for (const auto& [reason, count] :
       std::map<std::string, int64_t>(status.rejected().begin(), status.rejected().end())) {
    if (std::exchange(rejected_[reason], count) != count)
      add(absl::StrCat("contributions rejected as ", reason, ": ", count));
  }
  bool late = status.round_deadline_s() > 0 && status.round_elapsed_s() > status.round_deadline_s();
  std::string waiting_for = late ? absl::StrJoin(status.waiting_for(), ", ") : "";
  if (std::exchange(waiting_for_, waiting_for) != waiting_for && !waiting_for.empty()) {
    add(absl::StrCat("round ", summary.round(), " is past its deadline and waits for ", waiting_for));
  }
  if (state_changed && HasEnded(summary.state())) add_state();
  state_ = summary.state();
  reason_ = summary.reason();
  first_ = false;
  return lines;
}

std::string Bar(double fraction, int width) {
  if (!(fraction > 0)) fraction = 0;
  int filled = static_cast<int>(std::floor(std::min(fraction, 1.0) * width));
  return absl::StrCat("[", std::string(filled, '#'), std::string(width - filled, '-'), "]");
}

std::vector<std::string> RenderProgress(const v1::GetJobResponse& status, int columns) {
  const v1::JobSummary& summary = status.summary();
  std::vector<std::string> first = {absl::StrCat(summary.job(), " ", StateName(summary.state())),
                                    summary.rounds_planned() > 0
                                        ? absl::StrCat("round ", summary.round(), " of ", summary.rounds_planned())
                                        : absl::StrCat("round ", summary.round()),
                                    absl::StrCat("epoch ", HumanNumber(summary.epochs_done(), 2))};
  if (summary.version() >= 0) first.push_back(absl::StrCat("version ", summary.version()));
  if (summary.has_evaluation()) first.push_back(AccuracyText(summary.evaluation()));
  std::vector<std::string> second;
  if (!summary.reason().empty()) second.push_back(summary.reason());
  if (!HasEnded(summary.state())) {
    if (status.round_deadline_s() > 0) {
      second.push_back(absl::StrCat("in this round ", HumanSeconds(status.round_elapsed_s()), " of at most ",
                                    HumanSeconds(status.round_deadline_s())));
    }
    second.push_back(absl::StrCat(
        "left: ", status.seconds_left() > 0 ? absl::StrCat("about ", HumanSeconds(status.seconds_left())) : "unknown"));
    if (!status.waiting_for().empty())
      second.push_back(absl::StrCat("waiting for ", absl::StrJoin(status.waiting_for(), ", ")));
  }
  Table table({"WORKER", "SITE", "PROGRESS", "PHASE", "STEPS", "SAMPLES", "LOSS", "ROUND PLANNED / MEASURED", ""});
  for (const v1::WorkerInJob& worker : status.workers()) {
    const v1::WorkerProgress& progress = worker.progress();
    bool idle = status.has_plan() && !worker.takes_part();
    std::string phase = !worker.live() ? "lost" : idle ? "takes no part" : PhaseName(progress.phase());
    bool steps = progress.steps_planned() > 0;
    table.AddRow({worker.worker(), worker.site(), Bar(worker.live() && !idle ? Fraction(progress) : 0, kBarWidth),
                  phase, steps ? absl::StrCat(progress.steps_done(), "/", progress.steps_planned()) : "",
                  steps ? absl::StrCat(progress.samples_done()) : "",
                  progress.steps_done() > 0 ? HumanNumber(progress.train_loss(), 4) : "",
                  worker.takes_part() ? PredictedAndMeasured(worker, status.plan().rounds_per_epoch()) : "",
                  worker.has_emulation() ? "emulated" : " "});
  }
  std::vector<std::string> lines = {absl::StrJoin(first, "  "), absl::StrJoin(second, "  ")};
  if (status.workers_size() > 0) {
    for (absl::string_view line : absl::StrSplit(table.ToString(), '\n', absl::SkipEmpty()))
      lines.push_back(std::string(line));
  }
  // A wrapped line would break the redrawing.
  for (std::string& line : lines) line = line.substr(0, static_cast<size_t>(std::max(columns - 1, 1)));
  return lines;
}

std::unique_ptr<WatchView> MakePlainView(std::ostream* out, std::ostream* err) {
  return std::make_unique<PlainView>(out, err);
}
std::unique_ptr<WatchView> MakeTerminalView(std::ostream* out, int columns) {
  return std::make_unique<TerminalView>(out, columns);
}
std::unique_ptr<WatchView> MakeJsonView(std::ostream* out, std::ostream* err) {
  return std::make_unique<JsonView>(out, err);
}

}  // namespace causeway::cli
