#include "scheduler/allocation_parties.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "scheduler/site_batches.h"

namespace causeway::scheduler::internal {
namespace {

double UplinkOf(const DeviceProfile& device) {
  return device.uplink_bytes_per_s.value_or(device.bandwidth_bytes_per_s);
}

// The groups of devices that are parties, by their first member.
std::vector<std::vector<size_t>> Groups(const AllocationProblem& problem) {
  std::vector<std::vector<size_t>> groups;
  std::map<std::string, size_t> group_of_site;
  for (size_t i = 0; i < problem.devices.size(); ++i) {
    size_t group = groups.size();
    if (problem.lock_step_sites) group = group_of_site.try_emplace(problem.devices[i].site, group).first->second;
    if (group == groups.size()) groups.emplace_back();
    groups[group].push_back(i);
  }
  return groups;
}

PartyProblem MakeParties(const AllocationProblem& problem, bool relaxed) {
  PartyProblem result{.samples = problem.samples,
                      .epochs = problem.epochs,
                      .rounds_per_epoch = static_cast<double>(problem.rounds_per_epoch),
                      .objective = problem.objective,
                      .parties = {}};
  if (problem.egress_bytes_per_s) {
    result.egress_send_s = problem.sample_bytes / *problem.egress_bytes_per_s;
    result.egress_model_s = problem.model_bytes / *problem.egress_bytes_per_s;
  }
  for (std::vector<size_t>& members : Groups(problem)) {
    Party party{.members = std::move(members), .local = true};
    // Each member of a site exchanges its part of the model.
    const double part_bytes = problem.model_bytes / static_cast<double>(party.members.size());
    std::vector<SiteMemberRoom> rooms;
    double samples_per_s = 0;  // Over all links at once.
    for (size_t i : party.members) {
      const DeviceProfile& device = problem.devices[i];
      party.down_s = std::max(party.down_s, part_bytes / device.bandwidth_bytes_per_s);
      party.up_s = std::max(party.up_s, part_bytes / UplinkOf(device));
      party.step_s = std::max(party.step_s, device.batch_time_s);
      party.batch_size = std::min(kMaxSamples, party.batch_size + device.batch_size);
      party.local = party.local && device.reads_data_locally;
      rooms.push_back({.batch_size = device.batch_size, .capacity_samples = SampleLimit(problem, device)});
      samples_per_s += 1 / SendSecondsPerSample(problem, device);
    }
    if (party.members.size() == 1) {
      party.send_s = SendSecondsPerSample(problem, problem.devices[party.members[0]]);
      party.limit = rooms[0].capacity_samples;
    } else if (relaxed) {
      party.send_s = 1 / samples_per_s;
      for (const SiteMemberRoom& room : rooms) {
        party.limit = std::min(problem.samples, party.limit + room.capacity_samples);
      }
    } else {
      for (size_t i : party.members) {
        const DeviceProfile& device = problem.devices[i];
        const double share = static_cast<double>(device.batch_size) / static_cast<double>(party.batch_size);
        party.send_s = std::max(party.send_s, share * SendSecondsPerSample(problem, device));
      }
      party.limit = std::min(problem.samples, SiteCapacity(rooms));
    }
    result.parties.push_back(std::move(party));
  }
  return result;
}

}  // namespace

int64_t StepsPerEpoch(int64_t samples, int64_t batch_size) {
  return samples / batch_size + (samples % batch_size != 0 ? 1 : 0);
}

int64_t SampleLimit(const AllocationProblem& problem, const DeviceProfile& device) {
  return std::min(problem.samples, device.capacity_samples.value_or(problem.samples));
}

double SendSecondsPerSample(const AllocationProblem& problem, const DeviceProfile& device) {
  return device.reads_data_locally ? 0 : problem.sample_bytes / device.bandwidth_bytes_per_s;
}

double PartyProblem::CommSeconds(const Party& party, int64_t participants) const {
  const double shared_s = static_cast<double>(participants) * egress_model_s;
  return rounds_per_epoch * (std::max(party.down_s, shared_s) + std::max(party.up_s, shared_s));
}

double PartyProblem::OffsetSeconds(const Party& party, int64_t participants) const {
  return objective == AllocationObjective::kSeparable ? 0 : CommSeconds(party, participants);
}

double PartyProblem::SendSeconds(const Party& party, int64_t samples, int64_t sent) const {
  if (party.local || samples == 0) return 0;
  return std::max(static_cast<double>(samples) * party.send_s, static_cast<double>(sent) * egress_send_s);
}

PartyProblem MakeParties(const AllocationProblem& problem) { return MakeParties(problem, false); }
PartyProblem MakeRelaxedParties(const AllocationProblem& problem) { return MakeParties(problem, true); }

Placement::Placement(const PartyProblem* problem, int64_t max_participants)
    : problem_(*problem), max_participants_(max_participants) {}

bool Placement::Holds(absl::Span<const int64_t> caps, int64_t max_sent) const {
  // Saturating at all samples keeps sums of many caps from overflowing.
  int64_t local = 0, sent = 0, takers = 0;
  for (size_t i = 0; i < caps.size(); ++i) {
    int64_t& sum = problem_.parties[i].local ? local : sent;
    sum = std::min(problem_.samples, sum + caps[i]);
    takers += caps[i] > 0;
  }
  if (local + std::min(sent, max_sent) < problem_.samples) return false;
  if (takers <= max_participants_) return true;
  // The same as Choose, but of the caps alone, which is several times faster.
  std::vector<int64_t> locals, others;
  for (size_t i = 0; i < caps.size(); ++i) {
    if (caps[i] > 0) (problem_.parties[i].local ? locals : others).push_back(caps[i]);
  }
  if (locals.empty()) {
    std::nth_element(others.begin(), others.begin() + max_participants_, others.end(), std::greater<>());
    sent = 0;
    for (int64_t k = 0; k < max_participants_; ++k) sent = std::min(problem_.samples, sent + others[k]);
    return std::min(sent, max_sent) >= problem_.samples;
  }
  std::sort(locals.begin(), locals.end(), std::greater<>());
  std::sort(others.begin(), others.end(), std::greater<>());
  return Most(locals, others, max_sent).placed >= problem_.samples;
}

Placement::Mix Placement::Most(absl::Span<const int64_t> locals, absl::Span<const int64_t> others,
                               int64_t max_sent) const {
  std::vector<int64_t> sent = {0};  // [k]: by the k highest.
  for (int64_t cap : others) sent.push_back(std::min(problem_.samples, sent.back() + cap));
  Mix most;
  int64_t local = 0;
  for (size_t k = 0; k <= locals.size() && static_cast<int64_t>(k) <= max_participants_; ++k) {
    const size_t rest = std::min(others.size(), static_cast<size_t>(max_participants_) - k);
    const int64_t placed = local + std::min(sent[rest], max_sent);
    if (placed > most.placed) most = {.locals = k, .others = rest, .placed = placed};
    if (k < locals.size()) local = std::min(problem_.samples, local + locals[k]);
  }
  return most;
}

std::vector<size_t> Placement::Highest(absl::Span<const int64_t> caps, bool local) const {
  std::vector<size_t> parties;
  for (size_t i = 0; i < caps.size(); ++i) {
    if (caps[i] > 0 && problem_.parties[i].local == local) parties.push_back(i);
  }
  const auto end = parties.begin() + std::min(max_participants_, static_cast<int64_t>(parties.size()));
  std::partial_sort(parties.begin(), end, parties.end(),
                    [&](size_t a, size_t b) { return caps[a] != caps[b] ? caps[a] > caps[b] : a < b; });
  parties.erase(end, parties.end());
  return parties;
}

std::vector<size_t> Placement::Choose(absl::Span<const int64_t> caps, int64_t max_sent) const {
  const std::vector<size_t> locals = Highest(caps, true);
  const std::vector<size_t> others = Highest(caps, false);
  std::vector<int64_t> local_caps, other_caps;
  for (size_t i : locals) local_caps.push_back(caps[i]);
  for (size_t i : others) other_caps.push_back(caps[i]);
  const Mix mix = Most(local_caps, other_caps, max_sent);
  std::vector<size_t> chosen(locals.begin(), locals.begin() + static_cast<int64_t>(mix.locals));
  chosen.insert(chosen.end(), others.begin(), others.begin() + static_cast<int64_t>(mix.others));
  return chosen;
}

std::vector<int64_t> Placement::Fill(absl::Span<const int64_t> caps, int64_t max_sent) const {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < caps.size(); ++i) {
    if (caps[i] > 0) chosen.push_back(i);
  }
  if (static_cast<int64_t>(chosen.size()) > max_participants_) chosen = Choose(caps, max_sent);
  std::vector<size_t> locals, others;
  __int128 local = 0, sent = 0;
  for (size_t i : chosen) {
    (problem_.parties[i].local ? locals : others).push_back(i);
    (problem_.parties[i].local ? local : sent) += caps[i];
  }
  const auto in_proportion = static_cast<int64_t>(problem_.samples * sent / (local + sent));
  const int64_t to_send = std::min(max_sent, local == 0 ? problem_.samples : in_proportion);
  std::vector<int64_t> samples(caps.size());
  FillInProportion(to_send, caps, others, &samples);
  FillInProportion(problem_.samples - to_send, caps, locals, &samples);
  return samples;
}

void FillInProportion(int64_t amount, absl::Span<const int64_t> caps, absl::Span<const size_t> among,
                      std::vector<int64_t>* samples) {
  if (amount == 0) return;
  __int128 sum = 0;
  for (size_t i : among) sum += caps[i];
  std::vector<std::pair<__int128, size_t>> remainders;
  int64_t left = amount;
  for (size_t i : among) {
    const __int128 product = static_cast<__int128>(amount) * caps[i];
    (*samples)[i] = static_cast<int64_t>(product / sum);
    left -= (*samples)[i];
    remainders.push_back({-(product % sum), i});
  }
  // The remainders sum to `left` times `sum`, so more than `left` of them are not 0 unless `left` is, and a party with a
  // remainder has room for one more.
  std::sort(remainders.begin(), remainders.end());
  for (int64_t i = 0; i < left; ++i) ++(*samples)[remainders[i].second];
}

std::vector<int64_t> Apportion(int64_t amount, absl::Span<const int64_t> limits, absl::Span<const double> weights) {
  std::vector<int64_t> samples(limits.size());
  std::vector<size_t> open(limits.size());
  std::iota(open.begin(), open.end(), size_t{0});
  int64_t left = amount;

  const auto weight_of_open = [&] {
    return std::accumulate(open.begin(), open.end(), 0.0, [&](double sum, size_t i) { return sum + weights[i]; });
  };
  double weight = 0;
  // Filling one raises the share of the others, which may fill further ones.
  for (bool filled = true; filled;) {
    filled = false;
    weight = weight_of_open();
    const int64_t to_share = left;
    std::erase_if(open, [&](size_t i) {
      if (static_cast<double>(to_share) * (weights[i] / weight) < static_cast<double>(limits[i])) return false;
      samples[i] = std::min(limits[i], left);
      left -= samples[i];
      filled = true;
      return true;
    });
  }
  const int64_t to_share = left;
  std::vector<double> shares(limits.size());
  for (size_t i : open) {
    shares[i] = static_cast<double>(to_share) * (weights[i] / weight);
    samples[i] = std::min(left, static_cast<int64_t>(std::floor(shares[i])));
    left -= samples[i];
  }
  std::stable_sort(open.begin(), open.end(), [&](size_t a, size_t b) {
    return shares[a] - std::floor(shares[a]) > shares[b] - std::floor(shares[b]);
  });
  // An open share is below its limit, so it has room for one more. One turn is enough but for rounding.
  while (left > 0) {
    for (size_t i : open) {
      if (left == 0) break;
      if (samples[i] == limits[i]) continue;
      ++samples[i];
      --left;
    }
  }
  return samples;
}

double TotalSeconds(const PartyProblem& problem, absl::Span<const int64_t> samples) {
  int64_t sent = 0, participants = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    if (!problem.parties[i].local) sent += samples[i];
    participants += samples[i] > 0;
  }
  double send_s = 0, compute_s = 0, epoch_s = 0, total_s = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Party& party = problem.parties[i];
    const double own_send_s = problem.SendSeconds(party, samples[i], sent);
    const double own_compute_s = static_cast<double>(StepsPerEpoch(samples[i], party.batch_size)) * party.step_s;
    const double own_comm_s = problem.CommSeconds(party, participants);
    send_s = std::max(send_s, own_send_s);
    compute_s = std::max(compute_s, own_compute_s);
    if (samples[i] == 0) continue;
    epoch_s = std::max(epoch_s, own_compute_s + own_comm_s);
    total_s = std::max(total_s, own_send_s + problem.epochs * (own_compute_s + own_comm_s));
  }
  switch (problem.objective) {
    case AllocationObjective::kSeparable: return send_s + problem.epochs * compute_s;
    case AllocationObjective::kBarrier: return send_s + problem.epochs * epoch_s;
    case AllocationObjective::kPipelined: return total_s;
  }
  return total_s;
}

bool PaysNoMoreThan(const PartyProblem& problem, absl::Span<const int64_t> samples, int64_t assumed) {
  const int64_t participants = std::count_if(samples.begin(), samples.end(), [](int64_t n) { return n > 0; });
  if (participants <= assumed) return true;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Party& party = problem.parties[i];
    if (samples[i] > 0 && problem.OffsetSeconds(party, participants) > problem.OffsetSeconds(party, assumed)) {
      return false;
    }
  }
  return true;
}

std::vector<int64_t> SplitAmongMembers(const AllocationProblem& problem, const PartyProblem& parties,
                                       absl::Span<const int64_t> party_samples) {
  std::vector<int64_t> samples(problem.devices.size());
  for (size_t p = 0; p < party_samples.size(); ++p) {
    const std::vector<size_t>& members = parties.parties[p].members;
    if (members.size() == 1) {
      samples[members[0]] = party_samples[p];
      continue;
    }
    std::vector<SiteMemberRoom> rooms;
    for (size_t i : members) {
      rooms.push_back(
          {.batch_size = problem.devices[i].batch_size, .capacity_samples = SampleLimit(problem, problem.devices[i])});
    }
    const std::vector<int64_t> split = SplitSiteSamples(rooms, party_samples[p]);
    for (size_t m = 0; m < members.size(); ++m) samples[members[m]] = split[m];
  }
  return samples;
}

}  // namespace causeway::scheduler::internal
