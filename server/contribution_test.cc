#include "server/contribution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "tests/fakes/memory_file.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;

using dataplane::DataType;
using dataplane::Layout;
using dataplane::TensorKind;

constexpr int64_t kElements = 70'000;  // More than a block.

// [w: kElements floats][n: an integer][mean: 2 floats]
class ContributionTest : public ::testing::Test {
 protected:
  static std::vector<uint8_t> Model(float w0, float w_last, float mean) {
    std::vector<uint8_t> packed(kElements * 4 + 8 + 8);
    Set(&packed, 0, w0);
    Set(&packed, kElements - 1, w_last);
    Set(&packed, kElements + 2, mean);
    return packed;
  }
  static void Set(std::vector<uint8_t>* packed, int64_t word, float value) {
    std::memcpy(packed->data() + word * 4, &value, sizeof(value));
  }

  absl::Status Check(std::vector<uint8_t> part, double max_change = 10) {
    return CheckContribution(layout_, committed_, MemoryFile(std::move(part)), max_change);
  }

  const Layout layout_ = *Layout::Create({{"w", DataType::kFloat32, {kElements}, TensorKind::kParameter, 1},
                                          {"n", DataType::kInt64, {}, TensorKind::kIntegerBuffer, 1},
                                          {"mean", DataType::kFloat32, {2}, TensorKind::kFloatBuffer, 1}});
  std::vector<uint8_t> committed_ = Model(3, 4, 0);  // |w| = 5
};

TEST_F(ContributionTest, ReasonsTravelWithTheStatus) {
  const absl::Status status = RejectionError(kRejectOutOfRange, "tensor w");
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, "tensor w"));
  EXPECT_EQ(RejectionReason(status), "out_of_range");
  EXPECT_EQ(RejectionReason(absl::InvalidArgumentError("tensor w")), "");
  EXPECT_EQ(RejectionReason(absl::OkStatus()), "");
}

TEST_F(ContributionTest, AnUnchangedModelIsGood) { EXPECT_OK(Check(committed_, 0)); }

TEST_F(ContributionTest, NotFinite) {
  for (float bad : {NAN, -NAN, INFINITY, -INFINITY}) {
    for (int64_t word : {int64_t{0}, kElements / 2, kElements - 1, kElements + 2, kElements + 3}) {
      std::vector<uint8_t> part = committed_;
      Set(&part, word, bad);
      const absl::Status status = Check(part);
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr(word < kElements ? "tensor w" : "tensor mean")));
      EXPECT_EQ(RejectionReason(status), kRejectNotFinite) << bad << " at " << word;
    }
  }
}

TEST_F(ContributionTest, IntegersAreNotFloats) {
  std::vector<uint8_t> part = committed_;
  Set(&part, kElements, NAN);
  Set(&part, kElements + 1, NAN);
  EXPECT_OK(Check(part));
}

TEST_F(ContributionTest, OutOfRangeIsPerTensor) {
  EXPECT_OK(Check(Model(3, 4, 1024)));
  EXPECT_EQ(RejectionReason(Check(Model(3, 4, 1025))), kRejectOutOfRange);
  EXPECT_OK(Check(Model(3, 1024, 0), 1e9));
  EXPECT_EQ(RejectionReason(Check(Model(3, -1024.5f, 0), 1e9)), kRejectOutOfRange);
  // 2^8 times the largest committed value.
  committed_ = Model(3, -8, 0);
  EXPECT_OK(Check(Model(2048, 0, 0), 1e9));
  EXPECT_EQ(RejectionReason(Check(Model(2049, 0, 0), 1e9)), kRejectOutOfRange);
  EXPECT_EQ(RejectionReason(Check(Model(0, 0, 2048), 1e9)), kRejectOutOfRange);
}

TEST_F(ContributionTest, ChangeIsBoundedByTheNormOfTheParameters) {
  EXPECT_OK(Check(Model(-3, -4, 0), 2));  // A change of 10.
  const absl::Status status = Check(Model(-3, -4, 0), 1.999);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("changed by 10")));
  EXPECT_EQ(RejectionReason(status), kRejectChangeTooLarge);
  EXPECT_OK(Check(Model(3, 4, 1000), 0.001)) << "buffers do not count";
}

TEST_F(ContributionTest, ATinyModelMayChangeByMaxChange) {
  committed_ = Model(0, 0, 1000);
  EXPECT_OK(Check(Model(0, 2, 1000), 2));
  EXPECT_EQ(RejectionReason(Check(Model(0, 2.001f, 1000), 2)), kRejectChangeTooLarge);
}

TEST_F(ContributionTest, HugeValuesDoNotOverflowTheNorm) {
  committed_ = Model(3e38f, -3e38f, 0);
  EXPECT_OK(Check(Model(-3e38f, 3e38f, 0), 2.001));
  EXPECT_EQ(RejectionReason(Check(Model(-3e38f, 3e38f, 0), 1.999)), kRejectChangeTooLarge);
}

TEST_F(ContributionTest, SizesMustFit) {
  std::vector<uint8_t> part = committed_;
  part.push_back(0);
  EXPECT_THAT(Check(part), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("layout")));
  part = committed_;
  committed_.pop_back();
  EXPECT_THAT(Check(part), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("committed")));
}

TEST_F(ContributionTest, AReadErrorIsNoRejection) {
  MemoryFile part(committed_);
  part.fail_at = part.size_bytes() - 1;
  const absl::Status status = CheckContribution(layout_, committed_, part, 10);
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInternal));
  EXPECT_EQ(RejectionReason(status), "");
}

TEST_F(ContributionTest, InitialModel) {
  EXPECT_OK(CheckInitialModel(layout_, MemoryFile(Model(3e38f, 4, 5000))));
  EXPECT_EQ(RejectionReason(CheckInitialModel(layout_, MemoryFile(Model(3, 4, NAN)))), kRejectNotFinite);
  EXPECT_EQ(RejectionReason(CheckInitialModel(layout_, MemoryFile(Model(3, INFINITY, 0)))), kRejectNotFinite);
  EXPECT_THAT(CheckInitialModel(layout_, MemoryFile({1, 2, 3})), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::server
