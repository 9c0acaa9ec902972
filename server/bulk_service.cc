#include "server/bulk_service.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/completion.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "dataplane/bandwidth.h"
#include "dataplane/model_stream.h"
#include "dataplane/sample_stream.h"
#include "dataplane/transfer.h"
#include "server/contribution.h"

namespace causeway::server {
namespace {

using dataplane::LinkKind;
using dataplane::PeerIdentity;

constexpr absl::Duration kAskTimeout = absl::Seconds(30);

// Runs `ask` on the executor and waits for its answer. It may refer to the caller's variables: when this returns, `ask` has run or will
// never run.
template <typename T>
absl::StatusOr<T> Ask(Executor* executor, Clock* clock, absl::string_view what,
                      std::function<absl::StatusOr<T>()> ask) {
  struct Turn {
    Mutex mu;
    bool taken ABSL_GUARDED_BY(mu) = false;
  };
  auto turn = std::make_shared<Turn>();
  const auto take_turn = [turn] {
    MutexLock lock(&turn->mu);
    return !std::exchange(turn->taken, true);
  };
  Completion<T> answer;
  executor->Add([answer, take_turn, ask = std::move(ask)]() mutable {
    if (take_turn()) answer.Set(ask());
  });
  absl::StatusOr<T> result = answer.Await(clock, clock->Now() + kAskTimeout, what);
  if (!absl::IsDeadlineExceeded(result.status())) return result;
  // The executor is stopping or overloaded: worth another try, elsewhere or later.
  if (take_turn()) return absl::UnavailableError(result.status().message());
  return answer.Await(clock, absl::InfiniteFuture(), what);  // It runs at this moment, and does not block.
}

// A committed model as a pull reads it.
class VersionSource : public dataplane::PullSource {
 public:
  VersionSource(const dataplane::Layout& layout, std::shared_ptr<const ParameterStore::Reader> reader)
      : reader_(std::move(reader)) {
    info_.set_version(reader_->version().value());
    *info_.mutable_layout() = layout.ToProto();
    info_.set_layout_sha256(layout.hash());
    info_.set_total_bytes(layout.total_bytes());
    info_.set_sha256(reader_->sha256());
  }
  const v1::PullResponse& info() const override { return info_; }
  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override { return reader_->Read(offset, out); }

 private:
  const std::shared_ptr<const ParameterStore::Reader> reader_;
  v1::PullResponse info_;
};

// One contribution (or the initial model) on its way: spooled, verified, journaled, added.
class ContributionSink : public dataplane::PushSink {
 public:
  ContributionSink(Coordinator* coordinator, Executor* executor, LogBudget* lines)
      : coordinator_(coordinator), executor_(executor), lines_(lines) {}

  absl::StatusOr<Start> Begin(const PeerIdentity& peer, const v1::PushRequest& request) override {
    peer_ = peer;
    request_ = request;
    started_ = clock()->Now();
    ASSIGN_OR_RETURN(ticket_,
                     (Ask<Coordinator::PushTicket>(executor_, clock(), "the coordinator's decision on a push",
                                                   [this] { return coordinator_->BeginPush(peer_, request_); })));
    Start start;
    if (ticket_.result.has_value()) {
      start.result = ticket_.result;
      return start;
    }
    absl::StatusOr<std::shared_ptr<Spool::Upload>> upload =
        coordinator_->spool()->Open(ticket_.key, request.total_bytes(), request.sha256());
    RETURN_IF_ERROR(Stored(upload.status()));
    upload_ = *std::move(upload);
    start.resume_offset = upload_->durable_bytes();
    return start;
  }

  absl::Status Append(int64_t offset, absl::Span<const uint8_t> bytes) override {
    return Stored(upload_->Append(offset, bytes));
  }
  absl::StatusOr<int64_t> Sync() override {
    absl::StatusOr<int64_t> durable = upload_->Sync();
    RETURN_IF_ERROR(Stored(durable.status()));
    return durable;
  }

  absl::StatusOr<v1::PushResult> Finish() override {
    absl::StatusOr<v1::PushResult> result = VerifyAndAdd();
    RETURN_IF_ERROR(Stored(result.status()));
    return result;
  }

  void Abandon(const absl::Status& status) override {
    const int64_t times = lines_->Take(absl::StrCat(peer_.name, " ", ticket_.key.job), clock()->Now());
    if (times == 0) return;
    log::Info("push broken", {{"job", ticket_.key.job},
                              {"worker", peer_.name},
                              {"round", ticket_.key.round},
                              {"durable_bytes", upload_->durable_bytes()},
                              {"total_bytes", upload_->total_bytes()},
                              {"status", status},
                              {"times", times}});
  }

 private:
  Clock* clock() const { return coordinator_->options().clock; }

  // Passes on what storing came to; the coordinator hears when there was no room.
  absl::Status Stored(absl::Status status) {
    if (absl::IsResourceExhausted(status)) {
      executor_->Add(
          [coordinator = coordinator_, job = ticket_.key.job, status] { coordinator->NoRoomForPush(job, status); });
    }
    return status;
  }

  absl::StatusOr<v1::PushResult> VerifyAndAdd() {
    ASSIGN_OR_RETURN(const std::string path, upload_->Finish());
    FileSystem* fs = coordinator_->options().fs;
    ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, fs->OpenForRead(path));
    if (request_.initial()) return FinishInitial(*file);
    double change_ratio = 0;
    const absl::Status valid =
        CheckContribution(ticket_.layout, *ticket_.committed, *file, ticket_.max_change, &change_ratio);
    if (!valid.ok()) {
      const std::string reason = RejectionReason(valid);
      if (reason.empty()) return valid;
      return AskResult([this, reason, valid] {
        return coordinator_->RejectPush(peer_, request_, reason, std::string(valid.message()));
      });
    }
    v1::StoredContribution info;
    info.set_steps(request_.steps());
    info.set_train_loss(request_.train_loss());
    info.set_pull_s(request_.pull_s());
    info.set_evaluate_s(request_.evaluate_s());
    info.set_compute_s(request_.compute_s());
    info.set_push_s(absl::ToDoubleSeconds(clock()->Now() - started_));
    info.set_fresh_optimizer(request_.fresh_optimizer());
    info.set_change_ratio(change_ratio);
    absl::StatusOr<bool> journaled =
        Ask<bool>(executor_, clock(), "the coordinator's journal", [this, &path, &info]() -> absl::StatusOr<bool> {
          RETURN_IF_ERROR(coordinator_->JournalPush(peer_, request_, path, info));
          return true;
        });
    if (absl::IsAborted(journaled.status())) {
      v1::PushResult result;
      result.set_outcome(v1::PushResult::OUTCOME_NOT_WANTED);
      result.set_reason("stale_round");
      result.set_message(std::string(journaled.status().message()));
      return result;
    }
    RETURN_IF_ERROR(journaled.status());
    absl::Status added;
    {
      MutexLock lock(&ticket_.sum->mu);
      added = ticket_.sum->sum->Add(*file, request_.samples(), ticket_.rank);
    }
    // Journaled, so the coordinator hears of it even when nobody waits for its answer any more: until then the round waits.
    Completion<v1::PushResult> answer;
    executor_->Add([coordinator = coordinator_, peer = peer_, request = request_, added, info, answer]() mutable {
      answer.Set(coordinator->FinishPush(peer, request, added, info));
    });
    absl::StatusOr<v1::PushResult> result =
        answer.Await(clock(), clock()->Now() + kAskTimeout, "the coordinator's answer to a push");
    if (absl::IsDeadlineExceeded(result.status())) return absl::UnavailableError(result.status().message());
    return result;
  }

  absl::StatusOr<v1::PushResult> AskResult(std::function<absl::StatusOr<v1::PushResult>()> ask) {
    return Ask<v1::PushResult>(executor_, clock(), "the coordinator's answer to a push", std::move(ask));
  }

  absl::StatusOr<v1::PushResult> FinishInitial(const RandomAccessFile& file) {
    RETURN_IF_ERROR(CheckInitialModel(ticket_.layout, file), "initial model");
    auto packed = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(file.size_bytes()));
    RETURN_IF_ERROR(file.Read(0, absl::MakeSpan(*packed)));
    ASSIGN_OR_RETURN(const ParameterStore::Checkpoint checkpoint,
                     ticket_.store->WriteCheckpoint(Version(0), *packed, {{"job", ticket_.key.job}, {"version", "0"}}));
    absl::StatusOr<v1::PushResult> result =
        AskResult([this, checkpoint, packed] { return coordinator_->CommitInitial(request_, checkpoint, packed); });
    if (result.ok()) RETURN_IF_ERROR(coordinator_->spool()->Remove(ticket_.key));
    return result;
  }

  Coordinator* const coordinator_;
  Executor* const executor_;
  LogBudget* const lines_;
  PeerIdentity peer_;
  v1::PushRequest request_;
  absl::Time started_;
  Coordinator::PushTicket ticket_;
  std::shared_ptr<Spool::Upload> upload_;
};

const char* KindName(LinkKind kind) {
  switch (kind) {
    case LinkKind::kFetch: return "fetch";
    case LinkKind::kProbe: return "probe";
    case LinkKind::kPull: return "pull";
    case LinkKind::kPush: return "push";
  }
  return "unknown";
}

// Counts payload bytes as they pass.
class CountingLink : public dataplane::Link {
 public:
  explicit CountingLink(dataplane::Link* link) : link_(link) {}
  absl::Status Write(const v1::Frame& frame, absl::Span<const uint8_t> payload, absl::Time deadline) override {
    absl::Status status = link_->Write(frame, payload, deadline);
    if (status.ok()) out_ += static_cast<double>(payload.size());
    return status;
  }
  absl::StatusOr<v1::Frame> Read(absl::Time deadline) override {
    absl::StatusOr<v1::Frame> frame = link_->Read(deadline);
    if (frame.ok()) in_ += static_cast<double>(frame->payload().size());
    return frame;
  }
  absl::Status CloseWrite() override { return link_->CloseWrite(); }
  absl::Status Finish(absl::Time deadline) override { return link_->Finish(deadline); }
  void Cancel(absl::string_view reason) override { link_->Cancel(reason); }
  double in() const { return in_; }
  double out() const { return out_; }

 private:
  dataplane::Link* const link_;
  double in_ = 0;
  double out_ = 0;
};

}  // namespace

absl::Status BulkService::Serve(LinkKind kind, const PeerIdentity& peer, dataplane::Link* raw_link) {
  Clock* clock = coordinator_->options().clock;
  const dataplane::ServeOptions options{.clock = clock, .sizes = sizes_};
  const absl::Time started = clock->Now();
  CountingLink link(raw_link);
  const auto serve = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(const v1::Frame first, link.Read(started + options.progress_timeout));
    switch (kind) {
      case LinkKind::kFetch: {
        if (!first.has_fetch_request()) break;
        RETURN_IF_ERROR(
            Ask<bool>(executor_, clock, "the coordinator's decision on a fetch", [&]() -> absl::StatusOr<bool> {
              RETURN_IF_ERROR(coordinator_->CheckFetch(peer, first.fetch_request().job()));
              return true;
            }).status());
        return dataplane::ServeFetch(&link, first.fetch_request(), coordinator_->chunks(), options);
      }
      case LinkKind::kProbe:
        if (!first.has_probe_request()) break;
        return dataplane::ServeProbe(&link, first.probe_request(), options);
      case LinkKind::kPull: {
        if (!first.has_pull_request()) break;
        ASSIGN_OR_RETURN(const Coordinator::PullTicket ticket,
                         (Ask<Coordinator::PullTicket>(executor_, clock, "the coordinator's decision on a pull",
                                                       [&] { return coordinator_->BeginPull(first.pull_request()); })));
        ASSIGN_OR_RETURN(std::shared_ptr<const ParameterStore::Reader> reader,
                         ticket.store->OpenVersion(ticket.version));
        return dataplane::ServePull(&link, first.pull_request(), VersionSource(ticket.layout, std::move(reader)),
                                    options);
      }
      case LinkKind::kPush: {
        if (!first.has_push_request()) break;
        ContributionSink sink(coordinator_, executor_, &lines_);
        return dataplane::ServePush(&link, peer, first.push_request(), &sink, options);
      }
    }
    return absl::InvalidArgumentError(absl::StrCat("a ", KindName(kind), " stream begins with its request"));
  };
  absl::Status status = serve();
  const absl::Duration took = clock->Now() - started;
  Metrics* metrics = coordinator_->metrics();
  if (link.out() > 0) metrics->CountTransfer("out", KindName(kind), link.out(), took);
  if (link.in() > 0) metrics->CountTransfer("in", KindName(kind), link.in(), took);
  // Aloud, and not for each, says the guard what a peer does wrong.
  if (!status.ok()) {
    log::Debug("transfer ended", {{"kind", KindName(kind)}, {"peer", peer.name}, {"status", status}});
  }
  return status;
}

}  // namespace causeway::server
