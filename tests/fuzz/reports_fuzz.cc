// What a member of a job may tell its coordinator, from one that does as it is told to one that makes everything up. Input: a byte for the
// phase that the job is in, then steps: which one, then what is changed of the message that would be right (see Twist). Whatever it says, the
// coordinator goes on, what it has admitted it takes up again after a crash, and once that member is removed the other one finishes the job.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/executor.h"
#include "base/metrics.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "dataplane/protocol_version.h"
#include "server/bulk_service.h"
#include "server/coordinator.h"
#include "server/journal.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/fault_vfs.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fuzz/fuzz_log.h"
#include "tests/fuzz/fuzz_require.h"

namespace {

using namespace causeway;          // NOLINT
using namespace causeway::server;  // NOLINT

constexpr char kDir[] = "/state";
constexpr char kJob[] = "job";
constexpr int64_t kTrainSamples = 12;
constexpr int64_t kTestSamples = 4;

// Both executors of a coordinator, on the caller's thread: what is added runs at once, or after what is running.
class Loop {
 public:
  explicit Loop(FakeClock* clock) : clock_(clock) {}

  class End : public Executor {
   public:
    explicit End(Loop* loop) : loop_(loop) {}
    void Start() override {}
    void Stop() override {}
    void Add(Task task) override {
      loop_->ready_.push_back(std::move(task));
      loop_->Drain();
    }
    TimerId AddAt(absl::Time when, Task task) override {
      loop_->timers_.emplace(when, std::move(task));
      return 0;
    }
    void Cancel(TimerId /*id*/) override {}

   private:
    Loop* const loop_;
  };

  void Start() {
    busy_ = false;
    Drain();
  }
  void Pass(absl::Duration duration) {
    const absl::Time end = clock_->Now() + duration;
    while (!timers_.empty() && timers_.begin()->first <= end) {
      clock_->Advance(std::max(absl::ZeroDuration(), timers_.begin()->first - clock_->Now()));
      ready_.push_back(std::move(timers_.begin()->second));
      timers_.erase(timers_.begin());
      Drain();
    }
    clock_->Advance(std::max(absl::ZeroDuration(), end - clock_->Now()));
  }

 private:
  void Drain() {
    if (busy_) return;
    busy_ = true;
    while (!ready_.empty()) {
      Executor::Task task = std::move(ready_.front());
      ready_.pop_front();
      std::move(task)();
    }
    busy_ = false;
  }

  FakeClock* const clock_;
  bool busy_ = true;  // Until Start.
  std::deque<Executor::Task> ready_;
  std::multimap<absl::Time, Executor::Task> timers_;
};

// One push: the request, then the part from where the coordinator says.
class PushLink : public dataplane::Link {
 public:
  PushLink(const v1::PushRequest& request, std::string part) : part_(std::move(part)) {
    *next_.emplace().mutable_push_request() = request;
  }
  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> /*payload*/, absl::Time /*deadline*/) override {
    if (frame.has_push_result()) result = frame.push_result();
    if (!frame.has_push_response()) return absl::OkStatus();
    const int64_t offset = frame.push_response().resume_offset();
    if (offset >= static_cast<int64_t>(part_.size())) return absl::OkStatus();
    v1::Frame& data = next_.emplace();
    data.set_payload(part_.substr(offset));
    data.mutable_data()->set_offset(offset);
    data.mutable_data()->set_total_bytes(static_cast<int64_t>(part_.size()));
    data.mutable_data()->set_xxh3(dataplane::Xxh3(dataplane::AsBytes(data.payload())));
    return absl::OkStatus();
  }
  absl::StatusOr<v1::Frame> Read(absl::Time /*deadline*/) override {
    if (!next_.has_value()) return absl::OutOfRangeError("the end");
    return *std::exchange(next_, std::nullopt);
  }
  absl::Status CloseWrite() override { return absl::OkStatus(); }
  absl::Status Finish(absl::Time /*deadline*/) override { return absl::OkStatus(); }
  void Cancel(absl::string_view /*reason*/) override {}

  std::optional<v1::PushResult> result;

 private:
  const std::string part_;
  std::optional<v1::Frame> next_;
};

struct Member {
  dataplane::PeerIdentity peer;
  int64_t incarnation = 1;
  int64_t stream = 0;
  bool cut = true;  // Its heartbeat stream.
  v1::Assignment assignment;
  bool reported_model = false;
  int64_t profiled = 0;  // Attempt.
  int64_t data_plan = 0;
  std::pair<int64_t, int64_t> pushed;  // Round, attempt.
  int64_t evaluated = 0;               // Attempt.
};

// Phases of the job that the input begins in.
enum Phase { kPreparing, kProfiling, kDistributing, kTraining, kPhases };

// A coordinator with one job and its two members, on a disk in memory.
class Fleet {
 public:
  // Names in `data` are looked up on the real disk as well; what is in the files comes from the one in memory.
  Fleet(FaultVfs* vfs, std::string data, std::unique_ptr<FaultDisk> disk)
      : vfs_(vfs),
        data_(std::move(data)),
        disk_(std::move(disk)),
        layout_(*dataplane::Layout::Create(
            {{"w", dataplane::DataType::kFloat32, {3}, dataplane::TensorKind::kParameter, 1},
             {"n", dataplane::DataType::kInt64, {}, dataplane::TensorKind::kIntegerBuffer, 1}})) {
    for (Member* member : {&hostile_, &honest_}) {
      member->peer.role = dataplane::PeerIdentity::Role::kWorker;
      member->peer.name = member == &hostile_ ? "w0" : "w1";
      member->peer.site = "lab";
      member->peer.serial = "01";
    }
  }
  ~Fleet() { Stop(); }

  Member* hostile() { return &hostile_; }
  Member* honest() { return &honest_; }
  Coordinator* coordinator() { return coordinator_.get(); }

  // An empty disk becomes that of a coordinator with two workers that has the job.
  void Make() {
    Require(disk_->MakeDirs(kDir, 0755).ok() && disk_->MakeDirs(data_, 0755).ok());
    vfs_->Mount(kDir, disk_.get());
    for (const auto& [name, samples] : {std::pair("train", kTrainSamples), std::pair("test", kTestSamples)}) {
      std::string images{0, 0, 8, 3, 0, 0, 0, static_cast<char>(samples), 0, 0, 0, 2, 0, 0, 0, 2};
      std::string labels{0, 0, 8, 1, 0, 0, 0, static_cast<char>(samples)};
      for (int64_t i = 0; i < samples; ++i) {
        images += std::string(4, static_cast<char>(i));
        labels.push_back(static_cast<char>(i % 2));
      }
      Require(disk_->WriteFileAtomically(absl::StrCat(data_, "/", name), images, 0644).ok());
      Require(disk_->WriteFileAtomically(absl::StrCat(data_, "/", name, "-labels"), labels, 0644).ok());
    }
    {
      const std::unique_ptr<Journal> journal = *Journal::Open(absl::StrCat(kDir, "/journal.db"));
      Require(journal->PutSite({.name = "lab", .generation = 1}).ok());
      for (const char* worker : {"w0", "w1"})
        Require(journal->PutWorker({.name = worker, .site = "lab", .serial = "01"}).ok());
    }
    Start();
    v1::SubmitJobRequest request;
    request.set_yaml(
        "name: job\nmodel: {builtin: mlp, classes: 2}\nbatch: {per_worker: 2}\nend: {rounds: 2}\ndata:\n"
        "  train: {format: idx, images: train, labels: train-labels}\n"
        "  test: {format: idx, images: test, labels: test-labels}\n");
    bool submitted = false;
    coordinator_->SubmitJob(request, [&](const auto& response) { submitted = response.ok(); });
    Require(submitted);
  }

  void Start() {
    vfs_->Mount(kDir, disk_.get());
    loop_ = std::make_unique<Loop>(&clock_);
    executor_ = std::make_unique<Loop::End>(loop_.get());
    registry_ = MetricRegistry::Create();
    absl::StatusOr<std::unique_ptr<Coordinator>> coordinator = Coordinator::Create({.dir = kDir,
                                                                                    .data_root = data_,
                                                                                    .advertise = "127.0.0.1:7443",
                                                                                    .fs = disk_.get(),
                                                                                    .clock = &clock_,
                                                                                    .executor = executor_.get(),
                                                                                    .io = executor_.get(),
                                                                                    .registry = registry_.get()});
    if (!coordinator.ok()) fprintf(stderr, "no coordinator starts: %s\n", coordinator.status().ToString().c_str());
    Require(coordinator.ok());
    coordinator_ = *std::move(coordinator);
    bulk_ = std::make_unique<BulkService>(coordinator_.get(), executor_.get());
    loop_->Start();
    coordinator_->Start();
    for (Member* member : {&hostile_, &honest_}) {
      member->cut = true;
      member->reported_model = false;
      member->profiled = member->data_plan = member->evaluated = 0;  // A worker tells a new coordinator what it has.
      member->pushed = {};
      member->assignment.Clear();
    }
  }
  void Stop() {
    loop_.reset();  // What waits is not done any more.
    bulk_.reset();
    coordinator_.reset();
    vfs_->Mount(kDir, nullptr);
  }
  // The power goes; then the next process on what was on the disk for good.
  void Crash() {
    loop_.reset();
    bulk_.reset();
    std::unique_ptr<FaultDisk> left = disk_->Durable();
    coordinator_.reset();
    vfs_->Mount(kDir, nullptr);
    disk_ = std::move(left);
    Start();
  }
  // A copy for the next input.
  std::unique_ptr<FaultDisk> Disk() const { return disk_->Durable(); }

  // ---- As the RPCs come in
  template <typename F>
  void On(F f) {
    executor_->Add([&f] { f(); });
  }
  bool Register(Member* member, const v1::RegisterRequest& request) {
    bool ok = false;
    On([&] { ok = coordinator_->Register(member->peer, request, "127.0.0.1:1").ok(); });
    return ok;
  }
  bool OpenHeartbeat(Member* member, int64_t incarnation) {
    bool ok = false;
    On([&] {
      const absl::StatusOr<int64_t> stream =
          coordinator_->OpenHeartbeat(member->peer, Incarnation(incarnation),
                                      {.send =
                                           [member](const v1::HeartbeatResponse& response) {
                                             if (response.has_assignment()) member->assignment = response.assignment();
                                           },
                                       .close = [member](const absl::Status&) { member->cut = true; }});
      ok = stream.ok();
      if (!ok) return;
      member->stream = *stream;
      member->cut = false;
    });
    return ok;
  }
  void Connect(Member* member) {
    Require(Register(member, RightRegister(*member)) && OpenHeartbeat(member, member->incarnation));
  }
  absl::Status Beat(Member* member, const v1::HeartbeatRequest& request) {
    absl::Status status;
    On([&] { status = coordinator_->Heartbeat(member->stream, request); });
    return status;
  }
  std::optional<v1::PushResult> Push(const Member& member, const v1::PushRequest& request, const std::string& part) {
    PushLink link(request, part);
    bulk_->Serve(dataplane::LinkKind::kPush, member.peer, &link).IgnoreError();
    return link.result;
  }
  template <typename Request>
  absl::Status Report(absl::Status (Coordinator::*method)(const dataplane::PeerIdentity&, const Request&),
                      const Member& member, const Request& request) {
    absl::Status status;
    On([&] { status = (coordinator_.get()->*method)(member.peer, request); });
    return status;
  }
  void Pass(absl::Duration duration) {
    for (; duration > absl::ZeroDuration(); duration -= absl::Seconds(1)) {
      loop_->Pass(std::min(duration, absl::Seconds(1)));
      v1::HeartbeatRequest request;
      request.set_incarnation(honest_.incarnation);
      Require(Beat(&honest_, request).ok());
    }
  }

  // ---- What would be right to say
  v1::Fence RightFence(const Member& member, int64_t round = -1) const {
    v1::Fence fence;
    fence.set_job(kJob);
    fence.set_round(round);
    fence.set_incarnation(member.incarnation);
    return fence;
  }
  v1::RegisterRequest RightRegister(const Member& member) const {
    v1::RegisterRequest request;
    *request.mutable_version() = dataplane::OurVersion();
    request.set_incarnation(member.incarnation);
    request.set_process(7);
    return request;
  }
  v1::ReportModelRequest RightModel(const Member& member) const {
    v1::ReportModelRequest request;
    *request.mutable_fence() = RightFence(member);
    *request.mutable_layout() = layout_.ToProto();
    request.set_layout_sha256(layout_.hash());
    return request;
  }
  v1::ReportProfileRequest RightProfile(const Member& member) const {
    v1::ReportProfileRequest request;
    *request.mutable_fence() = RightFence(member);
    request.set_attempt(member.assignment.profile().attempt());
    for (int64_t size : {1, 2, 4}) {
      auto* time = request.mutable_profile()->add_batch_times();
      time->set_batch_size(size);
      time->set_batch_time_s(0.001 + 1e-4 * static_cast<double>(size));
    }
    request.mutable_profile()->set_max_parallel(64);
    request.mutable_profile()->set_down_bytes_per_s(1e8);
    request.mutable_profile()->set_up_bytes_per_s(1e8);
    request.mutable_profile()->set_eval_samples_per_s(1000);
    return request;
  }
  v1::ReportDataRequest RightData(const Member& member) const {
    v1::ReportDataRequest request;
    *request.mutable_fence() = RightFence(member);
    request.set_plan(member.assignment.shard().plan());
    return request;
  }
  v1::ReportEvaluationRequest RightEvaluation(const Member& member) const {
    v1::ReportEvaluationRequest request;
    *request.mutable_fence() = RightFence(member);
    const v1::EvaluateTask& task = member.assignment.evaluate();
    request.set_version(task.version());
    request.set_attempt(task.attempt());
    for (const auto& range : task.ranges()) request.set_total(request.total() + range.end() - range.begin());
    request.set_correct(request.total() / 2);
    request.set_loss_sum(1);
    return request;
  }
  v1::PushRequest RightPush(const Member& member, const std::string& part) const {
    const v1::TrainTask& train = member.assignment.train();
    v1::PushRequest request;
    request.set_initial(member.assignment.prepare().upload_initial());
    *request.mutable_fence() = RightFence(member, request.initial() ? -1 : train.round());
    request.set_attempt(train.attempt());
    request.set_layout_sha256(layout_.hash());
    request.set_parts(1);
    request.add_elements()->set_end(layout_.total_elements());
    request.set_samples(train.planned_samples());
    request.set_total_bytes(static_cast<int64_t>(part.size()));
    request.set_sha256(dataplane::Sha256Of(part));
    request.set_train_loss(2);
    request.set_compute_s(1);
    return request;
  }
  std::string Part(float value) const {
    std::string part(layout_.total_bytes(), '\0');
    for (int i = 0; i < 3; ++i) std::memcpy(part.data() + 4 * i, &value, sizeof(value));
    return part;
  }

  // Does one thing that a member is asked for; false: there is none. With `must` the coordinator takes it.
  bool Work(Member* member, bool must) {
    const v1::Assignment a = member->assignment;
    if (a.job().empty()) return false;
    absl::Status status;
    if (a.has_prepare() && !std::exchange(member->reported_model, true)) {
      status = Report(&Coordinator::ReportModel, *member, RightModel(*member));
    } else if (a.prepare().upload_initial()) {
      const std::string part = Part(1);
      const std::optional<v1::PushResult> result = Push(*member, RightPush(*member, part), part);
      Require(!must || (result.has_value() && result->outcome() == v1::PushResult::OUTCOME_COUNTED));
      if (!must) return false;  // It may be asked for in vain.
    } else if (a.has_profile() && std::exchange(member->profiled, a.profile().attempt()) != a.profile().attempt()) {
      status = Report(&Coordinator::ReportProfile, *member, RightProfile(*member));
    } else if (a.has_evaluate() && std::exchange(member->evaluated, a.evaluate().attempt()) != a.evaluate().attempt()) {
      status = Report(&Coordinator::ReportEvaluation, *member, RightEvaluation(*member));
    } else if (a.has_shard() && a.shard().plan() > member->data_plan) {
      member->data_plan = a.shard().plan();
      status = Report(&Coordinator::ReportData, *member, RightData(*member));
    } else if (const std::pair<int64_t, int64_t> turn(a.train().round(), a.train().attempt());
               a.has_train() && std::exchange(member->pushed, turn) != turn) {
      const std::string part = Part(1.5f);
      const std::optional<v1::PushResult> result = Push(*member, RightPush(*member, part), part);
      Require(!must || (result.has_value() && result->outcome() == v1::PushResult::OUTCOME_COUNTED));
    } else {
      return false;
    }
    Require(!must || status.ok());
    return true;
  }

  // Until the job is in `phase`, which the hostile member has not yet done its part of.
  void Reach(Phase phase) {
    for (Member* member : {&honest_, &hostile_}) Connect(member);
    const auto reached = [&] {
      const v1::Assignment& a = hostile_.assignment;
      switch (phase) {
        case kPreparing: return true;
        case kProfiling: return a.has_profile();
        case kDistributing: return a.has_shard();
        default: return a.has_train();
      }
    };
    for (int i = 0; i < 100 && !reached(); ++i) {
      if (!Work(&honest_, true)) Work(&hostile_, true);
    }
    Require(reached());
  }

  v1::GetJobResponse Job() {
    v1::GetJobResponse job;
    On([&] { job = *coordinator_->GetJob(kJob); });
    return job;
  }
  // With the hostile member gone.
  void FinishAlone() {
    Connect(&honest_);
    absl::Status removed;
    On([&] { removed = coordinator_->RemoveWorker(hostile_.peer.name); });
    Require(removed.ok());
    for (int i = 0; i < 1000; ++i) {
      const v1::JobState state = Job().summary().state();
      if (state == v1::JOB_STATE_FINISHED || state == v1::JOB_STATE_FAILED) break;
      if (!Work(&honest_, true)) Pass(absl::Seconds(1));
    }
    const v1::JobSummary summary = Job().summary();
    // A member whose contributions are refused, or weigh nothing, time and again may bring its job down.
    if (summary.state() == v1::JOB_STATE_FAILED && (absl::StrContains(summary.reason(), "times in a row") ||
                                                    absl::StrContains(summary.reason(), "quorum not reached"))) {
      return;
    }
    if (summary.state() != v1::JOB_STATE_FINISHED)
      fprintf(stderr, "the job is not finished: %s\n", summary.ShortDebugString().c_str());
    Require(summary.state() == v1::JOB_STATE_FINISHED);
    const absl::StatusOr<Coordinator::PullTicket> pull = coordinator_->BeginPull([] {
      v1::PullRequest request;
      request.set_job(kJob);
      request.set_version(-1);
      return request;
    }());
    Require(pull.ok());
    const auto model = pull->store->OpenVersion(pull->version);
    Require(model.ok());
    float values[3];
    Require((*model)
                ->Read(0, absl::MakeSpan(reinterpret_cast<uint8_t*>(values), static_cast<size_t>(sizeof(values))))
                .ok());
    for (float value : values) Require(std::isfinite(value));
  }

 private:
  FaultVfs* const vfs_;
  const std::string data_;
  std::unique_ptr<FaultDisk> disk_;
  const dataplane::Layout layout_;
  FakeClock clock_;
  Member hostile_, honest_;
  std::unique_ptr<MetricRegistry> registry_;
  std::unique_ptr<Loop> loop_;
  std::unique_ptr<Loop::End> executor_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<BulkService> bulk_;
};

// Puts something into one field of a message: bytes of the input say which one and what, by their place in lists.
void TwistField(FuzzInput* input, google::protobuf::Message* message, int depth) {
  using google::protobuf::FieldDescriptor;
  const auto* descriptor = message->GetDescriptor();
  const auto* reflection = message->GetReflection();
  if (descriptor->field_count() == 0 || depth > 4) return;
  const FieldDescriptor* field = descriptor->field(static_cast<int>(input->Byte() % descriptor->field_count()));
  const unsigned what = input->Byte();
  if (field->is_repeated() && what % 8 == 7) return reflection->ClearField(message, field);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    if (!field->is_repeated()) return TwistField(input, reflection->MutableMessage(message, field), depth + 1);
    const int size = reflection->FieldSize(*message, field);
    const bool add = size == 0 || what % 8 == 6;
    return TwistField(input,
                      add ? reflection->AddMessage(message, field)
                          : reflection->MutableRepeatedMessage(message, field, static_cast<int>(what) % size),
                      depth + 1);
  }
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const int64_t integers[] = {0,
                              1,
                              -1,
                              2,
                              3,
                              1'000'000,
                              int64_t{1} << 20,
                              1 << 20 | 1,
                              100'000,
                              kMost,
                              -kMost,
                              -kMost - 1,
                              1000001,
                              2000001,
                              4,
                              int64_t{1} << 31,
                              int64_t{1} << 46,
                              kMost - 1,
                              (int64_t{1} << 46) + 1};
  const double doubles[] = {
      0, -1, 1, kInfinity, -kInfinity, std::nan(""), 5e-324, 1e-300, 1e-18, 1e18, 1e300, 1.7976931348623157e308, 0.001};
  const int64_t integer = integers[what % (sizeof(integers) / sizeof(integers[0]))];
  const double real = doubles[what % (sizeof(doubles) / sizeof(doubles[0]))];
  std::string text;
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    text = what == 0 ? std::string(kJob) : std::string(input->Piece());
  }
  const auto put = [&](auto set, auto add, auto value) {
    if (field->is_repeated()) {
      (reflection->*add)(message, field, value);
    } else {
      (reflection->*set)(message, field, value);
    }
  };
  using R = google::protobuf::Reflection;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return put(&R::SetInt32, &R::AddInt32, static_cast<int32_t>(integer));
    case FieldDescriptor::CPPTYPE_INT64: return put(&R::SetInt64, &R::AddInt64, integer);
    case FieldDescriptor::CPPTYPE_UINT32: return put(&R::SetUInt32, &R::AddUInt32, static_cast<uint32_t>(integer));
    case FieldDescriptor::CPPTYPE_UINT64: return put(&R::SetUInt64, &R::AddUInt64, static_cast<uint64_t>(integer));
    case FieldDescriptor::CPPTYPE_DOUBLE: return put(&R::SetDouble, &R::AddDouble, real);
    case FieldDescriptor::CPPTYPE_BOOL: return put(&R::SetBool, &R::AddBool, what % 2 == 1);
    case FieldDescriptor::CPPTYPE_ENUM: return put(&R::SetEnumValue, &R::AddEnumValue, static_cast<int>(integer));
    case FieldDescriptor::CPPTYPE_STRING: return put(&R::SetString, &R::AddString, text);
    default: return;
  }
}

// How many fields are twisted; 7: all of the message is the input's, but for the fence.
template <typename Message>
Message Twist(FuzzInput* input, Message message) {
  const unsigned how = input->Byte() % 8;
  if (how == 7) {
    Message made_up;
    if (made_up.ParseFromString(std::string(input->Piece()))) message.MergeFrom(made_up);
    return message;
  }
  for (unsigned i = 0; i < how; ++i) TwistField(input, &message, 0);
  return message;
}

void HostileStep(FuzzInput* input, Fleet* fleet) {
  Member* hostile = fleet->hostile();
  switch (input->Byte() % 16) {
    case 0: {
      const v1::RegisterRequest request = Twist(input, fleet->RightRegister(*hostile));
      if (fleet->Register(hostile, request)) hostile->incarnation = request.incarnation();
      return;
    }
    case 1: fleet->OpenHeartbeat(hostile, hostile->incarnation); return;
    case 2: {
      v1::HeartbeatRequest request;
      request.set_incarnation(hostile->incarnation);
      request.mutable_progress()->set_job(kJob);
      fleet->Beat(hostile, Twist(input, request)).IgnoreError();
      return;
    }
    case 3: {
      v1::ReportModelRequest request = Twist(input, fleet->RightModel(*hostile));
      const absl::StatusOr<dataplane::Layout> layout = dataplane::Layout::FromProto(request.layout());
      if (layout.ok() && request.layout_sha256() == fleet->RightModel(*hostile).layout_sha256())
        request.set_layout_sha256(layout->hash());
      fleet->Report(&Coordinator::ReportModel, *hostile, request).IgnoreError();
      return;
    }
    case 4:
      fleet->Report(&Coordinator::ReportProfile, *hostile, Twist(input, fleet->RightProfile(*hostile))).IgnoreError();
      return;
    case 5:
      fleet->Report(&Coordinator::ReportData, *hostile, Twist(input, fleet->RightData(*hostile))).IgnoreError();
      return;
    case 6:
      fleet->Report(&Coordinator::ReportEvaluation, *hostile, Twist(input, fleet->RightEvaluation(*hostile)))
          .IgnoreError();
      return;
    case 7: {
      v1::ReportFailureRequest request;
      *request.mutable_fence() = fleet->RightFence(*hostile);
      request.set_task("train");
      fleet->Report(&Coordinator::ReportFailure, *hostile, Twist(input, request)).IgnoreError();
      return;
    }
    case 8: {
      v1::LeaveRequest request;
      request.set_incarnation(hostile->incarnation);
      fleet->Report(&Coordinator::Leave, *hostile, Twist(input, request)).IgnoreError();
      return;
    }
    case 9:
    case 10: {
      const float values[] = {1, 1.25f, -1e30f, 3e38f, std::nanf(""), 5};
      std::string part = fleet->Part(values[input->Byte() % 6]);
      const v1::PushRequest request = Twist(input, fleet->RightPush(*hostile, part));
      if (const unsigned cut = input->Byte() % 8; cut > 5) part.resize(part.size() / (cut - 4));
      fleet->Push(*hostile, request, part);
      return;
    }
    case 11: fleet->Pass(absl::Milliseconds(200 * input->Byte())); return;
    case 12: fleet->Work(fleet->honest(), false); return;
    case 13: fleet->Work(hostile, false); return;
    case 14: {
      fleet->On([&] { fleet->coordinator()->HeartbeatClosed(hostile->stream); });
      hostile->cut = true;
      return;
    }
    default:
      fleet->Crash();
      fleet->Connect(fleet->honest());
      if (fleet->Register(hostile, fleet->RightRegister(*hostile))) fleet->OpenHeartbeat(hostile, hostile->incarnation);
  }
}

// What operators see must be there whatever was said.
void Look(Fleet* fleet) {
  fleet->On([&] {
    Require(fleet->coordinator()->GetJob(kJob).ok());
    Require(fleet->coordinator()->ListWorkers({}).ok());
    fleet->coordinator()->ListJobs();
    fleet->coordinator()->ListModels(kJob).status().IgnoreError();
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  struct Once {
    Once() {
      KeepQuiet();
      for (const char* name : {"train", "train-labels", "test", "test-labels"}) std::ofstream(folder.Join(name));
      data = std::filesystem::canonical(folder.path()).string();
      Fleet fleet(&vfs, data, std::make_unique<FaultDisk>());
      fleet.Make();
      disk = fleet.Disk();
    }
    const TempDir folder;
    std::string data;
    FaultVfs vfs;
    std::unique_ptr<FaultDisk> disk;
  };
  static Once once;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  Fleet fleet(&once.vfs, once.data, once.disk->Durable());
  fleet.Start();
  const auto phase = static_cast<Phase>(input.Byte() % kPhases);
  fleet.Reach(phase);
  for (int step = 0; step < 60 && !input.empty(); ++step) {
    HostileStep(&input, &fleet);
    Look(&fleet);
  }
  fleet.Crash();
  Look(&fleet);
  // Whose model comes first decides on the layout, so there the other one may be left out.
  if (phase != kPreparing) fleet.FinishAlone();
  return 0;
}
