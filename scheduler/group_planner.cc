#include "scheduler/group_planner.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

constexpr int64_t kMaxMessages = int64_t{1} << 20;

struct Bounded {
  absl::string_view field;
  int64_t value;
  int64_t most;
};

absl::Status CheckWithin(std::initializer_list<Bounded> fields) {
  for (const Bounded& f : fields) {
    if (f.value < 1 || f.value > f.most) {
      return absl::InvalidArgumentError(absl::StrCat(f.field, " is ", f.value, ", must be 1 to ", f.most));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckNotNegative(std::initializer_list<std::pair<absl::string_view, double>> fields) {
  for (const auto& [field, value] : fields) {
    if (!(value >= 0) || !std::isfinite(value)) {
      return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be a finite number, at least 0"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckRate(absl::string_view field, double value) {
  if (value > 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(field, " is ", value, ", must be above 0"));
}

absl::Status Validate(const GroupModel& model) {
  if (!(model.parameter_bytes > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter_bytes is ", model.parameter_bytes, ", must be above 0"));
  }
  if (absl::Status status = CheckNotNegative({{"parameter_bytes", model.parameter_bytes},
                                              {"state_bytes", model.state_bytes},
                                              {"largest_layer_bytes", model.largest_layer_bytes},
                                              {"activation_bytes", model.activation_bytes}});
      !status.ok()) {
    return status;
  }
  return CheckWithin({{"layers", model.layers, kMaxMessages}});
}

std::vector<int64_t> Ranks(int64_t first, int64_t stride, int64_t members) {
  std::vector<int64_t> ranks;
  for (int64_t j = 0; j < members; ++j) ranks.push_back(first + j * stride);
  return ranks;
}

// The most collectives of the family that share the link of one unit: those with members inside and outside of it.
int64_t Congestion(int64_t workers, const CollectiveFamily& family, int64_t unit_workers) {
  int64_t most = 0;
  for (int64_t begin = 0; begin < workers; begin += unit_workers) {
    const int64_t end = std::min(workers, begin + unit_workers);
    int64_t crossing = 0;
    for (int64_t rank = begin; rank < end; ++rank) {
      const int64_t member = rank / family.stride % family.members;
      if (member > 0 && rank - family.stride >= begin) continue;  // Counted at an earlier member.
      const int64_t last = rank + (family.members - 1 - member) * family.stride;
      if (member > 0 || last >= end) ++crossing;
    }
    most = std::max(most, crossing);
  }
  return most;
}

// `cost.bytes` through the links of a network of which tier t's busiest link carries congestion(t) times as much.
template <typename CongestionOf>
void FindSeconds(const Network& network, int64_t hops, CongestionOf congestion, CollectiveCost& cost) {
  double latency_s = 0;
  double busiest_s = -1;
  for (size_t t = 0; t < network.tiers.size(); ++t) {
    const int64_t sharing = congestion(network.tiers[t]);
    if (sharing == 0) continue;
    const double seconds = static_cast<double>(sharing) * cost.bytes / network.tiers[t].bandwidth_bytes_per_s;
    latency_s = network.tiers[t].latency_s;
    if (seconds <= busiest_s) continue;
    busiest_s = seconds;
    cost.congestion = sharing;
    cost.tier = static_cast<int>(t);
  }
  cost.seconds = busiest_s + static_cast<double>(hops) * latency_s;
}

CollectiveCost Cost(const Network& network, int64_t workers, const CollectiveFamily& family, Collective collective,
                    double tensor_bytes, int64_t messages) {
  CollectiveCost cost{.members = family.members};
  if (family.members == 1) return cost;
  const int64_t passes = collective == Collective::kAllReduce ? 2 : 1;
  const auto n = static_cast<double>(family.members);
  cost.bytes = static_cast<double>(passes) * (n - 1) / n * tensor_bytes;
  FindSeconds(
      network, passes * (family.members - 1) * messages,
      [&](const LinkTier& tier) { return Congestion(workers, family, tier.unit_workers); }, cost);
  return cost;
}

// Every worker sends `bytes` to a server outside the network, one way.
CollectiveCost ServerCost(const Network& network, int64_t workers, double bytes, int64_t messages,
                          double server_bandwidth_bytes_per_s) {
  CollectiveCost cost{.members = workers, .bytes = bytes};
  FindSeconds(
      network, messages, [&](const LinkTier& tier) { return std::min(workers, tier.unit_workers); }, cost);
  const double server_s = static_cast<double>(workers) * bytes / server_bandwidth_bytes_per_s;
  const double latency_s = static_cast<double>(messages) * network.tiers.back().latency_s;
  if (server_s > cost.seconds - latency_s) {
    cost.seconds = server_s + latency_s;
    cost.congestion = workers;
    cost.tier = static_cast<int>(network.tiers.size());
  }
  return cost;
}

GroupCost Cost(const GroupLayout& layout, const GroupModel& model, const Network& network, SiteExchange exchange,
               double server_bandwidth_bytes_per_s) {
  const int64_t workers = layout.workers();
  const int64_t replicas = layout.replicas();
  const CollectiveFamily shard_groups{.members = layout.shards, .stride = 1};
  const CollectiveFamily replica_groups{.members = replicas, .stride = layout.shards};
  const CollectiveFamily averaging_groups{.members = layout.sites, .stride = layout.workers_per_site};
  const double shard_bytes = model.parameter_bytes / static_cast<double>(layout.shards);
  const auto cost_of = [&](const CollectiveFamily& family, Collective collective, double bytes) {
    return Cost(network, workers, family, collective, bytes, model.layers);
  };

  GroupCost cost;
  cost.gather = cost_of(shard_groups, Collective::kAllGather, model.parameter_bytes);
  cost.scatter = cost_of(shard_groups, Collective::kReduceScatter, model.parameter_bytes);
  cost.replicate = cost_of(replica_groups, Collective::kAllReduce, shard_bytes);
  cost.intra_bytes = 2 * cost.gather.bytes + cost.scatter.bytes + cost.replicate.bytes;
  cost.intra_s = 2 * cost.gather.seconds + cost.scatter.seconds + cost.replicate.seconds;
  if (layout.sites > 1) {
    const bool split = exchange != SiteExchange::kAllReduce;
    const double exchanged_bytes = split ? shard_bytes / static_cast<double>(replicas) : shard_bytes;
    if (exchange == SiteExchange::kServer) {
      cost.exchange = ServerCost(network, workers, exchanged_bytes, model.layers, server_bandwidth_bytes_per_s);
      cost.inter_bytes = 2 * cost.exchange.bytes;
      cost.inter_s = 2 * cost.exchange.seconds;
    } else {
      cost.exchange = cost_of(averaging_groups, Collective::kAllReduce, exchanged_bytes);
      cost.inter_bytes = cost.exchange.bytes;
      cost.inter_s = cost.exchange.seconds;
    }
    if (split) {
      const CollectiveCost gather = cost_of(replica_groups, Collective::kAllGather, shard_bytes);
      cost.inter_bytes += gather.bytes;
      cost.inter_s += gather.seconds;
    }
  } else {
    cost.exchange.members = 1;
  }
  const auto period = static_cast<double>(layout.period);
  cost.step_bytes = cost.intra_bytes + cost.inter_bytes / period;
  cost.step_s = cost.intra_s + cost.inter_s / period;
  if (cost.step_bytes > 0) cost.inter_share = cost.inter_bytes / period / cost.step_bytes;
  return cost;
}

// The least T, up to max_period, for which an exchange takes at most `fraction` of the time of what else a step does.
int64_t ChoosePeriod(double exchange_s, double other_s, double fraction, int64_t max_period) {
  const double wanted = std::ceil(exchange_s / (fraction * other_s));
  // Not a number where both are 0: then nothing is saved by waiting.
  if (std::isnan(wanted) || wanted <= 1) return 1;
  return wanted < static_cast<double>(max_period) ? static_cast<int64_t>(wanted) : max_period;
}

}  // namespace

absl::Status Validate(const GroupLayout& layout) {
  if (absl::Status status = CheckWithin({{"sites", layout.sites, kMaxGroupWorkers},
                                         {"workers_per_site", layout.workers_per_site, kMaxGroupWorkers},
                                         {"shards", layout.shards, kMaxGroupWorkers},
                                         {"period", layout.period, kMaxGroupPeriod}});
      !status.ok()) {
    return status;
  }
  if (layout.workers() > kMaxGroupWorkers) {
    return absl::InvalidArgumentError(
        absl::StrCat("sites times workers_per_site is ", layout.workers(), ", must be at most ", kMaxGroupWorkers));
  }
  if (layout.workers_per_site % layout.shards != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shards is ", layout.shards, ", must divide workers_per_site, ", layout.workers_per_site));
  }
  return absl::OkStatus();
}

absl::string_view GroupMethodName(const GroupLayout& layout) {
  if (layout.sites == 1) return layout.replicas() == 1 ? "fsdp" : "hsdp";
  return layout.replicas() == 1 ? "fl_fsdp" : "fl_hsdp";
}

int64_t RankOf(const GroupLayout& layout, const GroupPlace& place) {
  return place.site * layout.workers_per_site + place.replica * layout.shards + place.shard;
}

GroupPlace PlaceOf(const GroupLayout& layout, int64_t rank) {
  const int64_t in_site = rank % layout.workers_per_site;
  return {.site = rank / layout.workers_per_site, .replica = in_site / layout.shards, .shard = in_site % layout.shards};
}

std::vector<int64_t> ShardGroup(const GroupLayout& layout, int64_t rank) {
  return Ranks(rank - PlaceOf(layout, rank).shard, 1, layout.shards);
}

std::vector<int64_t> ReplicaGroup(const GroupLayout& layout, int64_t rank) {
  return Ranks(rank - PlaceOf(layout, rank).replica * layout.shards, layout.shards, layout.replicas());
}

std::vector<int64_t> SiteGroup(const GroupLayout& layout, int64_t rank) {
  return Ranks(rank - rank % layout.workers_per_site, 1, layout.workers_per_site);
}

std::vector<int64_t> AveragingGroup(const GroupLayout& layout, int64_t rank) {
  return Ranks(rank % layout.workers_per_site, layout.workers_per_site, layout.sites);
}

absl::Status Validate(const Network& network) {
  if (network.tiers.empty()) return absl::InvalidArgumentError("there are no tiers");
  for (size_t t = 0; t < network.tiers.size(); ++t) {
    const LinkTier& tier = network.tiers[t];
    const auto in_tier = [&](const auto&... what) {
      return absl::InvalidArgumentError(absl::StrCat("tier \"", tier.name, "\": ", what...));
    };
    if (tier.name.empty()) return absl::InvalidArgumentError(absl::StrCat("tiers[", t, "]: name is empty"));
    for (size_t other = 0; other < t; ++other) {
      if (network.tiers[other].name == tier.name) return in_tier("name is used twice");
    }
    if (t == 0 ? tier.unit_workers != 1
               : tier.unit_workers <= network.tiers[t - 1].unit_workers ||
                     tier.unit_workers % network.tiers[t - 1].unit_workers != 0) {
      return in_tier("unit_workers is ", tier.unit_workers, ", must be ",
                     t == 0 ? absl::StrCat("1 in the first tier")
                            : absl::StrCat("a multiple, at least twice, of ", network.tiers[t - 1].unit_workers));
    }
    if (!(tier.bandwidth_bytes_per_s > 0) || !std::isfinite(tier.bandwidth_bytes_per_s)) {
      return in_tier("bandwidth_bytes_per_s is ", tier.bandwidth_bytes_per_s, ", must be a finite number above 0");
    }
    if (absl::Status status = CheckNotNegative({{"latency_s", tier.latency_s}}); !status.ok()) {
      return in_tier(status.message());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CollectiveCost> CostOfCollective(const Network& network, int64_t workers, const CollectiveFamily& family,
                                                Collective collective, double tensor_bytes, int64_t messages) {
  if (absl::Status status = Validate(network); !status.ok()) return status;
  if (absl::Status status = CheckWithin({{"workers", workers, kMaxGroupWorkers},
                                         {"members", family.members, workers},
                                         {"stride", family.stride, workers},
                                         {"messages", messages, kMaxMessages}});
      !status.ok()) {
    return status;
  }
  if (workers % (family.members * family.stride) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "workers is ", workers, ", must be a multiple of members times stride, ", family.members * family.stride));
  }
  if (absl::Status status = CheckNotNegative({{"tensor_bytes", tensor_bytes}}); !status.ok()) return status;
  return Cost(network, workers, family, collective, tensor_bytes, messages);
}

absl::string_view SiteExchangeName(SiteExchange exchange) {
  switch (exchange) {
    case SiteExchange::kAllReduce: return "all_reduce";
    case SiteExchange::kSplitAllReduce: return "split_all_reduce";
    case SiteExchange::kServer: return "server";
  }
  return "";
}

absl::StatusOr<SiteExchange> SiteExchangeFromName(absl::string_view name) {
  for (const SiteExchange exchange : {SiteExchange::kAllReduce, SiteExchange::kSplitAllReduce, SiteExchange::kServer}) {
    if (name == SiteExchangeName(exchange)) return exchange;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is no exchange of sites; known: all_reduce, split_all_reduce, server"));
}

absl::StatusOr<GroupCost> CostOfGroups(const GroupLayout& layout, const GroupModel& model, const Network& network,
                                       SiteExchange exchange, double server_bandwidth_bytes_per_s) {
  if (absl::Status status = Validate(layout); !status.ok()) return status;
  if (absl::Status status = Validate(model); !status.ok()) return status;
  if (absl::Status status = Validate(network); !status.ok()) return status;
  if (absl::Status status = CheckRate("server_bandwidth_bytes_per_s", server_bandwidth_bytes_per_s); !status.ok()) {
    return status;
  }
  return Cost(layout, model, network, exchange, server_bandwidth_bytes_per_s);
}

absl::StatusOr<std::vector<GroupChoice>> PlanGroups(const GroupProblem& problem) {
  if (absl::Status status = CheckWithin({{"workers", problem.workers, kMaxGroupWorkers},
                                         {"max_period", problem.max_period, kMaxGroupPeriod},
                                         {"min_workers_per_site", problem.min_workers_per_site, problem.workers}});
      !status.ok()) {
    return status;
  }
  if (absl::Status status = Validate(problem.model); !status.ok()) return status;
  if (absl::Status status = Validate(problem.network); !status.ok()) return status;
  if (absl::Status status = CheckRate("device_memory_bytes", problem.device_memory_bytes); !status.ok()) return status;
  if (absl::Status status = CheckNotNegative({{"compute_s", problem.compute_s}}); !status.ok()) return status;
  if (absl::Status status = CheckRate("server_bandwidth_bytes_per_s", problem.server_bandwidth_bytes_per_s);
      !status.ok()) {
    return status;
  }
  if (!(problem.exchange_fraction > 0 && problem.exchange_fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("exchange_fraction is ", problem.exchange_fraction, ", must be above 0 and at most 1"));
  }

  std::vector<GroupChoice> choices;
  double least_memory_bytes = kUnlimitedBandwidth;
  for (int64_t per_site = problem.min_workers_per_site; per_site <= problem.workers; ++per_site) {
    if (problem.workers % per_site != 0) continue;
    for (int64_t shards = 1; shards <= per_site; ++shards) {
      if (per_site % shards != 0) continue;
      GroupChoice choice{
          .layout = {.sites = problem.workers / per_site, .workers_per_site = per_site, .shards = shards},
          .memory_bytes = (problem.model.parameter_bytes + problem.model.state_bytes) / static_cast<double>(shards) +
                          problem.model.largest_layer_bytes + problem.model.activation_bytes};
      least_memory_bytes = std::min(least_memory_bytes, choice.memory_bytes);
      if (choice.memory_bytes > problem.device_memory_bytes) continue;
      const auto cost = [&] {
        return Cost(choice.layout, problem.model, problem.network, problem.exchange,
                    problem.server_bandwidth_bytes_per_s);
      };
      choice.cost = cost();
      if (choice.layout.sites > 1) {
        choice.layout.period = ChoosePeriod(choice.cost.inter_s, choice.cost.intra_s + problem.compute_s,
                                            problem.exchange_fraction, problem.max_period);
        choice.cost = cost();
      }
      choices.push_back(std::move(choice));
    }
  }
  if (choices.empty()) {
    return absl::FailedPreconditionError(absl::StrCat("no division of ", problem.workers, " workers fits ",
                                                      problem.device_memory_bytes, " bytes of memory; the least is ",
                                                      least_memory_bytes, " bytes"));
  }
  std::sort(choices.begin(), choices.end(), [](const GroupChoice& a, const GroupChoice& b) {
    return std::tie(a.cost.step_s, a.layout.sites, a.layout.shards) <
           std::tie(b.cost.step_s, b.layout.sites, b.layout.shards);
  });
  return choices;
}

}  // namespace causeway::scheduler
