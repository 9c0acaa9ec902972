#ifndef CAUSEWAY_SERVER_COORDINATOR_TEST_FIXTURE_H_
#define CAUSEWAY_SERVER_COORDINATOR_TEST_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/executor.h"
#include "dataplane/layout.h"
#include "dataplane/model_stream.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "server/bulk_service.h"
#include "server/coordinator.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_link.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::server {

inline constexpr int64_t kTrainSamples = 60;
inline constexpr int64_t kTestSamples = 12;

// A worker's end, driven by the test: what it was told last, and where its bulk links go.
struct ScriptedWorker {
  dataplane::PeerIdentity peer;
  int64_t incarnation = 1;
  int64_t stream = 0;
  v1::Assignment assignment;  // The newest.
  absl::Status closed;        // Of its heartbeat stream.
  bool is_closed = false;
  // Done for this job.
  std::string job;
  bool reported_model = false;
  int64_t data_plan = 0;
  std::set<std::pair<int64_t, int64_t>> pushed;  // (round, attempt)
  std::unique_ptr<FakeLinkDialer> dialer;
};

// A coordinator on a folder of its own, its executors real, its clock not; it can be killed and started again. Small models and datasets.
class CoordinatorTest : public ::testing::Test {
 protected:
  explicit CoordinatorTest(int64_t elements = 6)
      : pki_(dir_.path()),
        layout_(*dataplane::Layout::Create(
            {{"w", dataplane::DataType::kFloat32, {elements}, dataplane::TensorKind::kParameter, 1},
             {"n", dataplane::DataType::kInt64, {}, dataplane::TensorKind::kIntegerBuffer, 1}})) {
    std::filesystem::create_directories(dir_.Join("data"));
    WriteIdx("train", kTrainSamples);
    WriteIdx("test", kTestSamples);
    Start();
  }
  ~CoordinatorTest() override { Kill(); }

  void WriteIdx(const std::string& name, int64_t samples, int64_t labels = -1) {
    const auto big_endian = [](int64_t value) {
      return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                         static_cast<char>(value)};
    };
    std::string images = big_endian(0x0803) + big_endian(samples) + big_endian(4) + big_endian(4);
    std::string label_file = big_endian(0x0801) + big_endian(labels < 0 ? samples : labels);
    for (int64_t i = 0; i < samples * 16; ++i) images.push_back(static_cast<char>(i * 7));
    for (int64_t i = 0; i < (labels < 0 ? samples : labels); ++i) label_file.push_back(static_cast<char>(i % 10));
    std::ofstream(dir_.Join("data/" + name), std::ios::binary) << images;
    std::ofstream(dir_.Join("data/" + name + "-labels"), std::ios::binary) << label_file;
  }

  // On the folder as it is; not started.
  absl::StatusOr<std::unique_ptr<Coordinator>> Open() {
    executor_ = std::make_unique<SerialExecutor>("coordinator", &clock_);
    io_ = std::make_unique<SerialExecutor>("io", &clock_);
    registry_ = MetricRegistry::Create();
    Coordinator::Options options{.dir = dir_.Join("state"),
                                 .data_root = dir_.Join("data"),
                                 .advertise = "127.0.0.1:7443",
                                 .ca_pem = pki_.ca_pem(),
                                 .ca_key_pem = pki_.ca_key_pem(),
                                 .fs = RealFileSystem(),
                                 .clock = &clock_,
                                 .executor = executor_.get(),
                                 .io = io_.get(),
                                 .registry = registry_.get()};
    std::filesystem::create_directories(options.dir);
    return Coordinator::Create(std::move(options));
  }
  void Start() {
    absl::StatusOr<std::unique_ptr<Coordinator>> coordinator = Open();
    ASSERT_OK(coordinator);
    coordinator_ = *std::move(coordinator);
    bulk_ = std::make_unique<BulkService>(coordinator_.get(), executor_.get());
    executor_->Start();
    io_->Start();
    coordinator_->Start();
    for (auto& [name, worker] : workers_) {
      worker.dialer = std::make_unique<FakeLinkDialer>(bulk_.get(), &clock_, worker.peer);
      worker.assignment.Clear();
      worker.stream = 0;
      worker.reported_model = false;  // A worker tells a new coordinator what it has.
      worker.data_plan = 0;
    }
    Drain();
  }
  // As kill -9 does, but for the threads.
  void Kill() {
    for (auto& [name, worker] : workers_) worker.dialer.reset();
    if (io_ != nullptr) io_->Stop();
    if (executor_ != nullptr) executor_->Stop();
    bulk_.reset();
    coordinator_.reset();
  }

  // Runs on the coordinator's executor; the answer when it has run.
  template <typename F>
  auto On(F f) -> decltype(f()) {
    using R = decltype(f());
    std::optional<R> result;
    Completion<bool> done;
    executor_->Add([&] {
      result.emplace(f());
      done.Set(true);
    });
    EXPECT_OK(done.Await(RealClock(), RealClock()->Now() + absl::Seconds(30), "the executor"));
    return *std::move(result);
  }
  // Until what was begun is over on both executors.
  void Drain() {
    for (int i = 0; i < 4; ++i) {
      On([] { return true; });
      Completion<bool> done;
      io_->Add([done]() mutable { done.Set(true); });
      EXPECT_OK(done.Await(RealClock(), RealClock()->Now() + absl::Seconds(30), "io"));
    }
    On([] { return true; });
  }
  void Pass(absl::Duration duration) {
    clock_.Advance(duration);
    Drain();
  }

  std::string AddSite(const std::string& site, int uses = 0, const std::string& request_id = "") {
    v1::AddSiteRequest request;
    request.set_site(site);
    request.set_token_uses(uses);
    request.set_request_id(request_id);
    auto response = On([&] { return coordinator_->AddSite(request); });
    EXPECT_OK(response);
    return response.ok() ? response->token() : "";
  }
  absl::StatusOr<v1::JoinResponse> JoinOnly(const std::string& token, const std::string& name) {
    return JoinWithKey(token, name, *dataplane::GenerateKeyPem());
  }
  absl::StatusOr<v1::JoinResponse> JoinWithKey(const std::string& token, const std::string& name,
                                               const std::string& key_pem) {
    v1::JoinRequest request;
    *request.mutable_version() = dataplane::OurVersion();
    request.set_token(token);
    request.set_worker_name(name);
    request.set_csr_pem(*dataplane::CreateCsr(key_pem));
    return On([&] { return coordinator_->Join(request); });
  }
  ScriptedWorker& Join(const std::string& token, const std::string& name) {
    ScriptedWorker& worker = workers_[name];
    auto joined = JoinOnly(token, name);
    EXPECT_OK(joined);
    worker.peer = *dataplane::ParseCertificate(joined->certificate_pem());
    worker.dialer = std::make_unique<FakeLinkDialer>(bulk_.get(), &clock_, worker.peer);
    return worker;
  }
  absl::StatusOr<v1::RegisterResponse> Register(ScriptedWorker& worker) {
    v1::RegisterRequest request;
    *request.mutable_version() = dataplane::OurVersion();
    request.set_incarnation(worker.incarnation);
    return On([&] { return coordinator_->Register(worker.peer, request, "127.0.0.1:1"); });
  }
  // Registers and opens the heartbeat stream.
  void Connect(ScriptedWorker& worker) {
    ASSERT_OK(Register(worker));
    auto stream = On([&] {
      return coordinator_->OpenHeartbeat(worker.peer, Incarnation(worker.incarnation),
                                         {.send =
                                              [&worker](const v1::HeartbeatResponse& response) {
                                                if (response.has_assignment())
                                                  worker.assignment = response.assignment();
                                              },
                                          .close =
                                              [&worker](const absl::Status& status) {
                                                worker.closed = status;
                                                worker.is_closed = true;
                                              }});
    });
    ASSERT_OK(stream);
    worker.stream = *stream;
  }
  absl::Status Beat(ScriptedWorker& worker) {
    v1::HeartbeatRequest request;
    request.set_incarnation(worker.incarnation);
    return On([&] { return coordinator_->Heartbeat(worker.stream, request); });
  }
  void Fleet(int n) {
    const std::string token = AddSite("lab");
    for (int i = 0; i < n; ++i) {
      Join(token, absl::StrCat("w", i));
      Connect(workers_.at(absl::StrCat("w", i)));
    }
  }
  ScriptedWorker& worker(const std::string& name) { return workers_.at(name); }

  static std::string Yaml(const std::string& name, const std::string& more = "end: {rounds: 3}\n") {
    return absl::StrCat("name: ", name,
                        "\nmodel: {builtin: mlp}\ndata:\n  train: {format: idx, images: train, labels: train-labels}\n",
                        "  test: {format: idx, images: test, labels: test-labels}\nbatch: {per_worker: 4}\n", more);
  }
  absl::StatusOr<v1::SubmitJobResponse> SubmitRequest(const v1::SubmitJobRequest& request) {
    Completion<v1::SubmitJobResponse> done;
    executor_->Add([this, request, done] {
      coordinator_->SubmitJob(
          request, [done](absl::StatusOr<v1::SubmitJobResponse> response) mutable { done.Set(std::move(response)); });
    });
    auto response = done.Await(RealClock(), RealClock()->Now() + absl::Seconds(30), "submission");
    Drain();
    return response;
  }
  absl::StatusOr<v1::SubmitJobResponse> Submit(const std::string& yaml, const std::string& request_id = "") {
    v1::SubmitJobRequest request;
    request.set_yaml(yaml);
    request.set_request_id(request_id);
    return SubmitRequest(request);
  }
  v1::GetJobResponse Job(const std::string& name = "job") {
    auto job = On([&] { return coordinator_->GetJob(name); });
    EXPECT_OK(job);
    return job.value_or(v1::GetJobResponse());
  }

  v1::Fence Fence(const ScriptedWorker& worker, int64_t round) {
    v1::Fence fence;
    fence.set_job(worker.assignment.job());
    fence.set_round(round);
    fence.set_incarnation(worker.incarnation);
    return fence;
  }
  std::vector<uint8_t> Model(float first, int64_t n) {
    std::vector<uint8_t> bytes(layout_.total_bytes());
    for (int64_t i = 0; i < layout_.tensors()[0].num_elements(); ++i) {
      const float value = first + 0.001f * static_cast<float>(i % 1000);
      std::memcpy(bytes.data() + i * 4, &value, 4);
    }
    std::memcpy(bytes.data() + layout_.byte_offset(1), &n, 8);
    return bytes;
  }
  dataplane::TransferOptions Transfer(ScriptedWorker& worker) {
    return {.dialer = worker.dialer.get(),
            .clock = &clock_,
            .max_attempts = 4,
            .backoff = {.initial = absl::ZeroDuration()}};
  }
  // As the assignment asks.
  v1::PushRequest PushFor(ScriptedWorker& worker) {
    const v1::TrainTask& train = worker.assignment.train();
    v1::PushRequest request;
    *request.mutable_fence() = Fence(worker, train.round());
    request.set_attempt(train.attempt());
    request.set_layout_sha256(layout_.hash());
    request.set_parts(1);
    request.add_elements()->set_end(layout_.total_elements());
    request.set_samples(train.planned_samples());
    request.set_train_loss(2);
    return request;
  }
  // What this worker makes of the round, the same every time.
  std::vector<uint8_t> Trained(const ScriptedWorker& worker, int64_t round) {
    return Model(0.1f * static_cast<float>(round + 1) + 0.03f * static_cast<float>(worker.peer.name.back() - '0'),
                 round * 10 + worker.peer.name.back());
  }
  absl::StatusOr<v1::PushResult> Push(ScriptedWorker& worker, const v1::PushRequest& request,
                                      const std::vector<uint8_t>& bytes) {
    auto result = dataplane::PushPart(Transfer(worker), request, bytes);
    Drain();
    return result;
  }

  // Does one thing that the assignment asks for; false: there is nothing to do.
  bool Work(ScriptedWorker& worker) {
    const v1::Assignment a = worker.assignment;
    if (a.job() != worker.job) {
      worker.job = a.job();
      worker.reported_model = false;
      worker.data_plan = 0;
      worker.pushed.clear();
    }
    if (a.job().empty()) return false;
    if (a.has_prepare() && !worker.reported_model) {
      worker.reported_model = true;
      v1::ReportModelRequest request;
      *request.mutable_fence() = Fence(worker, -1);
      *request.mutable_layout() = layout_.ToProto();
      request.set_layout_sha256(layout_.hash());
      EXPECT_OK(On([&] { return coordinator_->ReportModel(worker.peer, request); }));
    } else if (a.prepare().upload_initial()) {
      v1::PushRequest request = PushFor(worker);
      *request.mutable_fence() = Fence(worker, -1);
      request.set_initial(true);
      auto result = Push(worker, request, Model(0, 0));
      EXPECT_OK(result);
    } else if (a.has_profile()) {
      v1::ReportProfileRequest request;
      *request.mutable_fence() = Fence(worker, -1);
      request.set_attempt(a.profile().attempt());
      for (int64_t size : a.profile().batch_sizes()) {
        auto* time = request.mutable_profile()->add_batch_times();
        time->set_batch_size(size);
        time->set_batch_time_s(0.001 + 1e-4 * static_cast<double>(size));
      }
      request.mutable_profile()->set_max_parallel(64);
      request.mutable_profile()->set_down_bytes_per_s(1e8);
      request.mutable_profile()->set_up_bytes_per_s(1e8);
      request.mutable_profile()->set_eval_samples_per_s(1000);
      EXPECT_OK(On([&] { return coordinator_->ReportProfile(worker.peer, request); }));
    } else if (a.has_evaluate()) {
      v1::ReportEvaluationRequest request;
      *request.mutable_fence() = Fence(worker, -1);
      request.set_version(a.evaluate().version());
      request.set_attempt(a.evaluate().attempt());
      for (const auto& range : a.evaluate().ranges()) request.set_total(request.total() + range.end() - range.begin());
      request.set_correct(request.total() / 2);
      EXPECT_OK(On([&] { return coordinator_->ReportEvaluation(worker.peer, request); }));
    } else if (a.has_shard() && a.shard().plan() > worker.data_plan) {
      worker.data_plan = a.shard().plan();
      v1::ReportDataRequest request;
      *request.mutable_fence() = Fence(worker, -1);
      request.set_plan(a.shard().plan());
      EXPECT_OK(On([&] { return coordinator_->ReportData(worker.peer, request); }));
    } else if (a.has_train() && worker.pushed.insert({a.train().round(), a.train().attempt()}).second) {
      auto result = Push(worker, PushFor(worker), Trained(worker, a.train().round()));
      EXPECT_OK(result);
      if (result.ok()) {
        EXPECT_EQ(result->outcome(), v1::PushResult::OUTCOME_COUNTED) << result->reason();
      }
    } else {
      return false;
    }
    Drain();
    return true;
  }
  void Run(const std::function<bool()>& done = [] { return false; }) {
    for (int i = 0; i < 1000; ++i) {
      bool worked = false;
      for (auto& [name, worker] : workers_) {
        if (done()) return;
        worked |= Work(worker);
      }
      if (!worked) return;
    }
    FAIL() << "no end";
  }
  // Until every worker is about to train in `round`, its evaluation done.
  void RunUntilTraining(int64_t round) {
    Run([&] {
      for (auto& [name, worker] : workers_) {
        if (worker.assignment.train().round() != round || !worker.assignment.has_train()) return false;
      }
      return true;
    });
    for (auto& [name, worker] : workers_) {
      ASSERT_TRUE(worker.assignment.has_train()) << name;
      ASSERT_EQ(worker.assignment.train().round(), round) << name;
      if (worker.assignment.has_evaluate()) Work(worker);
    }
  }
  std::vector<uint8_t> FinalModel(ScriptedWorker& worker, const std::string& job = "job") {
    auto pulled = dataplane::PullModel(Transfer(worker), job, -1, 1 << 20);
    EXPECT_OK(pulled);
    return pulled.ok() ? pulled->bytes : std::vector<uint8_t>();
  }

  TempDir dir_;
  const TestPki pki_;
  const dataplane::Layout layout_;
  FakeClock clock_;
  std::unique_ptr<MetricRegistry> registry_;
  std::unique_ptr<SerialExecutor> executor_;
  std::unique_ptr<SerialExecutor> io_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<BulkService> bulk_;
  std::map<std::string, ScriptedWorker> workers_;
};

}  // namespace causeway::server

#endif  // CAUSEWAY_SERVER_COORDINATOR_TEST_FIXTURE_H_
