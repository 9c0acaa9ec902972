// A coordinator that starts on a journal which is not what it was. Input: 0, then patches of the database's bytes (position in three bytes,
// then what to put there, with its length); or 1, then pieces that replace messages in its rows (which one, then its bytes, with their length).
// It may refuse to start or fail the job, it may not crash.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/executor.h"
#include "base/file.h"
#include "base/metrics.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "jobspec/job_spec.h"
#include "proto/journal.pb.h"
#include "proto/plan.pb.h"
#include "server/coordinator.h"
#include "server/data_owner.h"
#include "server/journal.h"
#include "server/parameter_store.h"
#include "server/spool.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"
#include "tests/fuzz/fuzz_log.h"
#include "tests/fuzz/fuzz_require.h"

namespace {

using namespace causeway;          // NOLINT
using namespace causeway::server;  // NOLINT

constexpr int64_t kSamples = 8;

std::string BigEndian(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

// The messages in a journal of one job in its first round, by their number in the input.
enum Row {
  kSpec,
  kLayout,
  kTrain,
  kTest,
  kPinned,
  kRuntime,
  kPlan,
  kShards,
  kProfile,
  kRecord,
  kInfo,
  kEvaluation,
  kRows
};
using Rows = std::array<std::string, kRows>;

// A data directory as it is before each run.
class Template {
 public:
  Template() : pki_(dir_.path()) {
    KeepQuiet();
    Require(files_->MakeDirs(dir_.Join("data")).ok() && files_->MakeDirs(state()).ok());
    std::string images = BigEndian(0x0803) + BigEndian(kSamples) + BigEndian(2) + BigEndian(2);
    std::string labels = BigEndian(0x0801) + BigEndian(kSamples);
    for (int i = 0; i < kSamples * 4; ++i) images.push_back(static_cast<char>(i));
    for (int i = 0; i < kSamples; ++i) labels.push_back(static_cast<char>(i % 2));
    std::ofstream(dir_.Join("data/images"), std::ios::binary) << images;
    std::ofstream(dir_.Join("data/labels"), std::ios::binary) << labels;
    const auto owner =
        *DataOwner::Create({.fs = files_, .data_root = dir_.Join("data"), .chunk_dir = state() + "/chunks"});
    const v1::JobSpec spec = *jobspec::ParseJobYaml(
        "name: job\nmodel: {builtin: mlp, classes: 2}\nseed: 1\nbatch: {per_worker: 2}\nend: {rounds: 3}\ndata:\n"
        "  train: {format: idx, images: images, labels: labels}\n  test: {format: idx, images: images, labels: "
        "labels}\n",
        "job.yaml");
    valid_[kSpec] = spec.SerializeAsString();
    valid_[kTrain] = owner->Build({.images = "images", .labels = "labels", .seed = 1})->info.SerializeAsString();
    valid_[kTest] = owner->Build({.images = "images", .labels = "labels"})->info.SerializeAsString();
    const auto layout =
        *dataplane::Layout::Create({{"w", dataplane::DataType::kFloat32, {3}, dataplane::TensorKind::kParameter, 1}});
    valid_[kLayout] = layout.ToProto().SerializeAsString();
    const auto store = *ParameterStore::Create({.fs = files_, .dir = state() + "/jobs/job", .layout = layout});
    const std::vector<uint8_t> model(layout.total_bytes());
    model_ = store->WriteCheckpoint(Version(0), model, {})->sha256;

    v1::StoredRuntime runtime;
    runtime.set_active_plan(1);
    runtime.set_final_version(-1);
    v1::StoredRound* round = runtime.mutable_open_round();
    round->set_attempt(1000001);
    round->set_plan(1);
    round->set_quorum_of(kSamples);
    v1::Plan plan;
    plan.set_number(1);
    plan.set_method("uniform");
    plan.set_objective("barrier");
    plan.set_samples(kSamples);
    plan.set_rounds_per_epoch(1);
    v1::StoredShards shards;
    for (int i = 0; i < 2; ++i) {
      const std::string worker = i == 0 ? "w0" : "w1";
      auto* participant = round->add_participants();
      participant->set_worker(worker);
      participant->set_planned_samples(kSamples / 2);
      participant->set_rank(i);
      auto* planned = plan.add_workers();
      planned->set_worker(worker);
      planned->set_site("lab");
      planned->set_samples(kSamples / 2);
      planned->set_batch_size(2);
      planned->set_steps_per_epoch(kSamples / 4);
      auto* shard = shards.add_shards();
      shard->set_worker(worker);
      auto* range = shard->add_ranges();
      range->set_begin(i * kSamples / 2);
      range->set_end((i + 1) * kSamples / 2);
    }
    valid_[kRuntime] = runtime.SerializeAsString();
    valid_[kPlan] = plan.SerializeAsString();
    valid_[kShards] = shards.SerializeAsString();
    v1::DeviceProfile profile;
    auto* time = profile.add_batch_times();
    time->set_batch_size(2);
    time->set_batch_time_s(0.01);
    profile.set_max_parallel(64);
    profile.set_down_bytes_per_s(1e6);
    profile.set_up_bytes_per_s(1e6);
    profile.set_eval_samples_per_s(100);
    valid_[kProfile] = profile.SerializeAsString();
    valid_[kRecord] = v1::RoundRecord().SerializeAsString();
    v1::StoredContribution info;
    info.set_train_loss(1);
    valid_[kInfo] = info.SerializeAsString();
    valid_[kEvaluation] = v1::Evaluation().SerializeAsString();

    // One contribution, spooled.
    const auto spool = *Spool::Create({.fs = files_, .dir = state() + "/spool", .max_bytes = 1 << 20});
    part_sha256_ = dataplane::Sha256Of(model);
    const auto upload = *spool->Open({"job", 0, 0, 1000001, "w0"}, layout.total_bytes(), part_sha256_);
    Require(upload->Append(0, model).ok());
    part_path_ = *upload->Finish();
    WriteJournal(valid_);
    database_ = *files_->ReadFile(journal(), 1 << 24);
  }

  std::string state() const { return dir_.Join("state"); }
  std::string journal() const { return state() + "/journal.db"; }
  const Rows& valid() const { return valid_; }
  const std::string& database() const { return database_; }

  void WriteDatabase(const std::string& bytes) {
    RemoveJournal();
    std::ofstream(journal(), std::ios::binary) << bytes;
  }
  void WriteJournal(const Rows& rows) {
    RemoveJournal();
    const std::unique_ptr<Journal> journal = *Journal::Open(this->journal());
    Require(journal->NextIncarnation().ok() && journal->PutSite({.name = "lab", .generation = 1}).ok());
    for (const char* worker : {"w0", "w1"}) {
      Require(journal->PutWorker({.name = worker, .site = "lab", .serial = "01", .incarnation = 1}).ok());
    }
    Require(journal
                ->AddJob({.name = "job",
                          .spec = rows[kSpec],
                          .state = v1::JOB_STATE_TRAINING,
                          .layout = rows[kLayout],
                          .train_data = rows[kTrain],
                          .test_data = rows[kTest],
                          .pinned_plan = rows[kPinned],
                          .runtime = rows[kRuntime]})
                .ok());
    Require(journal->PutPlan({.job = "job", .number = 1, .plan = rows[kPlan], .shards = rows[kShards]}).ok());
    Require(journal->PutProfile({.job = "job", .worker = "w0", .profile = rows[kProfile]}).ok());
    Require(journal->CommitRound({.job = "job", .round = -1, .sha256 = model_, .record = rows[kRecord]}).ok());
    Require(journal
                ->AddContribution({.job = "job",
                                   .attempt = 1000001,
                                   .worker = "w0",
                                   .generation = 1,
                                   .incarnation = 1,
                                   .samples = kSamples / 2,
                                   .sha256 = part_sha256_,
                                   .path = part_path_,
                                   .info = rows[kInfo]})
                .ok());
    Require(journal->PutEvaluation({.job = "job", .version = 0, .evaluation = rows[kEvaluation]}).ok());
  }

  // Whether the coordinator starts; what it does at its start is done.
  bool Start() {
    FakeClock clock;
    SerialExecutor executor("fuzz", &clock), io("fuzz-io", &clock);  // Never started.
    const std::unique_ptr<MetricRegistry> registry = MetricRegistry::Create();
    const absl::StatusOr<std::unique_ptr<Coordinator>> coordinator =
        Coordinator::Create({.dir = state(),
                             .data_root = dir_.Join("data"),
                             .advertise = "127.0.0.1:7443",
                             .ca_pem = pki_.ca_pem(),
                             .ca_key_pem = pki_.ca_key_pem(),
                             .fs = files_,
                             .clock = &clock,
                             .executor = &executor,
                             .io = &io,
                             .registry = registry.get()});
    if (coordinator.ok()) {
      const v1::ListJobsResponse jobs = (*coordinator)->ListJobs();
      for (const auto& job : jobs.jobs()) {
        (*coordinator)->GetJob(job.job()).status().IgnoreError();
      }
    }
    return coordinator.ok();
  }

 private:
  void RemoveJournal() {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) files_->Remove(journal() + suffix).IgnoreError();
  }

  const TempDir dir_;
  const TestPki pki_;
  FileSystem* const files_ = RealFileSystem();
  Rows valid_;
  std::string model_, part_sha256_, part_path_;
  std::string database_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static Template* const journal = new Template;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (input.Byte() == 0) {
    std::string bytes = journal->database();
    while (!input.empty()) {
      const size_t high = input.Byte(), middle = input.Byte();
      const size_t at = (high << 16 | middle << 8 | input.Byte()) % bytes.size();
      const absl::string_view patch = input.Piece().substr(0, bytes.size() - at);
      bytes.replace(at, patch.size(), patch.data(), patch.size());
    }
    journal->WriteDatabase(bytes);
    journal->Start();
    return 0;
  }
  Rows rows = journal->valid();
  if (input.empty()) {
    journal->WriteJournal(rows);
    Require(journal->Start());  // Else nothing of what follows would be reached.
    return 0;
  }
  while (!input.empty()) {
    std::string& row = rows[input.Byte() % kRows];
    row = std::string(input.Piece());
  }
  journal->WriteJournal(rows);
  journal->Start();
  return 0;
}
