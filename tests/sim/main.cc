// Runs simulated fleets, one a seed, and says which seeds found something.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/log.h"
#include "tests/fakes/temp_dir.h"
#include "tests/sim/world.h"

namespace causeway::sim {
namespace {

constexpr int kLeastVerifiedPercent = 95;
constexpr int kMaxShown = 10;

std::string BigEndian(int64_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
          static_cast<char>(value)};
}

DataFiles MakeData(const std::string& folder) {
  DataFiles data{.root = std::filesystem::canonical(folder).string(), .train_samples = 60, .test_samples = 12};
  const auto add = [&](const std::string& name, int64_t samples) {
    std::string images = BigEndian(0x0803) + BigEndian(samples) + BigEndian(4) + BigEndian(4);
    std::string labels = BigEndian(0x0801) + BigEndian(samples);
    for (int64_t i = 0; i < samples * 16; ++i) images.push_back(static_cast<char>(i * 7 + i / 16));
    for (int64_t i = 0; i < samples; ++i) labels.push_back(static_cast<char>(i % 10));
    data.files[absl::StrCat(data.root, "/", name)] = images;
    data.files[absl::StrCat(data.root, "/", name, "-labels")] = labels;
  };
  add("train", data.train_samples);
  add("test", data.test_samples);
  for (const auto& [path, content] : data.files) std::ofstream(path, std::ios::binary) << content;
  return data;
}

int Main(int argc, char** argv) {
  uint64_t first = 0;
  uint64_t count = 1;
  bool verbose = false;
  bool twice = false;
  for (int i = 1; i < argc; ++i) {
    absl::string_view argument = argv[i];
    const bool known = (absl::ConsumePrefix(&argument, "--first_seed=") && absl::SimpleAtoi(argument, &first)) ||
                       (absl::ConsumePrefix(&argument, "--seeds=") && absl::SimpleAtoi(argument, &count)) ||
                       (argument == "--verbose" && (verbose = true)) || (argument == "--twice" && (twice = true));
    if (!known) {
      std::fprintf(stderr, "usage: causeway_sim [--first_seed=N] [--seeds=N] [--verbose] [--twice]\n");
      return 2;
    }
  }
  if (absl::Status configured = log::Configure(
          {.level = verbose ? log::Level::kDebug : log::Level::kError, .file = verbose ? "" : "/dev/null"});
      !configured.ok()) {
    return 1;
  }
  TempDir folder;
  const DataFiles data = MakeData(folder.path());
  FaultVfs vfs;
  int failed = 0;
  int64_t steps = 0, crashes = 0, rounds = 0, verified = 0;
  for (uint64_t seed = first; seed < first + count; ++seed) {
    World::Result result = World({.seed = seed, .data = &data, .vfs = &vfs}).Run();
    if (twice && result.failure.empty() &&
        World({.seed = seed, .data = &data, .vfs = &vfs}).Run().trace != result.trace) {
      result.failure = "the same seed gave another run";
    }
    steps += result.steps;
    crashes += result.crashes;
    rounds += result.rounds;
    verified += result.verified;
    if (verbose) {
      std::printf("seed %llu: %lld steps, %lld crashes, %lld rounds, %.1f s, trace %016llx\n",
                  static_cast<unsigned long long>(seed), static_cast<long long>(result.steps),
                  static_cast<long long>(result.crashes), static_cast<long long>(result.rounds), result.seconds,
                  static_cast<unsigned long long>(result.trace));
    }
    if (result.failure.empty()) continue;
    if (++failed <= kMaxShown) {
      std::printf("FAILED after %.3f s: %s\n  again: %s --verbose --first_seed=%llu\n", result.seconds,
                  result.failure.c_str(), argv[0], static_cast<unsigned long long>(seed));
      std::fflush(stdout);
    }
  }
  std::printf("%llu seeds, %d failed; %lld events, %lld crashes, %lld rounds, the bits of %lld compared\n",
              static_cast<unsigned long long>(count), failed, static_cast<long long>(steps),
              static_cast<long long>(crashes), static_cast<long long>(rounds), static_cast<long long>(verified));
  // Else the checks of bits would be empty.
  if (rounds >= 100 && verified * 100 < rounds * kLeastVerifiedPercent) {
    std::printf("FAILED: less than %d %% of the rounds were compared\n", kLeastVerifiedPercent);
    return 1;
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace causeway::sim

int main(int argc, char** argv) { return causeway::sim::Main(argc, argv); }
