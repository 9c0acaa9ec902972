#include "scheduler/transfer_network.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace causeway::scheduler {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Transfers that end within this fraction of their duration after another end with it.
constexpr double kSameEnd = 1e-12;

}  // namespace

TransferNetwork::TransferNetwork(Options options)
    : options_(std::move(options)), lanes_(options_.workers.size()), shared_end_s_(kInfinity) {
  const auto add_changes = [&](const LinkRate& link) {
    for (double time = link.curve.NextChange(-1); time < kInfinity; time = link.curve.NextChange(time)) {
      change_times_.push_back(time);
    }
  };
  for (size_t w = 0; w < options_.workers.size(); ++w) {
    if (Shares(static_cast<int>(w))) add_changes(options_.workers[w]);
  }
  for (const LinkRate& site : options_.sites) add_changes(site);
  add_changes(options_.coordinator);
  std::sort(change_times_.begin(), change_times_.end());
  change_times_.erase(std::unique(change_times_.begin(), change_times_.end()), change_times_.end());
}

bool TransferNetwork::Shares(int worker) const {
  const size_t site = static_cast<size_t>(options_.site_of_worker[static_cast<size_t>(worker)]);
  return std::isfinite(options_.coordinator.bytes_per_s) || std::isfinite(options_.sites[site].bytes_per_s);
}

void TransferNetwork::Begin(double now_s, int worker) {
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  Transfer& transfer = lane.queue.front();
  transfer.start_s = now_s;
  lane.sequence = ++last_sequence_;
  if (Shares(worker)) {
    Progress(now_s);
    shared_.push_back({.worker = worker, .left_bytes = transfer.bytes});
    divided_ = false;
  } else {
    const LinkRate& link = options_.workers[static_cast<size_t>(worker)];
    ends_.push({.time_s = link.curve.Finish(now_s, transfer.bytes / link.bytes_per_s),
                .worker = worker,
                .sequence = lane.sequence});
  }
}

void TransferNetwork::Start(double now_s, int worker, int64_t tag, double bytes) {
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  lane.queue.push_back({.worker = worker, .tag = tag, .bytes = bytes});
  if (lane.queue.size() == 1) Begin(now_s, worker);
}

double TransferNetwork::Cancel(double now_s, int worker, int64_t tag) {
  Lane& lane = lanes_[static_cast<size_t>(worker)];
  double left_bytes = 0;
  for (size_t i = lane.queue.size(); i-- > 1;) {
    if (lane.queue[i].tag != tag) continue;
    left_bytes += lane.queue[i].bytes;
    lane.queue.erase(lane.queue.begin() + static_cast<std::ptrdiff_t>(i));
  }
  if (lane.queue.empty() || lane.queue.front().tag != tag) return left_bytes;
  if (Shares(worker)) {
    Progress(now_s);
    const auto found =
        std::find_if(shared_.begin(), shared_.end(), [&](const Shared& s) { return s.worker == worker; });
    left_bytes += found->left_bytes;
    shared_.erase(found);
    divided_ = false;
  } else {
    // Exact where the rate has not changed since; else what is left is what would have been carried until the end.
    const LinkRate& link = options_.workers[static_cast<size_t>(worker)];
    const Transfer& transfer = lane.queue.front();
    double moved = 0;
    for (double time = transfer.start_s; time < now_s;) {
      const double until = std::min(now_s, link.curve.NextChange(time));
      moved += (until - time) * link.At(time);
      time = until;
    }
    left_bytes += std::isnan(moved) ? 0 : std::max(0.0, transfer.bytes - moved);
    lane.sequence = 0;
  }
  lane.queue.pop_front();
  if (!lane.queue.empty()) Begin(now_s, worker);
  return left_bytes;
}

void TransferNetwork::Progress(double now_s) {
  if (now_s == now_s_) return;
  if (!divided_) Divide();
  for (Shared& s : shared_) s.left_bytes = std::max(0.0, s.left_bytes - s.rate * (now_s - now_s_));
  now_s_ = now_s;
  divided_ = shared_.empty();
}

void TransferNetwork::Divide() {
  // Raises the bytes per second for each byte of size, for all transfers alike, until a link is full; what goes through it
  // stays as it is, and the others are raised further.
  struct Pool {
    double left = 0;     // Of the link's rate.
    double wanted = 0;   // What its transfers' own links let through.
    double weights = 0;  // Of its transfers that still rise.
    int rising = 0;      // Those; a sum of weights may keep a rest when all have been subtracted.
    bool scarce() const { return wanted > left; }
    double Level() const { return rising > 0 ? std::max(0.0, left) / weights : kInfinity; }
  };
  std::vector<Pool> sites(options_.sites.size());
  Pool coordinator{.left = options_.coordinator.At(now_s_)};
  struct Rising {
    double own_level;  // Where its worker's link is full.
    double own_rate;
    double weight;
    size_t site;
    Shared* transfer;
  };
  std::vector<Rising> rising;
  rising.reserve(shared_.size());
  std::vector<size_t> scarce_sites;
  for (Shared& s : shared_) {
    const auto worker = static_cast<size_t>(s.worker);
    const double weight = lanes_[worker].queue.front().bytes;
    const double own_rate = options_.workers[worker].At(now_s_);
    s.rate = own_rate;
    if (weight == 0) {
      s.rate = kInfinity;
      continue;
    }
    const auto site = static_cast<size_t>(options_.site_of_worker[worker]);
    rising.push_back({own_rate / weight, own_rate, weight, site, &s});
    if (sites[site].rising == 0) sites[site].left = options_.sites[site].At(now_s_);
    const bool was_scarce = sites[site].scarce();
    for (Pool* pool : {&sites[site], &coordinator}) {
      pool->wanted += own_rate;
      pool->weights += weight;
      ++pool->rising;
    }
    if (sites[site].scarce() && !was_scarce) scarce_sites.push_back(site);
  }
  size_t left = scarce_sites.empty() && !coordinator.scarce() ? 0 : rising.size();
  const auto by_level = [](const Rising& a, const Rising& b) { return a.own_level < b.own_level; };
  // Often all are alike.
  if (left > 0 && !std::is_sorted(rising.begin(), rising.end(), by_level)) {
    std::stable_sort(rising.begin(), rising.end(), by_level);
  }
  const auto settle = [&](Rising& r, double rate) {
    r.transfer->rate = rate;
    r.transfer = nullptr;
    for (Pool* pool : {&sites[r.site], &coordinator}) {
      pool->left -= rate;
      pool->weights -= r.weight;
      --pool->rising;
    }
    --left;
  };
  size_t first = 0;
  while (left > 0) {
    while (rising[first].transfer == nullptr) ++first;
    double level = rising[first].own_level;
    size_t full_site = sites.size();
    for (const size_t site : scarce_sites) {
      if (sites[site].Level() < level) {
        level = sites[site].Level();
        full_site = site;
      }
    }
    const bool all = coordinator.Level() < level;
    if (all) level = coordinator.Level();
    if (level == kInfinity) break;  // Neither their own links nor shared ones limit those that are left.
    if (!all && full_site == sites.size()) {
      settle(rising[first], rising[first].own_rate);
      continue;
    }
    for (size_t i = first; i < rising.size(); ++i) {
      if (rising[i].transfer == nullptr || (!all && rising[i].site != full_site)) continue;
      settle(rising[i], level * rising[i].weight);
    }
  }
  shared_end_s_ = kInfinity;
  for (Shared& s : shared_) {
    s.end_s = s.rate > 0 ? now_s_ + s.left_bytes / s.rate : kInfinity;
    shared_end_s_ = std::min(shared_end_s_, s.end_s);
  }
  divided_ = true;
}

double TransferNetwork::NextEvent() {
  while (!ends_.empty() && lanes_[static_cast<size_t>(ends_.top().worker)].sequence != ends_.top().sequence)
    ends_.pop();
  double next_s = ends_.empty() ? kInfinity : ends_.top().time_s;
  if (shared_.empty()) return next_s;
  if (!divided_) Divide();
  next_s = std::min(next_s, shared_end_s_);
  const auto change = std::upper_bound(change_times_.begin(), change_times_.end(), now_s_);
  return change == change_times_.end() ? next_s : std::min(next_s, *change);
}

std::vector<TransferNetwork::Transfer> TransferNetwork::Advance() {
  const double now_s = NextEvent();
  std::vector<Transfer> ended;
  const auto end = [&](int worker) {
    Lane& lane = lanes_[static_cast<size_t>(worker)];
    ended.push_back(lane.queue.front());
    ended.back().end_s = now_s;
    lane.queue.pop_front();
    lane.sequence = 0;
  };
  for (; !ends_.empty() && ends_.top().time_s <= now_s; ends_.pop()) {
    if (lanes_[static_cast<size_t>(ends_.top().worker)].sequence == ends_.top().sequence) end(ends_.top().worker);
  }
  if (!shared_.empty()) {
    Progress(now_s);
    size_t kept = 0;
    for (const Shared& s : shared_) {
      const double start_s = lanes_[static_cast<size_t>(s.worker)].queue.front().start_s;
      if (s.end_s - now_s <= kSameEnd * (s.end_s - start_s)) {
        end(s.worker);
      } else {
        shared_[kept++] = s;
      }
    }
    shared_.resize(kept);
    divided_ = shared_.empty();
    if (divided_) shared_end_s_ = kInfinity;
  }
  std::sort(ended.begin(), ended.end(), [](const Transfer& a, const Transfer& b) { return a.worker < b.worker; });
  for (const Transfer& transfer : ended) {
    if (!lanes_[static_cast<size_t>(transfer.worker)].queue.empty()) Begin(now_s, transfer.worker);
  }
  return ended;
}

}  // namespace causeway::scheduler
