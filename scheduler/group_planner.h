// Sharded training in groups (FSDP, HSDP, FL+FSDP, FL+HSDP): who is in which group, what a step moves and how long that
// takes on a network of tiers, and which division of a cluster is best.
//
// G sites of K workers train G replicas of the model, each sharded s ways inside its site and kept R = K / s times. Every T
// steps the sites average their parameters. The four methods are one formula: G = 1 is FSDP (R = 1) or HSDP (R > 1), G > 1
// is FL+FSDP or FL+HSDP.
//
// Workers have ranks 0..G*K-1, and ranks that are neighbours are neighbours on the network: unit i of a tier holds the ranks
// [i * unit_workers, (i + 1) * unit_workers).
//
// All functions are pure and thread-safe. Bytes are those that one worker sends; seconds are of communication alone, nothing
// of it hidden.
#ifndef CAUSEWAY_SCHEDULER_GROUP_PLANNER_H_
#define CAUSEWAY_SCHEDULER_GROUP_PLANNER_H_

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace causeway::scheduler {

inline constexpr int64_t kMaxGroupWorkers = int64_t{1} << 16;
inline constexpr int64_t kMaxGroupPeriod = int64_t{1} << 20;
inline constexpr double kUnlimitedBandwidth = std::numeric_limits<double>::infinity();

struct GroupLayout {
  int64_t sites = 1;             // G >= 1
  int64_t workers_per_site = 1;  // K >= 1; G * K <= kMaxGroupWorkers
  int64_t shards = 1;            // s >= 1; divides K
  int64_t period = 1;  // T, steps between exchanges of the sites: 1..kMaxGroupPeriod; no meaning for one site.

  int64_t workers() const { return sites * workers_per_site; }
  int64_t replicas() const { return workers_per_site / shards; }
  friend bool operator==(const GroupLayout&, const GroupLayout&) = default;
};

// Errors: InvalidArgument, naming the field. Everything below requires or checks a valid layout.
absl::Status Validate(const GroupLayout& layout);

// "fsdp", "hsdp", "fl_fsdp", "fl_hsdp".
absl::string_view GroupMethodName(const GroupLayout& layout);

// A worker's place: site 0..G-1, replica 0..R-1 in the site, shard 0..s-1 in the replica.
struct GroupPlace {
  int64_t site = 0;
  int64_t replica = 0;
  int64_t shard = 0;

  friend bool operator==(const GroupPlace&, const GroupPlace&) = default;
};

// rank(g, r, q) = g * K + r * s + q, and back. Require a place or rank of the layout.
int64_t RankOf(const GroupLayout& layout, const GroupPlace& place);
GroupPlace PlaceOf(const GroupLayout& layout, int64_t rank);

// The ranks, ascending, that a worker works together with, itself included: the shards of its replica (g, r, *); its shard's
// replicas in its site (g, *, q); its site (g, *, *); its shard and replica of every site (*, r, q). Require a rank of the
// layout.
std::vector<int64_t> ShardGroup(const GroupLayout& layout, int64_t rank);
std::vector<int64_t> ReplicaGroup(const GroupLayout& layout, int64_t rank);
std::vector<int64_t> SiteGroup(const GroupLayout& layout, int64_t rank);
std::vector<int64_t> AveragingGroup(const GroupLayout& layout, int64_t rank);

// A level of the network. Each unit of `unit_workers` neighbours shares one link to the rest; full duplex.
struct LinkTier {
  std::string name;                  // Unique in a network.
  int64_t unit_workers = 0;          // >= 1
  double bandwidth_bytes_per_s = 0;  // > 0; of one unit's link, each way.
  double latency_s = 0;              // >= 0; of one message between two units.
};

// From the inside out. The first tier has units of one worker (its own link); each further tier's units are a whole number,
// at least two, of the units before.
struct Network {
  std::vector<LinkTier> tiers;
};

// Errors: InvalidArgument, naming tier and field.
absl::Status Validate(const Network& network);

enum class Collective { kAllGather, kReduceScatter, kAllReduce };

struct CollectiveCost {
  int64_t members = 1;
  double bytes = 0;  // Sent by each member: (n-1)/n of the tensor; twice that by all-reduce.
  double seconds = 0;
  int64_t congestion = 0;  // The most collectives that share one unit's link, in the tier that binds.
  int tier = -1;           // The tier that binds, an index; the number of tiers: a server's link; -1: nothing is sent.
};

// A family of collectives that all workers of a cluster run at the same time: each run of stride * members consecutive ranks
// holds `stride` of them, and collective o of run b has the ranks (b * members + j) * stride + o, 0 <= j < members.
struct CollectiveFamily {
  int64_t members = 1;
  int64_t stride = 1;
};

// The cost of one collective of the family on a tensor of `tensor_bytes`, cut into `messages` equal ones that follow each
// other. A ring, laid out unit by unit, crosses the link of each unit that it enters once; collectives that cross the same
// link share it. So the seconds are the largest, over the tiers that are crossed, of
//   (collectives through the busiest link) * bytes / bandwidth
// plus the ring's hops, n-1 or 2 (n-1), times messages, times the latency of the outermost tier crossed.
// O(workers * tiers).
// Errors: InvalidArgument (an invalid network; workers outside 1..kMaxGroupWorkers or not a whole number of runs; bytes
// that are negative or not finite; messages outside 1..2^20).
absl::StatusOr<CollectiveCost> CostOfCollective(const Network& network, int64_t workers, const CollectiveFamily& family,
                                                Collective collective, double tensor_bytes, int64_t messages = 1);

// How the sites average their parameters.
enum class SiteExchange {
  kAllReduce,       // Each worker its whole shard: R-fold redundant in a site of R replicas, as published.
  kSplitAllReduce,  // Each replica 1/R of its shard; then the replicas of a shard gather what the others got.
  kServer,          // Each worker sends its shard's 1/R to a server outside the network and receives it; then as above.
};

// "all_reduce", "split_all_reduce", "server".
absl::string_view SiteExchangeName(SiteExchange exchange);
// Errors: InvalidArgument (another name).
absl::StatusOr<SiteExchange> SiteExchangeFromName(absl::string_view name);

struct GroupModel {
  double parameter_bytes = 0;  // P > 0; of all parameters, and of all gradients.
  // Of everything else than parameters that is sharded: gradients, optimizer state, master copies. For the planner.
  double state_bytes = 0;
  double largest_layer_bytes = 0;  // Gathered whole while it computes. For the planner.
  double activation_bytes = 0;     // And all else that a worker holds whatever the shards. For the planner.
  int64_t layers = 1;              // Collectives go layer by layer; 1: one collective for the model.
};

struct GroupCost {
  // Per step and worker: two all-gathers of the parameters and one reduce-scatter of the gradients among s shards, then one
  // all-reduce of the gradients' shard among R replicas.
  double intra_bytes = 0;
  double intra_s = 0;
  // Per exchange and worker, every T steps; 0 for one site.
  double inter_bytes = 0;
  double inter_s = 0;
  // C_intra + C_inter / T.
  double step_bytes = 0;
  double step_s = 0;
  double inter_share = 0;  // Of step_bytes, what goes between sites; 0 where nothing is sent.

  CollectiveCost gather;     // One of the two all-gathers.
  CollectiveCost scatter;    // The reduce-scatter.
  CollectiveCost replicate;  // The all-reduce among replicas.
  CollectiveCost exchange;   // Between the sites, the gather among replicas after it not included. By kServer: one way.
};

// With kServer a site exchange is at least as long as the busiest link takes, out and then in, and as a server that has
// `server_bandwidth_bytes_per_s` each way (> 0; infinity: as fast as the network) takes for all workers.
// O(workers * tiers).
// Errors: InvalidArgument (an invalid layout, network or model, naming the field).
absl::StatusOr<GroupCost> CostOfGroups(const GroupLayout& layout, const GroupModel& model, const Network& network,
                                       SiteExchange exchange = SiteExchange::kAllReduce,
                                       double server_bandwidth_bytes_per_s = kUnlimitedBandwidth);

struct GroupProblem {
  int64_t workers = 0;  // N, 1..kMaxGroupWorkers
  GroupModel model;
  Network network;
  double device_memory_bytes = 0;  // > 0; of each worker.
  int64_t max_period = 1;          // The limit on T, 1..kMaxGroupPeriod.
  double compute_s = 0;            // >= 0; forward, backward and optimizer of one step: what an exchange's share is of.
  // In (0, 1]. T is raised until the exchange is at most this fraction of a step's other time, and no further: what it would
  // save is little, and what it costs is staleness.
  double exchange_fraction = 0.05;
  // 1..workers. A step's batch is that of K workers, and may not be arbitrarily small.
  int64_t min_workers_per_site = 1;
  SiteExchange exchange = SiteExchange::kAllReduce;
  double server_bandwidth_bytes_per_s = kUnlimitedBandwidth;
};

struct GroupChoice {
  GroupLayout layout;
  GroupCost cost;
  double memory_bytes = 0;  // (parameters + state) / s + largest layer + activations
};

// Every (G, K, s) with G * K = N and s a divisor of K that fits the memory, each with its T; the least step_s first, and of
// equals the one with fewer sites, then with fewer shards. O(N * tiers * choices).
// Errors: InvalidArgument (a value out of range, naming the field); FailedPrecondition (nothing fits the memory, naming the
// least that is needed).
absl::StatusOr<std::vector<GroupChoice>> PlanGroups(const GroupProblem& problem);

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_GROUP_PLANNER_H_
