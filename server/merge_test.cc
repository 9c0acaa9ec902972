#include "server/merge.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/random.h"
#include "tests/fakes/memory_file.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;

using dataplane::DataType;
using dataplane::Layout;
using dataplane::TensorKind;

// The integer in front leaves most floats unaligned for eight bytes, and "w" spans several blocks.
Layout TestLayout() {
  return *Layout::Create({{"scale", DataType::kFloat32, {}, TensorKind::kParameter, 1},
                          {"count", DataType::kInt64, {}, TensorKind::kIntegerBuffer, 1},
                          {"w", DataType::kFloat32, {3, 50'001}, TensorKind::kParameter, 2},
                          {"mean", DataType::kFloat32, {5}, TensorKind::kFloatBuffer, 2},
                          {"counts", DataType::kInt64, {3}, TensorKind::kIntegerBuffer, 2}});
}

Layout FloatLayout(int64_t n) { return *Layout::Create({{"w", DataType::kFloat32, {n}, TensorKind::kParameter, 1}}); }

template <typename T>
T At(const std::vector<uint8_t>& packed, int64_t offset) {
  T value;
  std::memcpy(&value, packed.data() + offset, sizeof(value));
  return value;
}

std::vector<uint8_t> Floats(std::vector<float> values) {
  std::vector<uint8_t> packed(values.size() * sizeof(float));
  std::memcpy(packed.data(), values.data(), packed.size());
  return packed;
}

std::vector<uint8_t> RandomModel(const Layout& layout, Random* random) {
  std::vector<uint8_t> packed(layout.total_bytes());
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const dataplane::TensorSpec& tensor = layout.tensors()[i];
    uint8_t* out = packed.data() + layout.byte_offset(i);
    for (int64_t k = 0; k < tensor.num_elements(); ++k, out += ByteSize(tensor.dtype)) {
      if (tensor.dtype == DataType::kInt64) {
        const int64_t value = (*random)();
        std::memcpy(out, &value, sizeof(value));
      } else {
        const float value = std::ldexp(random->Uniform() * 2 - 1, static_cast<int>(random->Below(24)) - 16);
        std::memcpy(out, &value, sizeof(value));
      }
    }
  }
  return packed;
}

TEST(FixedPointTest, RangeJustFits) {
  EXPECT_EQ(FixedPointFor(0).limit, 1024);
  EXPECT_EQ(FixedPointFor(0).scale, 52);
  EXPECT_EQ(FixedPointFor(4).limit, 1024);
  for (double max_abs : {0.0, 1e-30, 3.9, 4.0, 4.1, 5.0, 8.0, 1e5, 3.4e38}) {
    const FixedPoint format = FixedPointFor(max_abs);
    EXPECT_EQ(format.limit, std::max(1024.0, 256 * max_abs));
    EXPECT_LE(std::ldexp(format.limit, format.scale), 0x1p62) << max_abs;
    EXPECT_GT(std::ldexp(format.limit, format.scale + 1), 0x1p62) << max_abs;
  }
}

TEST(MaxAbsTest, Values) {
  EXPECT_EQ(MaxAbs({}), 0);
  EXPECT_EQ(MaxAbs(Floats({1, -3, 2})), 3);
  EXPECT_EQ(MaxAbs(Floats({1, NAN, 2})), std::numeric_limits<double>::infinity());
  EXPECT_EQ(MaxAbs(Floats({1, -INFINITY})), std::numeric_limits<double>::infinity());
}

TEST(RoundSumTest, AnyOrderGivesTheSameBitsAndTheRightMean) {
  const Layout layout = TestLayout();
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Random random(seed);
    const std::vector<uint8_t> committed = RandomModel(layout, &random);
    const int n = 2 + static_cast<int>(random.Below(4));
    std::vector<MemoryFile> parts;
    std::vector<int64_t> samples;
    for (int i = 0; i < n; ++i) {
      parts.emplace_back(RandomModel(layout, &random));
      samples.push_back(1 + random.Below(i == 0 ? 3 : 100'000));
    }
    const int64_t total = std::accumulate(samples.begin(), samples.end(), int64_t{0});
    const int64_t planned = total + random.Below(2) * 12'345;

    std::vector<int64_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    std::vector<uint8_t> first;
    for (int repeat = 0; repeat < 6; ++repeat) {
      random.Shuffle(absl::MakeSpan(order));
      ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(layout, committed, planned));
      for (int64_t i : order) ASSERT_OK(sum.Add(parts[i], samples[i], i));
      EXPECT_EQ(sum.samples(), total);
      ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> mean, sum.Finish());
      if (repeat == 0) {
        first = mean;
      } else {
        ASSERT_TRUE(mean == first) << "the order of arrival changed the bits";
      }
    }

    for (size_t t = 0; t < layout.tensors().size(); ++t) {
      const dataplane::TensorSpec& tensor = layout.tensors()[t];
      for (int64_t k = 0; k < tensor.num_elements(); ++k) {
        const int64_t offset = layout.byte_offset(t) + k * ByteSize(tensor.dtype);
        if (tensor.dtype == DataType::kInt64) {
          ASSERT_EQ(At<int64_t>(first, offset), At<int64_t>(parts[0].bytes, offset));
          continue;
        }
        long double reference = 0;
        for (int i = 0; i < n; ++i) {
          reference += static_cast<long double>(At<float>(parts[i].bytes, offset)) * samples[i] / total;
        }
        const float expected = static_cast<float>(reference);
        // Half a unit of the fixed-point form may fall to the other side of a rounding boundary.
        ASSERT_NEAR(At<float>(first, offset), expected, std::fabs(expected) * 0x1p-23 + 0x1p-45)
            << tensor.name << " " << k;
      }
    }
  }
}

TEST(RoundSumTest, WeighsBySamples) {
  const Layout layout = FloatLayout(2);
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(layout, Floats({0, 0}), 100));
  ASSERT_OK(sum.Add(MemoryFile(Floats({100, 1})), 1, 0));
  ASSERT_OK(sum.Add(MemoryFile(Floats({0, 3})), 99, 1));
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> mean, sum.Finish());
  EXPECT_FLOAT_EQ(At<float>(mean, 0), 1);
  EXPECT_FLOAT_EQ(At<float>(mean, 4), 2.98f);
}

TEST(RoundSumTest, FewerSamplesThanPlannedStillGiveTheMean) {
  const std::vector<float> values = {0.1f, -1e-3f, 700, 3};
  const Layout layout = FloatLayout(4);
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(layout, Floats({0, 0, 0, 0}), 60'000));
  ASSERT_OK(sum.Add(MemoryFile(Floats(values)), 7, 0));
  ASSERT_OK(sum.Add(MemoryFile(Floats(values)), 11, 1));
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> mean, sum.Finish());
  EXPECT_EQ(mean, Floats(values));
}

TEST(RoundSumTest, OneContributorIsTakenAsItIs) {
  // Down to 2^-29: all 24 bits of it lie above the unit, 2^-52.
  const std::vector<float> values = {0x1.fffffep-29f, -1e-3f, 0, 3.14159274f, -1023.9999f};
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(FloatLayout(5), Floats({1, 1, 1, 1, 1}), 10));
  ASSERT_OK(sum.Add(MemoryFile(Floats(values)), 10, 4));
  EXPECT_THAT(sum.Finish(), IsOkAndHolds(Floats(values)));
}

TEST(RoundSumTest, ExtremesDoNotOverflow) {
  const float max = std::numeric_limits<float>::max();
  const Layout layout = FloatLayout(2);
  // Values at the limit, all of the planned weight.
  ASSERT_OK_AND_ASSIGN(RoundSum small, RoundSum::Create(layout, Floats({0, 0}), 3));
  for (int i = 0; i < 3; ++i) ASSERT_OK(small.Add(MemoryFile(Floats({1024, -1024})), 1, i));
  EXPECT_THAT(small.Finish(), IsOkAndHolds(Floats({1024, -1024})));
  ASSERT_OK_AND_ASSIGN(RoundSum large, RoundSum::Create(layout, Floats({max, -max}), 3));
  for (int i = 0; i < 3; ++i) ASSERT_OK(large.Add(MemoryFile(Floats({max, -max})), 1, i));
  EXPECT_THAT(large.Finish(), IsOkAndHolds(Floats({max, -max})));
}

TEST(RoundSumTest, IntegersAreThoseOfTheLowestRankWithSamples) {
  const Layout layout = *Layout::Create({{"n", DataType::kInt64, {1}, TensorKind::kIntegerBuffer, 1}});
  auto part = [](int64_t value) {
    std::vector<uint8_t> packed(sizeof(value));
    std::memcpy(packed.data(), &value, sizeof(value));
    return MemoryFile(packed);
  };
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(layout, std::vector<uint8_t>(8), 10));
  ASSERT_OK(sum.Add(part(105), 1, 5));
  ASSERT_OK(sum.Add(part(103), 1, 3));
  ASSERT_OK(sum.Add(part(109), 1, 9));
  ASSERT_OK(sum.Add(part(101), 0, 1));
  ASSERT_OK_AND_ASSIGN(std::vector<uint8_t> mean, sum.Finish());
  EXPECT_EQ(At<int64_t>(mean, 0), 103);
}

TEST(RoundSumTest, CreateRefusesWhatDoesNotFit) {
  const Layout layout = FloatLayout(2);
  EXPECT_THAT(RoundSum::Create(layout, Floats({0}), 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("4 bytes")));
  EXPECT_THAT(RoundSum::Create(layout, Floats({0, NAN}), 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("w is not finite")));
  EXPECT_THAT(RoundSum::Create(layout, Floats({0, 0}), 0), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(RoundSumTest, NoSamplesNoMean) {
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(FloatLayout(1), Floats({0}), 10));
  ASSERT_OK(sum.Add(MemoryFile(Floats({1})), 0, 0));
  EXPECT_THAT(sum.Finish(), StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST(RoundSumTest, AddRefusesAndVoidsTheSum) {
  struct Case {
    std::vector<float> values;
    int64_t samples;
    int64_t rank;
  };
  const Case cases[] = {
      {{1}, 1, 1},           // Size.
      {{1, 2}, -1, 1},       // Samples.
      {{1, 2}, 6, 1},        // More than planned together.
      {{1, 2}, 1, 0},        // In already.
      {{1, NAN}, 1, 1},      // Not finite.
      {{1, 1024.5f}, 1, 1},  // Out of range.
      {{-INFINITY, 1}, 1, 1},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(testing::Message() << testing::PrintToString(c.values) << " " << c.samples << " " << c.rank);
    ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(FloatLayout(2), Floats({0, 0}), 10));
    ASSERT_OK(sum.Add(MemoryFile(Floats({1, 2})), 5, 0));
    EXPECT_THAT(sum.Add(MemoryFile(Floats(c.values)), c.samples, c.rank), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(sum.Add(MemoryFile(Floats({1, 2})), 1, 2), StatusIs(absl::StatusCode::kInvalidArgument));
    EXPECT_THAT(sum.Finish(), StatusIs(absl::StatusCode::kInvalidArgument));
  }
}

TEST(RoundSumTest, AReadErrorVoidsTheSum) {
  ASSERT_OK_AND_ASSIGN(RoundSum sum, RoundSum::Create(FloatLayout(100'000), std::vector<uint8_t>(400'000), 10));
  MemoryFile part(std::vector<uint8_t>(400'000));
  part.fail_at = 399'999;
  EXPECT_THAT(sum.Add(part, 5, 0), StatusIs(absl::StatusCode::kInternal));
  EXPECT_THAT(sum.Finish(), StatusIs(absl::StatusCode::kInternal));
}

}  // namespace
}  // namespace causeway::server
