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
  tally->Add(Register(channel, 1));
  while (!target.over()) {
    v1::ReportModelRequest model;
    model.mutable_fence()->set_job(target.job);
    model.mutable_fence()->set_incarnation(1);
    for (int i = 0; i < 3; ++i) {
      auto* tensor = model.mutable_layout()->add_tensors();
      tensor->set_name("t");
      tensor->set_dtype(v1::DATA_TYPE_FLOAT32);
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
  tally->Add(Register(channel, 7));
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

void IdleConnections(const Target& target, Tally* tally) {
  std::vector<std::shared_ptr<grpc::Channel>> channels;
  for (int i = 0; i < 1000 && !target.over(); ++i) {
    channels.push_back(target.Connect());
    channels.back()->GetState(/*try_to_connect=*/true);
    const bool connected =
        channels.back()->WaitForConnected(absl::ToChronoTime(RealClock()->WallNow() + absl::Milliseconds(50)));
    tally->Add(connected ? "connected" : "refused");
    if (!connected && channels.size() > 100)
      channels.erase(channels.begin() + 50, channels.end());  // They try on and on.
  }
  while (!target.over()) Pause(absl::Milliseconds(100));
}

}  // namespace
}  // namespace causeway

int main(int argc, char** argv) {
  using namespace causeway;  // NOLINT
  const std::map<std::string, std::function<void(const Target&, Tally*)>> attacks = {
      {"wrong_lengths", WrongLengths},      {"huge_sizes", HugeSizes},
      {"endless_streams", EndlessStreams},  {"garbage", Garbage},
      {"false_claims", FalseClaims},        {"flood", Flood},
      {"idle_connections", IdleConnections}};
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
