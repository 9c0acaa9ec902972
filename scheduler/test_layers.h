// Layers for the tests of this folder, in the terms of the published examples: b backward, c communication, in forward
// order, whole seconds.
#ifndef CAUSEWAY_SCHEDULER_TEST_LAYERS_H_
#define CAUSEWAY_SCHEDULER_TEST_LAYERS_H_

#include <cstdint>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "scheduler/layer_schedule.h"

namespace causeway::scheduler {

inline constexpr int64_t kSecond = 1'000'000'000;

inline LayerTimes MakeTimes(const std::vector<LayerProfile>& profiles) {
  absl::StatusOr<LayerTimes> times = LayerTimes::Create(profiles);
  EXPECT_TRUE(times.ok()) << times.status();
  return *std::move(times);
}

inline std::vector<LayerProfile> MakeProfiles(const std::vector<int>& b, const std::vector<int>& c) {
  std::vector<LayerProfile> profiles;
  for (size_t i = 0; i < b.size(); ++i) {
    profiles.push_back({.name = absl::StrCat("layer", i + 1),
                        .t_fp_s = 0,
                        .t_bp_s = static_cast<double>(b[i]),
                        .t_comm_s = static_cast<double>(c[i])});
  }
  return profiles;
}

inline LayerTimes MakeTimes(const std::vector<int>& b, const std::vector<int>& c) {
  return MakeTimes(MakeProfiles(b, c));
}

// Small whole numbers make ties, and times that meet the end of backward exactly, frequent.
inline LayerTimes RandomTimes(int layers, int max_b, int max_c, std::mt19937& random) {
  std::vector<int> b, c;
  for (int i = 0; i < layers; ++i) {
    b.push_back(std::uniform_int_distribution<int>(0, max_b)(random));
    c.push_back(std::uniform_int_distribution<int>(0, max_c)(random));
  }
  return MakeTimes(b, c);
}

// Iterations' layers, without fill.
inline LayerSchedule MakeSchedule(const std::vector<std::vector<int>>& sets) {
  LayerSchedule schedule;
  for (const std::vector<int>& set : sets) schedule.iterations.push_back({.layers = set, .fill = {}});
  return schedule;
}

inline std::vector<std::vector<int>> LayersOf(const LayerSchedule& schedule) {
  std::vector<std::vector<int>> sets;
  for (const ScheduledIteration& iteration : schedule.iterations) sets.push_back(iteration.layers);
  return sets;
}

inline std::vector<std::vector<int>> FillOf(const LayerSchedule& schedule) {
  std::vector<std::vector<int>> sets;
  for (const ScheduledIteration& iteration : schedule.iterations) sets.push_back(iteration.fill);
  return sets;
}

// A file of tests/data/profiles.
inline std::vector<LayerProfile> ReadProfiles(const std::string& name) {
  std::ifstream file(absl::StrCat(CAUSEWAY_SOURCE_DIR, "/tests/data/profiles/", name, ".json"));
  EXPECT_TRUE(file.good()) << name;
  const nlohmann::json input = nlohmann::json::parse(file);
  std::vector<LayerProfile> profiles;
  for (const nlohmann::json& layer : input.at("layers")) {
    profiles.push_back({.name = layer.at("name").get<std::string>(),
                        .t_fp_s = layer.at("t_fp_s").get<double>(),
                        .t_bp_s = layer.at("t_bp_s").get<double>(),
                        .t_comm_s = layer.at("t_comm_s").get<double>()});
  }
  return profiles;
}

}  // namespace causeway::scheduler

#endif  // CAUSEWAY_SCHEDULER_TEST_LAYERS_H_
