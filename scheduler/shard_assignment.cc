#include "scheduler/shard_assignment.h"

#include <algorithm>
#include <limits>
#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

bool ByBegin(const SampleRange& a, const SampleRange& b) { return a.begin < b.begin; }

// The ranges are not empty.
absl::Status CheckDisjoint(std::vector<SampleRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), ByBegin);
  for (size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].begin < ranges[i - 1].end) {
      return absl::InvalidArgumentError(absl::StrCat("previous ranges [", ranges[i - 1].begin, ", ", ranges[i - 1].end,
                                                     ") and [", ranges[i].begin, ", ", ranges[i].end, ") overlap"));
    }
  }
  return absl::OkStatus();
}

// Joins adjacent ranges of a sorted, disjoint list.
std::vector<SampleRange> Joined(const std::vector<SampleRange>& ranges) {
  std::vector<SampleRange> joined;
  for (const SampleRange& range : ranges) {
    if (!joined.empty() && joined.back().end == range.begin) {
      joined.back().end = range.end;
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

}  // namespace

absl::StatusOr<std::vector<WorkerRanges>> AssignShards(absl::Span<const WorkerSamples> workers,
                                                       absl::Span<const WorkerRanges> previous) {
  std::vector<WorkerRanges> result(workers.size());
  std::map<std::string, size_t> by_name;
  int64_t total = 0;
  for (size_t i = 0; i < workers.size(); ++i) {
    if (!by_name.insert({workers[i].worker, i}).second) {
      return absl::InvalidArgumentError(absl::StrCat("worker \"", workers[i].worker, "\": name is used twice"));
    }
    if (workers[i].samples < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("worker \"", workers[i].worker, "\": samples is ", workers[i].samples, ", below 0"));
    }
    if (workers[i].samples > std::numeric_limits<int64_t>::max() - total) {
      return absl::InvalidArgumentError("the samples of all workers are too many");
    }
    total += workers[i].samples;
    result[i].worker = workers[i].worker;
  }

  std::vector<int64_t> lacking;
  lacking.reserve(workers.size());
  for (const WorkerSamples& worker : workers) lacking.push_back(worker.samples);

  std::vector<SampleRange> all_previous, kept;
  for (const WorkerRanges& former : previous) {
    std::vector<SampleRange> own;
    for (const SampleRange& range : former.ranges) {
      if (range.begin < 0 || range.begin > range.end) {
        return absl::InvalidArgumentError(absl::StrCat("worker \"", former.worker, "\": previous range [", range.begin,
                                                       ", ", range.end, ") is none"));
      }
      if (range.begin < range.end) own.push_back(range);
    }
    std::sort(own.begin(), own.end(), ByBegin);
    all_previous.insert(all_previous.end(), own.begin(), own.end());
    const auto worker = by_name.find(former.worker);
    if (worker == by_name.end()) continue;
    int64_t& lacks = lacking[worker->second];
    for (SampleRange range : own) {
      range.end = std::min(range.end, total);
      if (range.begin >= range.end || lacks == 0) break;
      range.end = range.begin + std::min(lacks, range.end - range.begin);
      lacks -= range.end - range.begin;
      result[worker->second].ranges.push_back(range);
      kept.push_back(range);
    }
  }
  if (absl::Status status = CheckDisjoint(all_previous); !status.ok()) return status;

  // The gaps between the kept ranges, in order, go to the workers by name.
  std::sort(kept.begin(), kept.end(), ByBegin);
  kept.push_back({total, total});
  auto next_worker = by_name.begin();
  int64_t begin = 0;
  for (const SampleRange& range : kept) {
    while (begin < range.begin) {
      while (lacking[next_worker->second] == 0) ++next_worker;
      int64_t& lacks = lacking[next_worker->second];
      const int64_t count = std::min(lacks, range.begin - begin);
      result[next_worker->second].ranges.push_back({begin, begin + count});
      begin += count;
      lacks -= count;
    }
    begin = range.end;
  }
  for (WorkerRanges& worker : result) {
    std::sort(worker.ranges.begin(), worker.ranges.end(), ByBegin);
    worker.ranges = Joined(worker.ranges);
  }
  return result;
}

}  // namespace causeway::scheduler
