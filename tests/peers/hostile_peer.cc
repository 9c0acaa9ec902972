// A worker with a real certificate that does what no worker should. Prints one line of JSON: how many calls, and how they were answered.
//
//   hostile_peer ADDRESS FOLDER ATTACK SECONDS [JOB]     (FOLDER: a worker's, with tls/worker.pem, its key and tls/ca.pem)

#include <atomic>
#include <cstdint>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/client_unary_call.h>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/mutex.h"
#include "dataplane/credentials.h"
#include "dataplane/digest.h"
#include "dataplane/grpc_channel.h"
#include "dataplane/grpc_status.h"
#include "dataplane/identity_file.h"
#include "dataplane/layout.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "proto/data.grpc.pb.h"
#include "proto/membership.grpc.pb.h"
#include "proto/parameters.grpc.pb.h"

namespace causeway {
namespace {

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();  // 2^63 - 1
constexpr int64_t kNegative = std::numeric_limits<int64_t>::min();

using Frames = grpc::ClientReaderWriter<v1::Frame, v1::Frame>;

struct Target {
  std::string address;
  std::string dir;
  std::string job;
  absl::Time end;  // Steady.
  bool over() const { return RealClock()->Now() >= end; }

  std::shared_ptr<grpc::Channel> Connect() const {
    const std::string certificate = JoinPath(dir, "tls/worker.pem");
    const std::string pem = RealFileSystem()->ReadFile(certificate, 1 << 20).value_or("");
    const std::string key = dataplane::HoldsKey(pem) ? certificate : JoinPath(dir, "tls/worker.key");
    auto credentials = dataplane::MakeClientCredentials({certificate, key, JoinPath(dir, "tls/ca.pem")});
    if (!credentials.ok()) {
      std::cerr << credentials.status().ToString() << "\n";
      std::exit(2);
    }
    return dataplane::MakeChannel(dataplane::ChannelKind::kControl, address, *credentials);
  }
};

// What came back. Thread-safe.
class Tally {
 public:
  void Add(const std::string& answer) {
    MutexLock lock(&mu_);
    ++answers_[answer];
  }
  void Add(const grpc::Status& status) {
    Add(std::string(absl::StatusCodeToString(dataplane::FromGrpc(status).code())));
  }
  std::string Json(const std::string& attack, absl::Duration took) {
    MutexLock lock(&mu_);
    int64_t calls = 0;
    std::string answers;
    for (const auto& [answer, n] : answers_) {
      calls += n;
      absl::StrAppend(&answers, answers.empty() ? "" : ", ", "\"", answer, "\": ", n);
    }
    return absl::StrCat("{\"attack\": \"", attack, "\", \"seconds\": ", absl::ToDoubleSeconds(took),
                        ", \"calls\": ", calls, ", \"answers\": {", answers, "}}");
  }

 private:
  Mutex mu_;
  std::map<std::string, int64_t> answers_ ABSL_GUARDED_BY(mu_);
};

void Pause(absl::Duration duration) { RealClock()->SleepFor(duration); }

void SetDeadline(grpc::ClientContext* context, absl::Duration limit = absl::Seconds(5)) {
  context->set_deadline(absl::ToChronoTime(RealClock()->WallNow() + limit));
}

template <typename Request, typename Response>
grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel,
                  grpc::Status (v1::Membership::Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                  const Request& request) {
  grpc::ClientContext context;
  SetDeadline(&context);
  Response response;
  return (v1::Membership::NewStub(channel).get()->*method)(&context, request, &response);
}

grpc::Status Register(const std::shared_ptr<grpc::Channel>& channel, int64_t incarnation) {
  v1::RegisterRequest request;
  *request.mutable_version() = dataplane::OurVersion();
  request.set_incarnation(incarnation);
  return Call(channel, &v1::Membership::Stub::Register, request);
}

// A worker that is registered and stays so: it beats once a second until it is destroyed, and knows what it is assigned.
class Registered {
 public:
  Registered(const Target& target, const std::shared_ptr<grpc::Channel>& channel, int64_t incarnation, Tally* tally)
      : target_(target), incarnation_(incarnation) {
    tally->Add(Register(channel, incarnation));
    stream_ = v1::Membership::NewStub(channel)->Heartbeat(&context_);
    beats_ = std::thread([this] {
      v1::HeartbeatRequest beat;
      beat.set_incarnation(incarnation_);
      absl::Time next = RealClock()->Now();
      while (!over_) {
        if (RealClock()->Now() >= next) {
          beat.set_sequence(beat.sequence() + 1);
          if (!stream_->Write(beat)) return;
          next += absl::Seconds(1);
        }
        Pause(absl::Milliseconds(20));
      }
    });
    answers_ = std::thread([this] {
      v1::HeartbeatResponse response;
      while (stream_->Read(&response)) {
        if (!response.has_assignment()) continue;
        MutexLock lock(&mu_);
        assignment_ = response.assignment();
      }
    });
  }
  ~Registered() {
    over_ = true;
    context_.TryCancel();
    beats_.join();
    answers_.join();
    stream_->Finish().ok();
  }

  // The assignment, as soon as it is as wanted; nothing if that does not come in time.
  std::optional<v1::Assignment> Wait(const std::function<bool(const v1::Assignment&)>& wanted) {
    while (!target_.over()) {
      {
        MutexLock lock(&mu_);
        if (assignment_.job() == target_.job && wanted(assignment_)) return assignment_;
      }
      Pause(absl::Milliseconds(5));
    }
    return std::nullopt;
  }
  v1::Fence fence() const {
    v1::Fence fence;
    fence.set_job(target_.job);
    fence.set_incarnation(incarnation_);
    return fence;
  }

 private:
  const Target target_;
  const int64_t incarnation_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::HeartbeatRequest, v1::HeartbeatResponse>> stream_;
  std::atomic<bool> over_ = false;
  std::thread beats_;
  std::thread answers_;
  Mutex mu_;
  v1::Assignment assignment_ ABSL_GUARDED_BY(mu_);
};

// How a bulk stream ends: the reason that a push is answered with, else the status.
std::string EndOf(Frames* stream) {
  v1::Frame answer;
  std::string reason;
  while (stream->Read(&answer)) {
    if (answer.has_push_result()) reason = answer.push_result().reason();
  }
  const absl::Status status = dataplane::FromGrpc(stream->Finish());
  return status.ok() && !reason.empty() ? reason : std::string(absl::StatusCodeToString(status.code()));
}

// A bulk stream with these frames, and how it ends.
void Bulk(const std::shared_ptr<grpc::Channel>& channel, const std::string& kind, const std::vector<v1::Frame>& frames,
          Tally* tally) {
  grpc::ClientContext context;
  SetDeadline(&context);
  auto data = v1::Data::NewStub(channel);
  auto parameters = v1::Parameters::NewStub(channel);
  std::unique_ptr<Frames> stream = kind == "fetch"   ? data->Fetch(&context)
                                   : kind == "probe" ? data->Probe(&context)
                                   : kind == "pull"  ? parameters->Pull(&context)
                                                     : parameters->Push(&context);
  for (const v1::Frame& frame : frames) {
    if (!stream->Write(frame)) break;
  }
  stream->WritesDone();
  tally->Add(EndOf(stream.get()));
}

v1::Frame PushFrame(const Target& target, int64_t round, int64_t incarnation, int64_t total_bytes) {
  v1::Frame frame;
  v1::PushRequest* push = frame.mutable_push_request();
  push->mutable_fence()->set_job(target.job);
  push->mutable_fence()->set_round(round);
  push->mutable_fence()->set_incarnation(incarnation);
  push->set_attempt(1'000'001);
  push->set_parts(1);
  push->set_samples(1);
  push->set_total_bytes(total_bytes);
  push->set_sha256(std::string(32, 'x'));
  push->set_layout_sha256(std::string(32, 'y'));
  return frame;
}

v1::Frame DataFrame(int64_t offset, int64_t total, const std::string& payload) {
  v1::Frame frame;
  frame.mutable_data()->set_offset(offset);
  frame.mutable_data()->set_total_bytes(total);
  frame.mutable_data()->set_xxh3(1);
  frame.set_payload(payload);
  return frame;
}

// ---- The attacks

void WrongLengths(const Target& target, Tally* tally) {
  auto channel = target.Connect();
  const Registered registered(target, channel, 1, tally);
  while (!target.over()) {
    for (const int64_t size : {int64_t{0}, int64_t{-1}, int64_t{1}, int64_t{1} << 40, kHuge, kNegative}) {
      Bulk(channel, "push", {PushFrame(target, 0, 1, size), DataFrame(size, size, std::string(1000, 'z'))}, tally);
      v1::Frame fetch;
      fetch.mutable_fetch_request()->set_job(target.job);
      auto* item = fetch.mutable_fetch_request()->add_items();
      item->set_sha256(std::string(32, 'q'));
      item->set_offset(size);
      Bulk(channel, "fetch", {fetch}, tally);
      item->set_sha256("../../../etc/passwd");
      Bulk(channel, "fetch", {fetch}, tally);
      v1::Frame pull;
      pull.mutable_pull_request()->set_job("../../etc/passwd");
      Bulk(channel, "pull", {pull}, tally);
      pull.mutable_pull_request()->set_job(target.job);
      pull.mutable_pull_request()->set_version(size);
      pull.mutable_pull_request()->set_offset(size);
      pull.mutable_pull_request()->mutable_elements()->set_begin(size);
      pull.mutable_pull_request()->mutable_elements()->set_end(kHuge);
      Bulk(channel, "pull", {pull}, tally);
    }
    Pause(absl::Milliseconds(100));
  }
}

void HugeSizes(const Target& target, Tally* tally) {
  auto channel = target.Connect();
  const Registered registered(target, channel, 1, tally);
  while (!target.over()) {
    v1::ReportModelRequest model;
    model.mutable_fence()->set_job(target.job);
    model.mutable_fence()->set_incarnation(1);
    for (int i = 0; i < 3; ++i) {
      auto* tensor = model.mutable_layout()->add_tensors();
      tensor->set_name(absl::StrCat("t", i));
      tensor->set_dtype(v1::DATA_TYPE_FLOAT32);
      tensor->set_kind(v1::TENSOR_KIND_PARAMETER);
      tensor->set_layer(1);
      for (int d = 0; d < 4; ++d) tensor->add_shape(i == 0 ? int64_t{1} << 62 : i == 1 ? kNegative : kHuge);
    }
    tally->Add(Call(channel, &v1::Membership::Stub::ReportModel, model));
    v1::ReportProfileRequest profile;
    *profile.mutable_fence() = model.fence();
    profile.mutable_profile()->set_max_parallel(kHuge);
    profile.mutable_profile()->set_down_bytes_per_s(std::numeric_limits<double>::infinity());
    profile.mutable_profile()->set_up_bytes_per_s(std::numeric_limits<double>::quiet_NaN());
    tally->Add(Call(channel, &v1::Membership::Stub::ReportProfile, profile));
    v1::ReportEvaluationRequest evaluation;
    *evaluation.mutable_fence() = model.fence();
    evaluation.set_correct(kHuge);
    evaluation.set_total(kNegative);
    tally->Add(Call(channel, &v1::Membership::Stub::ReportEvaluation, evaluation));
    v1::Frame probe;
    probe.mutable_probe_request()->set_direction(v1::ProbeRequest::DIRECTION_DOWN);
    probe.mutable_probe_request()->set_bytes(kHuge);
    probe.mutable_probe_request()->set_seconds(1e308);
    Bulk(channel, "probe", {probe}, tally);
    Bulk(channel, "push", {PushFrame(target, kHuge, 1, kHuge)}, tally);
    Pause(absl::Milliseconds(100));
  }
}

// Streams that say nothing, or never stop.
void EndlessStreams(const Target& target, Tally* tally) {
  auto channel = target.Connect();
  tally->Add(Register(channel, 1));
  std::vector<std::thread> threads;
  for (int i = 0; i < 40; ++i) {
    threads.emplace_back([&, i] {
      grpc::ClientContext context;
      SetDeadline(&context, target.end - RealClock()->Now());
      if (i % 4 == 0) {
        auto stream = v1::Membership::NewStub(channel)->Heartbeat(&context);
        v1::HeartbeatRequest beat;
        beat.set_incarnation(1);
        while (!target.over() && stream->Write(beat)) beat.set_sequence(beat.sequence() + 1);
        context.TryCancel();
        tally->Add(stream->Finish());
        return;
      }
      auto stream =
          i % 4 == 1 ? v1::Parameters::NewStub(channel)->Push(&context) : v1::Data::NewStub(channel)->Probe(&context);
      v1::Frame frame = PushFrame(target, 0, 1, 1000);
      if (i % 4 == 2) {
        frame.Clear();
        frame.mutable_probe_request()->set_direction(v1::ProbeRequest::DIRECTION_UP);
        frame.mutable_probe_request()->set_seconds(10);
        frame.mutable_probe_request()->set_bytes(1 << 20);
      }
      // The last quarter stays silent.
      while (i % 4 != 3 && !target.over() && stream->Write(frame)) frame = DataFrame(0, 1000, std::string(1000, 'e'));
      tally->Add(EndOf(stream.get()));
    });
  }
  for (std::thread& thread : threads) thread.join();
}

void Garbage(const Target& target, Tally* tally) {
  auto channel = target.Connect();
  std::mt19937 random(1);
  const std::vector<std::string> methods = {"Membership/Register",
                                            "Membership/ReportModel",
                                            "Membership/ReportProfile",
                                            "Membership/ReportData",
                                            "Membership/Leave",
                                            "Membership/ReportEvaluation",
                                            "Membership/RenewCertificate",
                                            "Membership/Heartbeat",
                                            "Data/Fetch",
                                            "Parameters/Push",
                                            "Parameters/Pull",
                                            "Membership/../Nothing"};
  while (!target.over()) {
    for (const std::string& name : methods) {
      std::string bytes(random() % 3000 + 1, '\0');
      for (char& c : bytes) c = static_cast<char>(random());
      const std::string method = "/causeway.v1." + name;
      grpc::Slice slice(bytes);
      const grpc::ByteBuffer request(&slice, 1);
      grpc::ByteBuffer response;
      grpc::ClientContext context;
      SetDeadline(&context);
      tally->Add(grpc::internal::BlockingUnaryCall(
          channel.get(), grpc::internal::RpcMethod(method.c_str(), grpc::internal::RpcMethod::NORMAL_RPC), &context,
          request, &response));
    }
    Pause(absl::Milliseconds(100));
  }
}

// In the name of others, of former processes, and for what is over.
void FalseClaims(const Target& target, Tally* tally) {
  auto channel = target.Connect();
  const Registered registered(target, channel, 7, tally);
  tally->Add(Register(channel, 6));
  tally->Add(Register(channel, kNegative));
  while (!target.over()) {
    for (const int64_t incarnation : {int64_t{6}, int64_t{1}, int64_t{0}, kHuge}) {
      v1::ReportDataRequest data;
      data.mutable_fence()->set_job(target.job);
      data.mutable_fence()->set_incarnation(incarnation);
      data.set_plan(1);
      tally->Add(Call(channel, &v1::Membership::Stub::ReportData, data));
      v1::ReportFailureRequest failure;
      *failure.mutable_fence() = data.fence();
      failure.set_permanent(true);
      failure.set_task("train");
      failure.set_message("worker w1 is broken\n\x1b[2J");
      tally->Add(Call(channel, &v1::Membership::Stub::ReportFailure, failure));
      Bulk(channel, "push", {PushFrame(target, 0, incarnation, 1000)}, tally);
    }
    // It is registered, and takes no part.
    Bulk(channel, "push", {PushFrame(target, 0, 7, 1000)}, tally);
    v1::Frame initial = PushFrame(target, -1, 7, 1000);
    initial.mutable_push_request()->set_initial(true);
    Bulk(channel, "push", {initial}, tally);
    Pause(absl::Milliseconds(100));
  }
}

// As fast as it can, with many calls at once.
void Flood(const Target& target, Tally* tally) {
  struct Open {
    grpc::ClientContext context;
    v1::ReportDataRequest request;
    v1::ReportDataResponse response;
  };
  auto channel = target.Connect();
  auto stub = v1::Membership::NewStub(channel);
  std::atomic<int> open = 0;
  while (!target.over()) {
    if (open >= 100) {
      std::this_thread::yield();
      continue;
    }
    ++open;
    auto* call = new Open;
    SetDeadline(&call->context);
    call->request.mutable_fence()->set_job(target.job);
    stub->async()->ReportData(&call->context, &call->request, &call->response, [&, call](grpc::Status status) {
      tally->Add(status);
      delete call;
      --open;
    });
  }
  while (open > 0) Pause(absl::Milliseconds(10));
}

// A thousand, all at once; those that come about are held.
void IdleConnections(const Target& target, Tally* tally) {
  grpc::CompletionQueue changes;
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  const auto watch = [&](size_t i, grpc_connectivity_state seen) {
    channels[i]->NotifyOnStateChange(seen,
                                     absl::ToChronoTime(RealClock()->WallNow() + (target.end - RealClock()->Now())),
                                     &changes, reinterpret_cast<void*>(i));
  };
  for (size_t i = 0; i < 1000; ++i) {
    channels.push_back(target.Connect());
    watch(i, channels[i]->GetState(/*try_to_connect=*/true));
  }
  void* tag;
  bool in_time;
  for (size_t left = channels.size(); left > 0 && changes.Next(&tag, &in_time);) {
    const size_t i = reinterpret_cast<size_t>(tag);
    const grpc_connectivity_state state = channels[i]->GetState(/*try_to_connect=*/false);
    if (in_time && state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE) {
      watch(i, state);
      continue;
    }
    --left;
    tally->Add(!in_time ? "under way" : state == GRPC_CHANNEL_READY ? "connected" : "refused");
    if (in_time && state == GRPC_CHANNEL_TRANSIENT_FAILURE) channels[i].reset();  // It would try on and on.
  }
  while (!target.over()) Pause(absl::Milliseconds(100));
}

// ---- A member of its job, with its real fence

v1::TensorSpec Tensor(const std::string& name, const std::vector<int64_t>& shape) {
  v1::TensorSpec tensor;
  tensor.set_name(name);
  tensor.set_dtype(v1::DATA_TYPE_FLOAT32);
  tensor.set_kind(v1::TENSOR_KIND_PARAMETER);
  tensor.set_layer(1);
  for (const int64_t dim : shape) tensor.add_shape(dim);
  return tensor;
}

std::string Floats(int count, float value) {
  const std::vector<float> values(count, value);
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
}

v1::Frame Piece(int64_t offset, int64_t total, const std::string& payload) {
  v1::Frame frame = DataFrame(offset, total, payload);
  frame.mutable_data()->set_xxh3(dataplane::Xxh3({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}));
  return frame;
}

class HostileMember {
 public:
  HostileMember(const Target& target, Tally* tally)
      : target_(target), tally_(tally), channel_(target.Connect()), self_(target, channel_, 1, tally) {
    *layout_.add_tensors() = Tensor("w", {kElements});
    layout_sha256_ = dataplane::Layout::FromProto(layout_)->hash();
  }

  // False: the time is over, here and below.
  bool Join() {
    if (!self_.Wait([](const v1::Assignment& a) { return a.has_prepare(); })) return false;
    Model("model", layout_, layout_sha256_);
    if (!self_.Wait([](const v1::Assignment& a) { return a.prepare().upload_initial(); })) return false;
    return true;
  }

  void WrongModels() {
    if (!self_.Wait([](const v1::Assignment& a) { return a.has_prepare(); })) return;
    const auto model = [&](const std::vector<v1::TensorSpec>& tensors) {
      v1::Layout layout;
      layout.mutable_tensors()->Add(tensors.begin(), tensors.end());
      Model("impossible model", layout, layout_sha256_);
    };
    model({});
    model({Tensor("w", {int64_t{1} << 62})});
    model({Tensor("w", {kHuge, kHuge})});
    model({Tensor("w", {0, kHuge, kHuge})});
    model({Tensor("w", {-1})});
    model({Tensor("w", {kNegative, kNegative})});
    model({Tensor("a", {int64_t{1} << 44}), Tensor("b", {int64_t{1} << 44})});
    model({Tensor("w", {1}), Tensor("w", {1})});
    model({Tensor("", {1})});
    model({Tensor("w\n", {1})});
    v1::TensorSpec layer = Tensor("w", {1});
    layer.set_layer(-1);
    model({layer});
    v1::TensorSpec kind = Tensor("w", {1});
    kind.set_kind(v1::TENSOR_KIND_INTEGER_BUFFER);
    model({kind});
    Model("model with another hash", layout_, std::string(32, 'h'));
  }

  void WrongInitials() {
    v1::PushRequest none = Initial();
    none.set_total_bytes(0);
    Push("initial of 0 bytes", none, {});
    v1::PushRequest huge = Initial();
    huge.set_total_bytes(kHuge);
    Push("initial of 2^63-1 bytes", huge, {});
    v1::PushRequest foreign = Initial();
    foreign.set_layout_sha256(std::string(32, 'y'));
    Push("initial of another layout", foreign, {});
    v1::PushRequest nan = Initial();
    const std::string bytes = Floats(kElements, std::numeric_limits<float>::quiet_NaN());
    nan.set_sha256(dataplane::Sha256Of(bytes));
    Push("initial that is not finite", nan, {Piece(0, kBytes, bytes)});
  }
  void RightInitial() { PushRight("initial", Initial()); }

  void WrongProfiles() {
    const auto task = self_.Wait([](const v1::Assignment& a) { return a.has_profile(); });
    if (!task) return;
    const std::vector<double> impossible = {std::numeric_limits<double>::infinity(),
                                            -std::numeric_limits<double>::infinity(),
                                            std::numeric_limits<double>::quiet_NaN(), 0, -1};
    const auto wrong = [&](const std::function<void(v1::DeviceProfile*)>& change) {
      v1::DeviceProfile profile = Measured(*task, 1e-3, 1e6);
      change(&profile);
      Profile("impossible profile", *task, profile);
    };
    for (const double value : impossible) {
      wrong([&](auto* p) { p->set_down_bytes_per_s(value); });
      wrong([&](auto* p) { p->set_up_bytes_per_s(value); });
      wrong([&](auto* p) { p->set_eval_samples_per_s(value); });
      wrong([&](auto* p) { p->mutable_batch_times(0)->set_batch_time_s(value); });
    }
    for (const int64_t value : {kHuge, kNegative, int64_t{-1}, int64_t{0}}) {
      wrong([&](auto* p) { p->set_max_parallel(value); });
      wrong([&](auto* p) { p->mutable_batch_times(0)->set_batch_size(value); });
    }
    wrong([](auto* p) { p->clear_batch_times(); });
    wrong([](auto* p) {
      for (int i = 0; i < 1000; ++i) *p->add_batch_times() = p->batch_times(0);
    });
  }
  void RightProfile(double batch_time_s, double bytes_per_s) {
    const auto task = self_.Wait([](const v1::Assignment& a) { return a.has_profile(); });
    if (task) Profile("profile", *task, Measured(*task, batch_time_s, bytes_per_s));
  }

  void WrongData() {
    const auto task = self_.Wait([](const v1::Assignment& a) { return a.has_shard(); });
    if (!task) return;
    for (const int64_t plan : {kNegative, int64_t{-1}, int64_t{0}, task->shard().plan() + 1, kHuge}) {
      Data("data of no plan", plan, kHuge, std::numeric_limits<double>::infinity());
    }
    for (const int64_t bytes : {kHuge, int64_t{-1}, kNegative}) {
      Data("data of impossible size", task->shard().plan(), bytes, 1);
    }
    Data("data in impossible time", task->shard().plan(), 1, std::numeric_limits<double>::quiet_NaN());
  }
  void RightData() {
    const auto task = self_.Wait([](const v1::Assignment& a) { return a.has_shard(); });
    if (task) Data("data", task->shard().plan(), 1000, 0.1);
  }

  void WrongEvaluations() {
    const auto task = self_.Wait([](const v1::Assignment& a) { return a.has_evaluate(); });
    if (!task) return;
    int64_t samples = 0;
    for (const auto& range : task->evaluate().ranges()) samples += range.end() - range.begin();
    const auto evaluation = [&](const std::string& what, int64_t version, int64_t correct, int64_t total) {
      v1::ReportEvaluationRequest request;
      *request.mutable_fence() = self_.fence();
      request.set_version(version);
      request.set_attempt(task->evaluate().attempt());
      request.set_correct(correct);
      request.set_total(total);
      request.set_loss_sum(std::numeric_limits<double>::quiet_NaN());
      Answer(what, Call(channel_, &v1::Membership::Stub::ReportEvaluation, request));
    };
    const int64_t version = task->evaluate().version();
    for (const int64_t count : {kHuge, kNegative, int64_t{-1}}) {
      evaluation("impossible evaluation", version, count, samples);
      evaluation("impossible evaluation", version, 0, count);
    }
    evaluation("impossible evaluation", version, samples + 1, samples);
    evaluation("evaluation of no version", kHuge, kHuge, kHuge);
  }

  // A push of the open round with its real fence, changed; then one that is right, so that the round is committed all the same.
  bool WrongPush(const std::string& what, const std::function<void(v1::PushRequest*)>& change,
                 const std::vector<v1::Frame>& frames = {}) {
    v1::PushRequest request;
    if (!NextRound(&request)) return false;
    change(&request);
    Push(what, request, frames);
    return RightPush();
  }
  bool RightPush(const std::function<void(v1::PushRequest*)>& change = [](v1::PushRequest*) {}) {
    v1::PushRequest request;
    if (!NextRound(&request)) return false;
    change(&request);
    done_round_ = request.fence().round();
    PushRight("contribution", request);
    return true;
  }

  void WrongPushes() {
    for (const int64_t size : {int64_t{0}, int64_t{1} << 40, kHuge}) {
      if (!WrongPush(absl::StrCat("push of ", size, " bytes"), [&](auto* r) { r->set_total_bytes(size); })) return;
    }
    WrongPush("push of -1 bytes", [](auto* r) { r->set_total_bytes(-1); });
    WrongPush("push of -2^63 bytes", [](auto* r) { r->set_total_bytes(kNegative); });
    for (const int64_t samples : {int64_t{-1}, kHuge, kNegative}) {
      WrongPush("weight that was not planned", [&](auto* r) { r->set_samples(samples); });
    }
    WrongPush("elements that do not fit", [](auto* r) { r->mutable_elements(0)->set_end(kHuge); });
    WrongPush("part of many", [](auto* r) { r->set_parts(std::numeric_limits<int32_t>::max()); });
    WrongPush("fragment", [](auto* r) { r->mutable_fence()->set_fragment(-1); });
    WrongPush("short digest", [](auto* r) { r->set_sha256("x"); });
    WrongPush("another layout", [](auto* r) { r->set_layout_sha256(std::string(32, 'y')); });
    WrongPush("former attempt", [](auto* r) { r->set_attempt(r->attempt() - 1); });
    WrongPush("coming round", [](auto* r) { r->mutable_fence()->set_round(r->fence().round() + 1); });
    WrongPush("round 2^63-1", [](auto* r) { r->mutable_fence()->set_round(kHuge); });
    WrongPush("former process", [](auto* r) { r->mutable_fence()->set_incarnation(0); });
    const auto as_it_is = [](v1::PushRequest*) {};
    WrongPush("more data than announced", as_it_is, {Piece(0, kBytes, Floats(2 * kElements, kValue))});
    WrongPush("less data than announced", as_it_is, {Piece(0, kBytes, Floats(kElements / 2, kValue))});
    for (const int64_t offset : {int64_t{4}, int64_t{-4}, kHuge, kNegative}) {
      WrongPush("data of another offset", as_it_is, {Piece(offset, kBytes, Floats(10, kValue))});
    }
    for (const int64_t total : {int64_t{0}, kHuge, kNegative}) {
      WrongPush("data of another total", as_it_is, {Piece(0, total, Floats(10, kValue))});
    }
    WrongPush("data with another digest", as_it_is, {DataFrame(0, kBytes, Floats(kElements, kValue))});
    WrongPush("empty data", as_it_is, {Piece(0, kBytes, "")});
    WrongPush("no data", as_it_is, {PushFrame(target_, 0, 1, 1)});
    const auto announce = [](const std::string& bytes) {
      return [bytes](v1::PushRequest* r) { r->set_sha256(dataplane::Sha256Of(bytes)); };
    };
    const std::string right = Floats(kElements, kValue);
    WrongPush("another digest of all", announce("other"), {Piece(0, kBytes, right)});
    const std::string infinite = Floats(kElements, std::numeric_limits<float>::infinity());
    WrongPush("values that are not finite", announce(infinite), {Piece(0, kBytes, infinite)});
    const std::string large = Floats(kElements, std::numeric_limits<float>::max());
    WrongPush("values out of range", announce(large), {Piece(0, kBytes, large)});
  }

  // As many as a worker may make, for two seconds.
  void Failures() {
    v1::ReportFailureRequest failure;
    *failure.mutable_fence() = self_.fence();
    failure.set_task("train\x1b[2J");
    failure.set_message(std::string(100'000, 'm'));
    for (int i = 0; i < 90; ++i) {
      Answer("failure", Call(channel_, &v1::Membership::Stub::ReportFailure, failure));
      Pause(absl::Milliseconds(20));
    }
    failure.set_permanent(true);
    failure.set_code(-1);
    for (int i = 0; i < 30; ++i)
      Answer("permanent failure", Call(channel_, &v1::Membership::Stub::ReportFailure, failure));
  }

 private:
  static constexpr int kElements = 1000;
  static constexpr int64_t kBytes = kElements * 4;
  static constexpr float kValue = 0.5;

  void Answer(const std::string& what, const grpc::Status& status) {
    tally_->Add(absl::StrCat(what, ": ", absl::StatusCodeToString(dataplane::FromGrpc(status).code())));
  }
  void Model(const std::string& what, const v1::Layout& layout, const std::string& sha256) {
    v1::ReportModelRequest request;
    *request.mutable_fence() = self_.fence();
    *request.mutable_layout() = layout;
    request.set_layout_sha256(sha256);
    Answer(what, Call(channel_, &v1::Membership::Stub::ReportModel, request));
  }
  static v1::DeviceProfile Measured(const v1::Assignment& a, double batch_time_s, double bytes_per_s) {
    v1::DeviceProfile profile;
    for (const int64_t size : a.profile().batch_sizes()) {
      auto* time = profile.add_batch_times();
      time->set_batch_size(size);
      time->set_batch_time_s(batch_time_s);
      profile.set_max_parallel(size);
    }
    profile.set_down_bytes_per_s(bytes_per_s);
    profile.set_up_bytes_per_s(bytes_per_s);
    profile.set_eval_samples_per_s(bytes_per_s);
    return profile;
  }
  void Profile(const std::string& what, const v1::Assignment& a, const v1::DeviceProfile& profile) {
    v1::ReportProfileRequest request;
    *request.mutable_fence() = self_.fence();
    request.set_attempt(a.profile().attempt());
    *request.mutable_profile() = profile;
    Answer(what, Call(channel_, &v1::Membership::Stub::ReportProfile, request));
  }
  void Data(const std::string& what, int64_t plan, int64_t bytes, double seconds) {
    v1::ReportDataRequest request;
    *request.mutable_fence() = self_.fence();
    request.set_plan(plan);
    request.set_bytes_fetched(bytes);
    request.set_seconds(seconds);
    Answer(what, Call(channel_, &v1::Membership::Stub::ReportData, request));
  }
  v1::PushRequest Whole() const {
    v1::PushRequest request;
    *request.mutable_fence() = self_.fence();
    request.set_layout_sha256(layout_sha256_);
    request.set_parts(1);
    request.add_elements()->set_end(kElements);
    request.set_total_bytes(kBytes);
    request.set_sha256(dataplane::Sha256Of(Floats(kElements, kValue)));
    return request;
  }
  v1::PushRequest Initial() const {
    v1::PushRequest request = Whole();
    request.set_initial(true);
    request.mutable_fence()->set_round(-1);
    return request;
  }
  // The task of a round in which nothing of ours is rejected or counted yet.
  bool NextRound(v1::PushRequest* request) {
    const auto task = self_.Wait([this](const v1::Assignment& a) {
      return a.has_train() && !a.train().deliver_now() && a.train().round() > done_round_ &&
             (a.train().round() != rejected_round_ || a.train().attempt() != rejected_attempt_);
    });
    if (!task) return false;
    *request = Whole();
    request->mutable_fence()->set_round(task->train().round());
    request->set_attempt(task->train().attempt());
    request->set_samples(task->train().planned_samples());
    round_ = task->train().round();
    attempt_ = task->train().attempt();
    return true;
  }
  std::string Send(const v1::PushRequest& request, const std::function<std::vector<v1::Frame>(int64_t)>& data) {
    grpc::ClientContext context;
    SetDeadline(&context);
    auto stub = v1::Parameters::NewStub(channel_);
    auto stream = stub->Push(&context);
    v1::Frame frame;
    *frame.mutable_push_request() = request;
    v1::Frame answer;
    if (stream->Write(frame) && stream->Read(&answer)) {
      if (answer.has_push_result()) {
        rejected_ = answer.push_result().outcome() == v1::PushResult::OUTCOME_REJECTED;
        stream->WritesDone();
        stream->Finish().ok();
        return rejected_ || answer.push_result().outcome() == v1::PushResult::OUTCOME_NOT_WANTED
                   ? answer.push_result().reason()
                   : "counted";
      }
      for (const v1::Frame& piece : data(answer.push_response().resume_offset())) {
        if (!stream->Write(piece)) break;
      }
      stream->WritesDone();
      std::string end;
      while (stream->Read(&answer)) {
        if (!answer.has_push_result()) continue;
        rejected_ = answer.push_result().outcome() == v1::PushResult::OUTCOME_REJECTED;
        end = answer.push_result().reason().empty() ? "counted" : answer.push_result().reason();
      }
      const absl::Status status = dataplane::FromGrpc(stream->Finish());
      return status.ok() ? end : std::string(absl::StatusCodeToString(status.code()));
    }
    return std::string(absl::StatusCodeToString(dataplane::FromGrpc(stream->Finish()).code()));
  }
  void Push(const std::string& what, const v1::PushRequest& request, const std::vector<v1::Frame>& frames) {
    rejected_ = false;
    tally_->Add(absl::StrCat(what, ": ", Send(request, [&](int64_t) { return frames; })));
    if (!rejected_) return;
    rejected_round_ = round_;
    rejected_attempt_ = attempt_;
  }
  void PushRight(const std::string& what, const v1::PushRequest& request) {
    tally_->Add(absl::StrCat(what, ": ", Send(request, [](int64_t offset) {
                               return std::vector<v1::Frame>{
                                   Piece(offset, kBytes, Floats(kElements, kValue).substr(offset))};
                             })));
  }

  const Target target_;
  Tally* const tally_;
  std::shared_ptr<grpc::Channel> channel_;
  Registered self_;
  v1::Layout layout_;
  std::string layout_sha256_;
  int64_t round_ = -1;
  int64_t attempt_ = -1;
  bool rejected_ = false;
  int64_t rejected_round_ = -1;
  int64_t rejected_attempt_ = -1;
  int64_t done_round_ = -1;
};

// Goes all the way that a worker goes, and does at every step all that it should not before what it should.
void Participant(const Target& target, Tally* tally) {
  HostileMember member(target, tally);
  member.WrongModels();
  if (!member.Join()) return;
  member.WrongInitials();
  member.RightInitial();
  member.WrongProfiles();
  member.RightProfile(1e-3, 1e6);
  member.WrongData();
  member.RightData();
  member.WrongEvaluations();
  member.WrongPushes();
  member.Failures();
}

// All that it says is possible, and as far from what is likely as the numbers go.
void Extremes(const Target& target, Tally* tally, double batch_time_s, double bytes_per_s) {
  HostileMember member(target, tally);
  if (!member.Join()) return;
  member.RightInitial();
  member.RightProfile(batch_time_s, bytes_per_s);
  member.RightData();
  for (int i = 0; i < 5; ++i) {
    if (!member.RightPush([](v1::PushRequest* request) {
          request->set_steps(kHuge);
          request->set_train_loss(std::numeric_limits<double>::quiet_NaN());
          request->set_compute_s(std::numeric_limits<double>::infinity());
          request->set_pull_s(-std::numeric_limits<double>::infinity());
          request->set_evaluate_s(std::numeric_limits<double>::quiet_NaN());
          request->mutable_fence()->set_site_generation(kNegative);
        })) {
      return;
    }
  }
}
void Slowest(const Target& target, Tally* tally) { Extremes(target, tally, 1e6, 1e-3); }
void Fastest(const Target& target, Tally* tally) { Extremes(target, tally, 1e-300, 1e15); }

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  using namespace causeway;  // NOLINT
  const std::map<std::string, std::function<void(const Target&, Tally*)>> attacks = {
      {"wrong_lengths", WrongLengths},
      {"huge_sizes", HugeSizes},
      {"endless_streams", EndlessStreams},
      {"garbage", Garbage},
      {"false_claims", FalseClaims},
      {"flood", Flood},
      {"idle_connections", IdleConnections},
      {"participant", Participant},
      {"slowest", Slowest},
      {"fastest", Fastest}};
  if (argc < 5 || attacks.count(argv[3]) == 0) {
    std::cerr << "usage: hostile_peer ADDRESS FOLDER ATTACK SECONDS [JOB]\n";
    return 2;
  }
  dataplane::ConfigureGrpcProcess();
  const absl::Time begin = RealClock()->Now();
  Target target{argv[1], argv[2], argc > 5 ? argv[5] : "job", begin + absl::Seconds(std::atof(argv[4]))};
  Tally tally;
  attacks.at(argv[3])(target, &tally);
  std::cout << tally.Json(argv[3], RealClock()->Now() - begin) << std::endl;
  return 0;
}
