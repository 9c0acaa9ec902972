#include "server/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway::server {

RoundBook::RoundBook(Options options) : options_(std::move(options)) {
  for (const Participant& participant : options_.participants) {
    planned_samples_ += participant.planned_samples;
    entries_[participant.worker] = Entry{.participant = participant};
  }
  if (options_.quorum_of == 0) options_.quorum_of = planned_samples_;
}

void RoundBook::SetPresent(const WorkerId& worker, bool present) {
  auto it = entries_.find(worker);
  if (it == entries_.end()) return;
  it->second.present = present;
  if (present) it->second.gone = false;
}

void RoundBook::SetGone(const WorkerId& worker) {
  auto it = entries_.find(worker);
  if (it == entries_.end()) return;
  it->second.present = false;
  it->second.gone = true;
}

absl::Status RoundBook::CheckWanted(const WorkerId& worker, int64_t samples) const {
  const Entry* entry = Find(worker);
  if (entry == nullptr)
    return absl::NotFoundError(absl::StrCat("worker ", worker.value(), " takes no part in this round"));
  if (entry->state != State::kOutstanding)
    return absl::AlreadyExistsError("a contribution of this worker is settled already");
  if (samples < 0 || samples > entry->participant.planned_samples) {
    return absl::InvalidArgumentError(
        absl::StrCat("a weight of ", samples, " samples where ", entry->participant.planned_samples, " were planned"));
  }
  return absl::OkStatus();
}

bool RoundBook::MarkAdding(const WorkerId& worker, int64_t samples, const std::string& sha256) {
  auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.state != State::kOutstanding) return false;
  it->second.state = State::kAdding;
  it->second.samples = samples;
  it->second.sha256 = sha256;
  return true;
}

bool RoundBook::MarkCounted(const WorkerId& worker) {
  auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.state != State::kAdding) return false;
  it->second.state = State::kCounted;
  return true;
}

void RoundBook::CancelAdding(const WorkerId& worker) {
  auto it = entries_.find(worker);
  if (it != entries_.end() && it->second.state == State::kAdding) it->second.state = State::kOutstanding;
}

bool RoundBook::MarkRejected(const WorkerId& worker, const std::string& reason, const std::string& sha256) {
  auto it = entries_.find(worker);
  if (it == entries_.end() || it->second.state != State::kOutstanding) return false;
  it->second.state = State::kRejected;
  it->second.reason = reason;
  it->second.sha256 = sha256;
  return true;
}

void RoundBook::Postpone(absl::Time deadline) {
  options_.deadline = std::max(options_.deadline, deadline - options_.opened);
}

RoundBook::Verdict RoundBook::Decide(absl::Time now) const {
  int64_t heard = 0;         // planned samples of those who have contributed
  int64_t within_reach = 0;  // of those who have, or still could
  bool present_outstanding = false;
  bool rejected = false;
  for (const auto& [worker, entry] : entries_) {
    switch (entry.state) {
      case State::kAdding: return Verdict::kWait;  // its bytes are in; the sum has them in a moment
      case State::kCounted:
        if (entry.samples == 0) break;
        heard += entry.participant.planned_samples;
        within_reach += entry.participant.planned_samples;
        break;
      case State::kOutstanding:
        if (!entry.gone) within_reach += entry.participant.planned_samples;
        present_outstanding |= entry.present;
        break;
      case State::kRejected: rejected = true; break;
    }
  }
  const auto reaches_quorum = [&](int64_t samples) {
    return samples > 0 && static_cast<double>(samples) >= options_.quorum * static_cast<double>(options_.quorum_of);
  };
  if (!present_outstanding || now >= deadline() + options_.late_grace) {
    if (reaches_quorum(heard)) return Verdict::kCommit;
  }
  if (within_reach == 0 && !rejected) return Verdict::kZeroWeight;
  const bool hopeless = !present_outstanding && !reaches_quorum(within_reach);
  if (hopeless || now >= deadline() + std::max(options_.late_grace, options_.replan_after)) {
    return rejected ? Verdict::kDropRejected : Verdict::kDropMissing;
  }
  return Verdict::kWait;
}

std::vector<WorkerId> RoundBook::WaitingFor() const {
  std::vector<WorkerId> present;
  std::vector<WorkerId> absent;
  for (const auto& [worker, entry] : entries_) {
    if (entry.state == State::kOutstanding && !entry.gone) (entry.present ? present : absent).push_back(worker);
  }
  return present.empty() ? absent : present;
}

const RoundBook::Entry* RoundBook::Find(const WorkerId& worker) const {
  auto it = entries_.find(worker);
  return it == entries_.end() ? nullptr : &it->second;
}

int64_t RoundBook::counted_samples() const {
  int64_t samples = 0;
  for (const auto& [worker, entry] : entries_) {
    if (entry.state == State::kCounted) samples += entry.samples;
  }
  return samples;
}

int RoundBook::counted() const {
  int n = 0;
  for (const auto& [worker, entry] : entries_) n += entry.state == State::kCounted;
  return n;
}

}  // namespace causeway::server
