#ifndef CAUSEWAY_SCHEDULER_TRANSFER_NETWORK_H_
#define CAUSEWAY_SCHEDULER_TRANSFER_NETWORK_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <queue>
#include <vector>

#include "scheduler/rate_curve.h"

namespace causeway::scheduler {

// A link's rate and how it changes.
struct LinkRate {
  double bytes_per_s = 0;  // > 0; infinity: limits nothing.
  RateCurve curve;

  double At(double time_s) const { return bytes_per_s * curve.FactorAt(time_s); }
};

// One direction of the traffic between a coordinator and workers, over time: each worker's own link, the link that the
// workers of a site share, and the coordinator's, which all share.
//
// A worker's link carries its transfers one after the other. Those that are under way divide a shared link in proportion to
// their sizes, as far as their other links let them use it (weighted max-min). So transfers that begin together end at the
// larger of (bytes over its own link) and (all bytes over the shared link), the least that is possible for the last of them.
//
// Used by an event loop: NextEnd says when something happens, Advance makes it happen. Times never go back.
// Not thread-safe.
class TransferNetwork {
 public:
  struct Transfer {
    int worker = 0;
    int64_t tag = 0;  // The caller's.
    double bytes = 0;
    double start_s = 0;  // When its worker's link began to carry it.
    double end_s = 0;
  };
  struct Options {
    std::vector<int> site_of_worker;  // [workers]
    std::vector<LinkRate> workers;    // [workers]
    std::vector<LinkRate> sites;      // [sites]
    LinkRate coordinator;
  };
  explicit TransferNetwork(Options options);

  // Begins, or queues behind the worker's others, a transfer of `bytes` >= 0. Here and below `now_s` is not after NextEvent().
  void Start(double now_s, int worker, int64_t tag, double bytes);
  // Ends the worker's transfers with this tag, under way or queued, without result. Returns the bytes that had not been moved.
  double Cancel(double now_s, int worker, int64_t tag);

  // When Advance has something to do next: the end of a transfer or a change of a rate; infinity: never.
  double NextEvent();
  // Moves to NextEvent(), and returns the transfers that end then, by worker.
  std::vector<Transfer> Advance();

 private:
  // A transfer that shares a link.
  struct Shared {
    int worker = 0;
    double left_bytes = 0;  // At now_s_.
    double rate = 0;
    double end_s = 0;  // At this rate.
  };
  // Where no link is shared a transfer's end is known when it begins.
  struct End {
    double time_s = 0;
    int worker = 0;
    int64_t sequence = 0;
    bool operator>(const End& other) const {
      return time_s != other.time_s ? time_s > other.time_s : worker > other.worker;
    }
  };
  struct Lane {
    std::deque<Transfer> queue;  // The first is under way.
    int64_t sequence = 0;        // Of the transfer under way; tells it from ones that were cancelled.
  };

  bool Shares(int worker) const;
  void Begin(double now_s, int worker);
  // What the shared links have carried until `now_s`.
  void Progress(double now_s);
  // Divides the shared links anew, from now_s_ on.
  void Divide();

  const Options options_;
  std::vector<double> change_times_;  // Ascending; of the shared links, and of the links of those who share them.
  std::vector<Lane> lanes_;           // [workers]
  std::priority_queue<End, std::vector<End>, std::greater<End>> ends_;  // Some may be of cancelled transfers.
  int64_t last_sequence_ = 0;

  std::vector<Shared> shared_;
  double now_s_ = 0;     // Of shared_.
  bool divided_ = true;  // Rates and ends of shared_ are those from now_s_ on.
  double shared_end_s_;  // The first of them.
};

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_TRANSFER_NETWORK_H_
