#include "scheduler/site_program.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

namespace causeway::scheduler {
namespace {

using When = ProgramCollective::When;

// The order in which collectives ask for the link.
std::tuple<int, int, int> Moment(const ProgramCollective& collective) {
  switch (collective.when) {
    case When::kBeforeForward: return {0, collective.layer, 0};
    case When::kBeforeBackward: return {1, -collective.layer, 0};
    case When::kAfterBackward: return {1, -collective.layer, 1};
    case When::kAfterLast: return {2, 0, 0};
  }
  return {2, 0, 0};
}

bool IsTime(double value) { return value >= 0 && std::isfinite(value); }

// Bytes of layers by number; 0 where unknown.
class LayerBytes {
 public:
  static absl::StatusOr<LayerBytes> Create(const LayerTimes& times, absl::Span<const double> bytes) {
    if (!bytes.empty() && bytes.size() != static_cast<size_t>(times.layers())) {
      return absl::InvalidArgumentError(
          absl::StrCat("layer_bytes has ", bytes.size(), " entries for ", times.layers(), " layers"));
    }
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (!IsTime(bytes[i])) {
        return absl::InvalidArgumentError(
            absl::StrCat("layer_bytes[", i, "] is ", bytes[i], ", must be a finite number, at least 0"));
      }
    }
    return LayerBytes(bytes);
  }

  double operator()(int layer) const { return bytes_.empty() ? 0 : bytes_[static_cast<size_t>(layer - 1)]; }

 private:
  explicit LayerBytes(absl::Span<const double> bytes) : bytes_(bytes) {}

  absl::Span<const double> bytes_;
};

SiteProgram WithoutCollectives(const LayerTimes& times, int period) {
  SiteProgram program;
  for (int layer = 1; layer <= times.layers(); ++layer) {
    program.forward_s.push_back(ToSeconds(times.forward_ns(layer)));
    program.backward_s.push_back(ToSeconds(times.backward_ns(layer)));
  }
  program.iterations.resize(static_cast<size_t>(period));
  return program;
}

absl::Status CheckPeriod(int period) {
  if (period >= 1 && period <= kMaxPeriod) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("period is ", period, ", must be 1 to ", kMaxPeriod));
}

std::vector<ProgramCollective> AllAfterLast(const LayerTimes& times, const LayerBytes& bytes) {
  std::vector<ProgramCollective> collectives;
  for (int layer = times.layers(); layer >= 1; --layer) {
    collectives.push_back({When::kAfterLast, layer, ToSeconds(times.comm_ns(layer)), bytes(layer)});
  }
  return collectives;
}

}  // namespace

absl::Status Validate(const SiteProgram& program) {
  if (program.forward_s.empty() || program.forward_s.size() != program.backward_s.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a program needs layers, each with forward and backward; it has ",
                                                   program.forward_s.size(), " and ", program.backward_s.size()));
  }
  if (program.forward_s.size() > kMaxLayers) {
    return absl::InvalidArgumentError(
        absl::StrCat("a program has ", program.forward_s.size(), " layers, must have at most ", kMaxLayers));
  }
  if (program.iterations.empty()) return absl::InvalidArgumentError("a program needs at least one iteration");
  for (size_t i = 0; i < program.forward_s.size(); ++i) {
    if (!IsTime(program.forward_s[i]) || !IsTime(program.backward_s[i])) {
      return absl::InvalidArgumentError(absl::StrCat("layer ", i + 1, ": forward_s is ", program.forward_s[i],
                                                     ", backward_s ", program.backward_s[i],
                                                     ", must be finite numbers, at least 0"));
    }
  }
  for (size_t r = 0; r < program.iterations.size(); ++r) {
    const std::vector<ProgramCollective>& collectives = program.iterations[r];
    for (size_t i = 0; i < collectives.size(); ++i) {
      const ProgramCollective& collective = collectives[i];
      const auto wrong = [&](const auto&... what) {
        return absl::InvalidArgumentError(absl::StrCat("iteration ", r, ", collective ", i, ": ", what...));
      };
      if (collective.layer < 1 || collective.layer > program.layers()) {
        return wrong("layer is ", collective.layer, ", must be 1 to ", program.layers());
      }
      if (!IsTime(collective.duration_s)) {
        return wrong("duration_s is ", collective.duration_s, ", must be a finite number, at least 0");
      }
      if (!IsTime(collective.bytes)) {
        return wrong("bytes is ", collective.bytes, ", must be a finite number, at least 0");
      }
      if (i > 0 && Moment(collective) < Moment(collectives[i - 1])) return wrong("comes before the one before it");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SiteProgram> ProgramNone(const LayerTimes& times) { return WithoutCollectives(times, 1); }

absl::StatusOr<SiteProgram> ProgramSsgd(const LayerTimes& times, absl::Span<const double> layer_bytes) {
  return ProgramFlsgd(times, 1, layer_bytes);  // Gradients for parameters: the times are the same.
}

absl::StatusOr<SiteProgram> ProgramWfbp(const LayerTimes& times, absl::Span<const MergedLayers> merged,
                                        absl::Span<const double> layer_bytes) {
  const absl::StatusOr<LayerBytes> bytes = LayerBytes::Create(times, layer_bytes);
  if (!bytes.ok()) return bytes.status();
  SiteProgram program = WithoutCollectives(times, 1);
  int next = times.layers();
  for (const MergedLayers& m : merged) {
    if (m.first != next || m.last > m.first || m.last < 1 || m.comm_ns < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("merged layers ", m.first, " to ", m.last, ": layer ", next, " comes next"));
    }
    double merged_bytes = 0;
    for (int layer = m.first; layer >= m.last; --layer) merged_bytes += (*bytes)(layer);
    program.iterations[0].push_back({When::kAfterBackward, m.last, ToSeconds(m.comm_ns), merged_bytes});
    next = m.last - 1;
  }
  if (next != 0) return absl::InvalidArgumentError(absl::StrCat("layer ", next, " is in no merged layers"));
  return program;
}

absl::StatusOr<SiteProgram> ProgramFlsgd(const LayerTimes& times, int period, absl::Span<const double> layer_bytes) {
  if (absl::Status status = CheckPeriod(period); !status.ok()) return status;
  const absl::StatusOr<LayerBytes> bytes = LayerBytes::Create(times, layer_bytes);
  if (!bytes.ok()) return bytes.status();
  SiteProgram program = WithoutCollectives(times, period);
  program.iterations.back() = AllAfterLast(times, *bytes);
  return program;
}

absl::StatusOr<SiteProgram> ProgramOfSchedule(const LayerTimes& times, const LayerSchedule& schedule,
                                              absl::Span<const double> layer_bytes) {
  if (absl::Status status = Validate(schedule, times.layers()); !status.ok()) return status;
  const absl::StatusOr<LayerBytes> bytes = LayerBytes::Create(times, layer_bytes);
  if (!bytes.ok()) return bytes.status();
  SiteProgram program = WithoutCollectives(times, schedule.period());
  for (size_t h = 0; h < program.iterations.size(); ++h) {
    for (const int layer : SynchronizedLayers(schedule.iterations[h])) {
      program.iterations[h].push_back({When::kAfterBackward, layer, ToSeconds(times.comm_ns(layer)), (*bytes)(layer)});
    }
  }
  return program;
}

absl::StatusOr<SiteProgram> ProgramSharded(const LayerTimes& times, absl::Span<const ShardedLayer> sharded) {
  if (sharded.size() != static_cast<size_t>(times.layers())) {
    return absl::InvalidArgumentError(
        absl::StrCat("sharded has ", sharded.size(), " entries for ", times.layers(), " layers"));
  }
  SiteProgram program = WithoutCollectives(times, 1);
  std::vector<ProgramCollective>& collectives = program.iterations[0];
  for (int layer = 1; layer <= times.layers(); ++layer) {
    const ShardedLayer& s = sharded[static_cast<size_t>(layer - 1)];
    collectives.push_back({When::kBeforeForward, layer, s.gather_s, s.bytes});
  }
  for (int layer = times.layers(); layer >= 1; --layer) {
    const ShardedLayer& s = sharded[static_cast<size_t>(layer - 1)];
    collectives.push_back({When::kBeforeBackward, layer, s.gather_s, s.bytes});
    collectives.push_back({When::kAfterBackward, layer, s.scatter_s, s.bytes});
    if (s.replicate_s > 0) collectives.push_back({When::kAfterBackward, layer, s.replicate_s, s.bytes});
  }
  if (absl::Status status = Validate(program); !status.ok()) return status;
  return program;
}

absl::StatusOr<SiteProgram> ProgramOf(SyncMethod method, const LayerTimes& times, const SyncOptions& options,
                                      FillRule fill, absl::Span<const double> layer_bytes) {
  switch (method) {
    case SyncMethod::kSsgd: return ProgramSsgd(times, layer_bytes);
    case SyncMethod::kFlsgd: return ProgramFlsgd(times, options.period, layer_bytes);
    case SyncMethod::kWfbp: {
      const absl::StatusOr<std::vector<MergedLayers>> merged = MergeSmallLayers(times, options.startup_s);
      if (!merged.ok()) return merged.status();
      return ProgramWfbp(times, *merged, layer_bytes);
    }
    case SyncMethod::kPlsgdEnp: {
      const absl::StatusOr<ScheduleResult> result = ScheduleEqual(times, options.period);
      if (!result.ok()) return result.status();
      return ProgramOfSchedule(times, result->schedule, layer_bytes);
    }
    case SyncMethod::kDreamDdp: {
      const absl::StatusOr<ScheduleResult> result = ScheduleLayers(options.scheduler, times, options.period);
      if (!result.ok()) return result.status();
      const absl::StatusOr<LayerSchedule> filled = FillBubbles(times, result->schedule, fill);
      if (!filled.ok()) return filled.status();
      return ProgramOfSchedule(times, *filled, layer_bytes);
    }
  }
  return absl::InvalidArgumentError("no such method");
}

}  // namespace causeway::scheduler
