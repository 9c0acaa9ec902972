#include "tests/sim/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/protocol_version.h"
#include "server/bulk_service.h"
#include "server/coordinator.h"
#include "server/journal.h"
#include "tests/fakes/fake_model.h"
#include "worker/agent.h"
#include "worker/bulk_dialer.h"
#include "worker/chunk_cache.h"
#include "worker/local_state.h"
#include "worker/metrics.h"
#include "worker/progress_board.h"

namespace causeway::sim {
namespace {

constexpr char kJob[] = "job";
constexpr char kDir[] = "/coordinator";
constexpr absl::Duration kPatience = absl::Minutes(60);  // From the end of all faults to the end of the job.
// Small, so that a small model has many frames and acknowledgements.
constexpr dataplane::StreamSizes kSizes = {
    .frame_bytes = 128, .window_bytes = 512, .ack_bytes = 256, .sync_bytes = 256};

// Makes small models whose batches take time.
class SimModelFactory : public worker::ModelFactory {
 public:
  SimModelFactory(Process* process, absl::Duration per_batch, absl::Duration per_sample)
      : process_(process), per_batch_(per_batch), per_sample_(per_sample) {}
  absl::StatusOr<std::unique_ptr<worker::Model>> Create(const worker::ModelOptions& options) override {
    worker::FakeModel::Options model;
    model.sample_shape = options.sample_shape;
    model.classes = options.classes;
    model.seed = options.seed;
    model.on_batch = [this](int64_t size) { process_->SleepFor(per_batch_ + per_sample_ * static_cast<double>(size)); };
    return std::make_unique<worker::FakeModel>(model);
  }
  std::string device_kind() const override { return "cpu"; }
  std::string device_name() const override { return "simulated"; }
  std::string library_version() const override { return "0"; }

 private:
  Process* const process_;
  const absl::Duration per_batch_;
  const absl::Duration per_sample_;
};

dataplane::Layout LayoutOf(const std::vector<int64_t>& sample_shape) {
  return worker::FakeModel({.sample_shape = sample_shape, .classes = 10}).layout();
}

}  // namespace

// What goes wrong in this run, until `until`.
struct World::Faults {
  absl::Time until = absl::InfinitePast();
  bool active = false;
  bool network = false;
  bool crashes = false;
  bool disks = false;
  uint64_t write_error_one_in = 0;
};

struct World::CoordinatorLife {
  std::unique_ptr<MetricRegistry> registry;
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Executor> io;
  std::unique_ptr<server::Coordinator> coordinator;
  std::unique_ptr<server::BulkService> bulk;
  ~CoordinatorLife() {
    bulk.reset();
    io.reset();
    executor.reset();
  }
};

struct World::WorkerLife {
  std::unique_ptr<MetricRegistry> registry;
  std::unique_ptr<SimModelFactory> factory;
  std::unique_ptr<worker::CoordinatorClient> client;
  std::unique_ptr<worker::BulkDialer> dialer;
  std::unique_ptr<worker::ChunkCache> cache;
  std::unique_ptr<worker::LocalState> state;
  std::unique_ptr<worker::WorkerMetrics> metrics;
  worker::ProgressBoard board;
  std::unique_ptr<worker::Agent> agent;
};

struct World::Machine {
  std::string name;
  bool coordinator = false;
  dataplane::PeerIdentity peer;  // A worker's.
  FaultDisk disk;
  Path path;
  absl::Time disk_full_until = absl::InfinitePast();
  int64_t crash_in = -1;  // So many more writes and sends; negative: not.
  absl::Duration per_batch, per_sample;

  Process* process = nullptr;  // Null: down.
  std::unique_ptr<CoordinatorLife> coordinator_life;
  std::unique_ptr<WorkerLife> worker_life;
};

World::World(const Options& options)
    : options_(options), scheduler_(MixSeed(options.seed, {"simulation"})), faults_(std::make_unique<Faults>()) {
  Random& random = scheduler_.random();
  const int64_t workers = 2 + static_cast<int64_t>(random.Below(3));
  const int64_t sites = 1 + static_cast<int64_t>(random.Below(2));
  rounds_ = 2 + static_cast<int64_t>(random.Below(4));
  yaml_ = absl::StrCat(
      "name: ", kJob, "\nmodel: {builtin: mlp}\ndata:\n  train: {format: idx, images: train, labels: train-labels}\n",
      "  test: {format: idx, images: test, labels: test-labels}\nbatch: {per_worker: 4}\n", "end: {rounds: ", rounds_,
      "}\nrounds: {every: {per_epoch: ", 1 + random.Below(2), "}, replan_after: ", random.Below(2) == 0 ? 5 : 60,
      "s}\ncheckpoint: {keep: ", 1 + random.Below(3), "}\n");

  machines_.push_back(std::make_unique<Machine>());
  machines_[0]->name = "coordinator";
  machines_[0]->coordinator = true;
  std::map<std::string, std::string> site_of;
  for (int64_t i = 0; i < workers; ++i) {
    auto machine = std::make_unique<Machine>();
    machine->name = absl::StrCat("w", i);
    machine->peer = {.role = dataplane::PeerIdentity::Role::kWorker,
                     .name = machine->name,
                     .site = absl::StrCat("s", i % sites),
                     .serial = absl::StrCat("0", i),
                     .not_after = absl::InfiniteFuture()};
    machine->path.latency = absl::Milliseconds(1 + random.Below(40));
    machine->path.jitter = absl::Milliseconds(random.Below(20));
    machine->path.bytes_per_s = 5e4 * static_cast<double>(1 + random.Below(20));
    machine->per_batch = absl::Milliseconds(10 + random.Below(100));
    machine->per_sample = absl::Milliseconds(1 + random.Below(20));
    site_of[machine->name] = machine->peer.site;
    machines_.push_back(std::move(machine));
  }

  // What the operator did before: sites, workers with their certificates, data.
  FaultDisk* const disk = &machines_[0]->disk;
  options_.vfs->Mount(kDir, disk);
  CAUSEWAY_CHECK(disk->MakeDirs(kDir, 0755).ok());
  {
    auto journal = server::Journal::Open(absl::StrCat(kDir, "/journal.db"));
    CAUSEWAY_CHECK(journal.ok());
    for (int64_t i = 0; i < sites; ++i)
      CAUSEWAY_CHECK((*journal)->PutSite({.name = absl::StrCat("s", i), .generation = 1}).ok());
    for (const auto& machine : machines_) {
      if (machine->coordinator) continue;
      CAUSEWAY_CHECK((*journal)
                         ->PutWorker({.name = machine->name,
                                      .site = machine->peer.site,
                                      .serial = machine->peer.serial,
                                      .cert_expires_ms = int64_t{1} << 60})
                         .ok());
    }
  }
  CAUSEWAY_CHECK(disk->MakeDirs(options_.data->root, 0755).ok());
  for (const auto& [path, content] : options_.data->files)
    CAUSEWAY_CHECK(disk->WriteFileAtomically(path, content, 0644).ok());

  checker_ = std::make_unique<Checker>(Checker::Options{.job = kJob,
                                                        .dir = kDir,
                                                        .train_samples = options_.data->train_samples,
                                                        .layout = LayoutOf({1, 4, 4}),
                                                        .sites = site_of,
                                                        .disk = disk,
                                                        .vfs = options_.vfs});
  network_ = std::make_unique<Network>(
      Network::Options{.scheduler = &scheduler_, .observer = checker_.get(), .on_send = [this](Process* process) {
                         return OnSend(process);
                       }});

  // A quarter of the runs have one kind of fault each; the others any mixture, or none.
  const uint64_t kinds = random.Below(8);
  faults_->network = (kinds & 1) != 0;
  faults_->crashes = (kinds & 2) != 0;
  faults_->disks = (kinds & 4) != 0;
  faults_->active = kinds != 0;
  faults_->until = scheduler_.now() + absl::Seconds(10 + random.Below(80));
  if (faults_->disks) faults_->write_error_one_in = uint64_t{20} << random.Below(5);
  for (const auto& machine : machines_) {
    Machine* const m = machine.get();
    m->disk.decide = [this, m](FaultDisk::Call call, const std::string&) { return Decide(m, call); };
    if (faults_->network) {
      m->path.lose_call_one_in = random.Below(2) == 0 ? 0 : 2 + random.Below(20);
      m->path.repeat_call_one_in = random.Below(2) == 0 ? 0 : 2 + random.Below(10);
      m->path.cut_one_in = random.Below(2) == 0 ? 0 : 5 + random.Below(100);
    }
    ArmCrashPoint(m);
    scheduler_.After(scheduler_.Jitter(absl::Seconds(m->coordinator || random.Below(3) > 0 ? 0.1 : 15)),
                     [this, m] { Restart(m); });
  }
  scheduler_.After(scheduler_.Jitter(absl::Seconds(3)), [this] { Submit(); });
  if (faults_->active) {
    ScheduleTrouble();
    scheduler_.At(faults_->until, [this] { Heal(); });
  }
}

World::~World() {
  for (const auto& machine : machines_) {
    if (machine->process != nullptr) EndLife(machine.get(), absl::ZeroDuration());
  }
  options_.vfs->Mount(kDir, nullptr);
}

World::Machine* World::MachineOf(const Process* process) {
  for (const auto& machine : machines_) {
    if (machine->process == process) return machine.get();
  }
  return nullptr;
}

// ---- Lives

void World::StartCoordinator() {
  Machine* const machine = machines_[0].get();
  auto life = std::make_unique<CoordinatorLife>();
  life->registry = MetricRegistry::Create();
  life->executor = machine->process->MakeExecutor("coordinator", absl::Microseconds(200));
  life->io = machine->process->MakeExecutor("io", absl::Milliseconds(20));
  absl::StatusOr<std::unique_ptr<server::Coordinator>> coordinator =
      server::Coordinator::Create({.dir = kDir,
                                   .data_root = options_.data->root,
                                   .advertise = "127.0.0.1:7443",
                                   .profile_duration = absl::Milliseconds(300),
                                   .fs = &machine->disk,
                                   .clock = machine->process,
                                   .executor = life->executor.get(),
                                   .io = life->io.get(),
                                   .registry = life->registry.get()});
  if (machine->process->dead()) return;
  if (!coordinator.ok()) {
    if (!faults_->active) checker_->Fail(absl::StrCat("no coordinator starts: ", coordinator.status().ToString()));
    Crash(machine);
    return;
  }
  life->coordinator = *std::move(coordinator);
  life->bulk = std::make_unique<server::BulkService>(life->coordinator.get(), life->executor.get(), kSizes);
  checker_->OnCoordinator(*life->coordinator, /*started=*/true);
  life->executor->Start();
  life->io->Start();
  life->coordinator->Start();
  network_->Listen({.process = machine->process,
                    .executor = life->executor.get(),
                    .coordinator = life->coordinator.get(),
                    .bulk = life->bulk.get()});
  machine->coordinator_life = std::move(life);
}

void World::StartWorker(Machine* machine) {
  Process* const process = machine->process;
  auto life = std::make_unique<WorkerLife>();
  life->registry = MetricRegistry::Create();
  life->factory = std::make_unique<SimModelFactory>(process, machine->per_batch, machine->per_sample);
  const auto start = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(life->cache, worker::ChunkCache::Open({&machine->disk, "/worker/cache", 1 << 20}));
    ASSIGN_OR_RETURN(life->state, worker::LocalState::Open(&machine->disk, "/worker/state", process->WallNow()));
    life->client = network_->MakeClient(process, machine->peer, &machine->path);
    life->dialer = std::make_unique<worker::BulkDialer>(
        [this, process, machine](const std::string&) {
          return network_->MakeDialer(process, machine->peer, &machine->path);
        },
        "127.0.0.1:7443");
    life->metrics = std::make_unique<worker::WorkerMetrics>(worker::WorkerMetrics::Options{
        .registry = life->registry.get(), .clock = process, .site = machine->peer.site, .worker = machine->name});
    worker::Agent::Options options;
    options.worker = machine->name;
    *options.registration.mutable_version() = dataplane::OurVersion();
    options.registration.set_incarnation(life->state->incarnation().value());
    options.dir = "/worker";
    options.transfer.dialer = life->dialer.get();
    options.transfer.clock = process;
    options.transfer.sizes = kSizes;
    // The process ends; whoever watches over it starts it again.
    const auto end = [this, machine, process] {
      scheduler_.After(absl::ZeroDuration(), [this, machine, process] {
        if (machine->process == process && !process->dead()) Crash(machine);
      });
    };
    options.on_give_up = [end](const absl::Status&) { end(); };
    options.on_drained = end;
    options.make_executor = [process](const std::string& name) {
      return process->MakeExecutor(name, absl::Microseconds(200));
    };
    options.client = life->client.get();
    options.bulk = life->dialer.get();
    options.factory = life->factory.get();
    options.cache = life->cache.get();
    options.local_state = life->state.get();
    options.fs = &machine->disk;
    options.metrics = life->metrics.get();
    options.board = &life->board;
    options.clock = process;
    ASSIGN_OR_RETURN(life->agent, worker::Agent::Create(std::move(options)));
    life->agent->Start();
    return absl::OkStatus();
  };
  const absl::Status started = start();
  machine->worker_life = std::move(life);
  if (!started.ok() && !process->dead()) Crash(machine);
}

void World::Restart(Machine* machine) {
  processes_.push_back(std::make_unique<Process>(&scheduler_, machine->name));
  machine->process = processes_.back().get();
  machine->coordinator ? StartCoordinator() : StartWorker(machine);
}

// The process is killed here; what is left of it is cleared away at once, but not on one of its fibers.
void World::Crash(Machine* machine) {
  CAUSEWAY_CHECK(machine->process != nullptr && !machine->process->dead());
  machine->process->Kill();
  machine->disk.PowerOff();
  ++crashes_;
  log::Info("sim: crash", {{"machine", machine->name}});
  scheduler_.After(absl::ZeroDuration(), [this, machine] {
    Random& random = scheduler_.random();
    // Killed: its peers' sockets are reset. Without power: they hear nothing for a while.
    const bool power = random.Below(3) > 0;
    EndLife(machine, power ? absl::Seconds(10) : absl::Milliseconds(50));
    absl::Duration down = scheduler_.Jitter(absl::Seconds(random.Below(4) == 0 ? 25 : 3));
    const FaultDisk::Loss loss = !power                 ? FaultDisk::Loss::kNothing
                                 : random.Below(2) == 0 ? FaultDisk::Loss::kUnsynced
                                                        : FaultDisk::Loss::kSome;
    scheduler_.After(down, [this, machine, loss] {
      machine->disk.PowerOn(loss, &scheduler_.random());
      ArmCrashPoint(machine);
      Restart(machine);
    });
  });
}

void World::EndLife(Machine* machine, absl::Duration silence) {
  machine->process->Kill();
  machine->process->Reap();
  machine->coordinator_life.reset();
  machine->worker_life.reset();
  network_->Forget(machine->process, silence);
  machine->process = nullptr;
}

void World::Submit() {
  CoordinatorLife* const life = machines_[0]->coordinator_life.get();
  const auto again = [this] {
    scheduler_.After(absl::Seconds(1), [this] {
      if (!submitted_) Submit();
    });
  };
  again();
  if (life == nullptr || machines_[0]->process->dead()) return;
  life->executor->Add([this, coordinator = life->coordinator.get()] {
    v1::SubmitJobRequest request;
    request.set_yaml(yaml_);
    request.set_request_id("request");
    coordinator->SubmitJob(request, [this](absl::StatusOr<v1::SubmitJobResponse> response) {
      if (machines_[0]->process->dead()) return;
      if (!response.ok()) {
        if (!faults_->active && !absl::IsUnavailable(response.status()))
          checker_->Fail(absl::StrCat("the job is refused: ", response.status().ToString()));
        return;
      }
      submitted_ = true;
      checker_->OnSubmitted();
    });
  });
}

// ---- Faults

void World::ArmCrashPoint(Machine* machine) {
  machine->crash_in = -1;
  if (!faults_->crashes || !faults_->active || scheduler_.OneIn(4)) return;
  machine->crash_in = static_cast<int64_t>(scheduler_.random().Below(uint64_t{2} << scheduler_.random().Below(11)));
}

bool World::CrashPointReached(Machine* machine) {
  if (!faults_->active || machine->crash_in < 0 || machine->process == nullptr || machine->process->dead())
    return false;
  return machine->crash_in-- == 0;
}

FaultDisk::Fate World::Decide(Machine* machine, FaultDisk::Call call) {
  if (!faults_->active || machine->process == nullptr) return FaultDisk::Fate::kDone;
  if (FaultDisk::IsWrite(call) && CrashPointReached(machine)) {
    Crash(machine);
    return scheduler_.OneIn(2) ? FaultDisk::Fate::kCrashBefore : FaultDisk::Fate::kCrashAfter;
  }
  if (!faults_->disks) return FaultDisk::Fate::kDone;
  if (scheduler_.now() < machine->disk_full_until &&
      (call == FaultDisk::Call::kWrite || call == FaultDisk::Call::kCreate || call == FaultDisk::Call::kMakeDir)) {
    return FaultDisk::Fate::kFull;
  }
  if (scheduler_.OneIn(faults_->write_error_one_in * (FaultDisk::IsWrite(call) ? 1 : 20))) {
    return call == FaultDisk::Call::kWrite && scheduler_.OneIn(2) ? FaultDisk::Fate::kFull : FaultDisk::Fate::kIoError;
  }
  return FaultDisk::Fate::kDone;
}

Network::Fate World::OnSend(Process* process) {
  Machine* const machine = MachineOf(process);
  if (!CrashPointReached(machine)) return Network::Fate::kSend;
  Crash(machine);
  return scheduler_.OneIn(2) ? Network::Fate::kCrashBefore : Network::Fate::kCrashAfter;
}

void World::ScheduleTrouble() {
  scheduler_.After(absl::Seconds(1) + scheduler_.Jitter(absl::Seconds(8)), [this] {
    if (!faults_->active) return;
    MakeTrouble();
    ScheduleTrouble();
  });
}

void World::MakeTrouble() {
  Random& random = scheduler_.random();
  Machine* const worker = machines_[1 + random.Below(machines_.size() - 1)].get();
  Machine* const any = machines_[random.Below(machines_.size())].get();
  if (faults_->network) {
    switch (random.Below(4)) {
      case 0: network_->CutStreams(worker->name); break;
      case 1: worker->path.down_until = scheduler_.now() + scheduler_.Jitter(absl::Seconds(25)); break;
      case 2: worker->path.bytes_per_s = 300.0 * static_cast<double>(1 + random.Below(1000)); break;
      case 3: worker->path.latency = absl::Milliseconds(random.Below(2000)); break;
    }
  }
  if (faults_->crashes && random.Below(4) == 0 && any->process != nullptr && !any->process->dead()) Crash(any);
  if (faults_->crashes && random.Below(4) == 0 && any->process != nullptr)
    any->process->Pause(scheduler_.now() + scheduler_.Jitter(absl::Seconds(20)));
  // What operators do.
  if (const CoordinatorLife* const life = machines_[0]->coordinator_life.get();
      random.Below(6) == 0 && life != nullptr && !machines_[0]->process->dead()) {
    life->executor->Add([coordinator = life->coordinator.get(), what = random.Below(3), name = worker->name] {
      const absl::Status done = what == 0   ? coordinator->PauseJob(kJob)
                                : what == 1 ? coordinator->ResumeJob(kJob)
                                            : coordinator->DrainWorker(name);
      log::Info("sim: operator", {{"what", static_cast<int64_t>(what)}, {"worker", name}, {"status", done}});
    });
  }
  if (faults_->disks && random.Below(4) == 0)
    any->disk_full_until = scheduler_.now() + scheduler_.Jitter(absl::Seconds(15));
}

void World::Heal() {
  faults_->active = false;
  for (const auto& machine : machines_) {
    machine->path.lose_call_one_in = machine->path.repeat_call_one_in = machine->path.cut_one_in = 0;
    machine->path.down_until = absl::InfinitePast();
    machine->path.bytes_per_s = std::max(machine->path.bytes_per_s, 5e4);
    machine->path.latency = std::min(machine->path.latency, absl::Milliseconds(40));
  }
  log::Info("sim: healed", {});
  KeepRunning();
}

// The operator sees a paused job and resumes it.
void World::KeepRunning() {
  if (const CoordinatorLife* const life = machines_[0]->coordinator_life.get();
      life != nullptr && !machines_[0]->process->dead()) {
    life->executor->Add([coordinator = life->coordinator.get()] { coordinator->ResumeJob(kJob).IgnoreError(); });
  }
  scheduler_.After(absl::Seconds(10), [this] { KeepRunning(); });
}

World::Result World::Run() {
  const absl::Time started = scheduler_.now();
  const absl::Time limit = std::max(started, faults_->active ? faults_->until : started) + kPatience;
  Result result;
  bool ended = false;
  while (checker_->failure().empty() && !ended) {
    if (!scheduler_.Step() || scheduler_.now() > limit) {
      std::string waiting;
      if (const auto& life = machines_[0]->coordinator_life; life != nullptr) {
        absl::StatusOr<v1::GetJobResponse> job = life->coordinator->GetJob(kJob);
        waiting = job.ok() ? job->ShortDebugString() : job.status().ToString();
      }
      checker_->Fail(absl::StrCat("the job does not end: ", waiting));
      break;
    }
    const CoordinatorLife* const life = machines_[0]->coordinator_life.get();
    if (life == nullptr || machines_[0]->process->dead()) continue;
    checker_->OnCoordinator(*life->coordinator, /*started=*/false);
    const v1::ListJobsResponse jobs = life->coordinator->ListJobs();
    for (const v1::JobSummary& job : jobs.jobs()) {
      if (job.state() == v1::JOB_STATE_FAILED) checker_->Fail(absl::StrCat("the job failed: ", job.reason()));
      ended = job.state() == v1::JOB_STATE_FINISHED && job.ended_ms() > 0 && !faults_->active;
    }
  }
  if (ended) checker_->CheckEnd(rounds_);
  result.failure = checker_->failure();
  result.steps = scheduler_.steps();
  result.crashes = crashes_;
  result.rounds = checker_->rounds();
  result.verified = checker_->verified();
  result.seconds = absl::ToDoubleSeconds(scheduler_.now() - started);
  result.trace = scheduler_.random()() ^ static_cast<uint64_t>(scheduler_.steps());
  return result;
}

}  // namespace causeway::sim
