#include "scheduler/site_batches.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

constexpr int64_t kMaxSamples = int64_t{1} << 50;

absl::Status MemberError(size_t member, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("member ", member, ": ", what));
}

// A member's time as a function of its batch that never falls.
class BatchTimes {
 public:
  // `measurements` are checked.
  BatchTimes(std::vector<BatchMeasurement> measurements, int64_t max_parallel)
      : measurements_(std::move(measurements)), max_parallel_(max_parallel) {
    std::sort(measurements_.begin(), measurements_.end(),
              [](const BatchMeasurement& a, const BatchMeasurement& b) { return a.batch_size < b.batch_size; });
    for (size_t i = 1; i < measurements_.size(); ++i) {
      measurements_[i].batch_time_s = std::max(measurements_[i].batch_time_s, measurements_[i - 1].batch_time_s);
    }
  }

  double TimeOf(int64_t batch_size) const { return *EstimateBatchTime(measurements_, batch_size); }

  // The largest batch from `least` to max_parallel that takes at most so long; `least` where none does.
  int64_t LargestWithin(double time_s, int64_t least) const {
    int64_t within = least, above = max_parallel_ + 1;
    while (above - within > 1) {
      const int64_t middle = within + (above - within) / 2;
      (TimeOf(middle) <= time_s ? within : above) = middle;
    }
    return within;
  }

 private:
  std::vector<BatchMeasurement> measurements_;
  int64_t max_parallel_;
};

}  // namespace

absl::StatusOr<std::vector<BatchMeasurement>> ChooseSiteBatches(absl::Span<const SiteMember> members,
                                                                int64_t site_batch) {
  const auto count = static_cast<int64_t>(members.size());
  std::vector<BatchTimes> times;
  std::vector<int64_t> least;
  int64_t room = 0;
  double hi = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    const SiteMember& member = members[m];
    if (member.max_parallel < 1 || member.max_parallel > kMaxSamples) {
      return MemberError(m, absl::StrCat("max_parallel is ", member.max_parallel, ", not in 1..", kMaxSamples));
    }
    const absl::StatusOr<double> longest_s = EstimateBatchTime(member.measurements, member.max_parallel);
    if (!longest_s.ok()) return MemberError(m, longest_s.status().message());
    times.emplace_back(member.measurements, member.max_parallel);
    room = std::min(kMaxSamples, room + member.max_parallel);
    hi = std::max(hi, times.back().TimeOf(member.max_parallel));
    least.push_back(std::min<int64_t>(member.max_parallel, site_batch >= 2 * count ? 2 : 1));
  }
  if (site_batch < count || site_batch < 1 || site_batch > room) {
    return absl::InvalidArgumentError(absl::StrCat("the site's batch is ", site_batch, ", not in ", count, "..", room,
                                                   " (one sample a member, and what all process at once)"));
  }

  const auto batches_within = [&](double time_s) {
    std::vector<int64_t> batches;
    for (size_t m = 0; m < members.size(); ++m) batches.push_back(times[m].LargestWithin(time_s, least[m]));
    return batches;
  };
  const auto sum = [](const std::vector<int64_t>& batches) {
    return std::accumulate(batches.begin(), batches.end(), int64_t{0},
                           [](int64_t a, int64_t b) { return std::min(kMaxSamples, a + b); });
  };
  // The least step time within which the members process the site's batch.
  std::vector<int64_t> below = least, within = batches_within(hi);
  double lo = 0;
  for (double middle = hi / 2; lo < middle && middle < hi; middle = lo + (hi - lo) / 2) {
    std::vector<int64_t> batches = batches_within(middle);
    if (sum(batches) >= site_batch) {
      hi = middle;
      within = std::move(batches);
    } else {
      lo = middle;
      below = std::move(batches);
    }
  }
  // What is lacking goes to those that gain by the last moment of it, which costs no time.
  int64_t left = std::max<int64_t>(0, site_batch - sum(below));
  const auto gain = static_cast<double>(sum(within) - sum(below));
  const int64_t to_share = left;
  std::vector<int64_t> batches = below;
  for (size_t m = 0; m < members.size() && gain > 0; ++m) {
    const double share = static_cast<double>(to_share) * (static_cast<double>(within[m] - below[m]) / gain);
    const int64_t more = std::min({left, within[m] - below[m], static_cast<int64_t>(share)});
    batches[m] += more;
    left -= more;
  }
  for (size_t m = 0; m < members.size() && left > 0; ++m) {
    const int64_t more = std::min(left, within[m] - batches[m]);
    batches[m] += more;
    left -= more;
  }
  std::vector<BatchMeasurement> result;
  for (size_t m = 0; m < members.size(); ++m) {
    result.push_back({.batch_size = batches[m], .batch_time_s = times[m].TimeOf(batches[m])});
  }
  return result;
}

int64_t SiteCapacity(absl::Span<const SiteMemberRoom> members) {
  int64_t full_steps = std::numeric_limits<int64_t>::max();
  for (const SiteMemberRoom& member : members) {
    full_steps = std::min(full_steps, member.capacity_samples / member.batch_size);
  }
  int64_t capacity = 0;
  for (const SiteMemberRoom& member : members) {
    // Below (full_steps + 1) * batch_size, but without its overflow.
    const int64_t more = std::min(member.batch_size, member.capacity_samples - full_steps * member.batch_size);
    capacity = std::min(kMaxSamples, capacity + full_steps * member.batch_size + more);
  }
  return capacity;
}

std::vector<int64_t> SplitSiteSamples(absl::Span<const SiteMemberRoom> members, int64_t samples) {
  __int128 site_batch = 0;
  for (const SiteMemberRoom& member : members) site_batch += member.batch_size;
  const auto steps = static_cast<int64_t>((samples + site_batch - 1) / site_batch);
  const auto room = [&](size_t m) {
    return static_cast<int64_t>(
        std::min<__int128>(static_cast<__int128>(steps) * members[m].batch_size, members[m].capacity_samples));
  };
  std::vector<int64_t> split;
  std::vector<std::pair<__int128, size_t>> remainders;
  int64_t left = samples;
  for (size_t m = 0; m < members.size(); ++m) {
    const __int128 product = static_cast<__int128>(samples) * members[m].batch_size;
    split.push_back(std::min(room(m), static_cast<int64_t>(product / site_batch)));
    left -= split[m];
    remainders.push_back({-(product % site_batch), m});
  }
  std::sort(remainders.begin(), remainders.end());
  for (const auto& remainder : remainders) {
    const size_t m = remainder.second;
    if (left > 0 && split[m] < room(m)) {
      ++split[m];
      --left;
    }
  }
  // More only where capacities bind.
  for (const auto& remainder : remainders) {
    const size_t m = remainder.second;
    const int64_t more = std::min(left, room(m) - split[m]);
    split[m] += more;
    left -= more;
  }

  const auto ends_with_one = [&](size_t m, int64_t count) {
    return members[m].batch_size > 1 && count % members[m].batch_size == 1;
  };
  // A few more here or there; of two, since a batch of two is left with one whenever it takes or gives one.
  const auto move = [&](size_t from, size_t to, int64_t count) {
    if (split[from] < count || split[to] + count > room(to)) return false;
    if (ends_with_one(from, split[from] - count) || ends_with_one(to, split[to] + count)) return false;
    split[from] -= count;
    split[to] += count;
    return true;
  };
  for (size_t m = 0; m < members.size(); ++m) {
    for (size_t other = 0; other < members.size() && ends_with_one(m, split[m]); ++other) {
      if (other == m) continue;
      for (int64_t count : {1, 2}) {
        if (move(other, m, count) || move(m, other, count)) break;
      }
    }
  }
  return split;
}

}  // namespace causeway::scheduler
