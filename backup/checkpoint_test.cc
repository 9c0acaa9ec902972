#include "backup/checkpoint.h"

#include "backup/backup_test_fixture.h"

namespace causeway::backup {
namespace {

using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::string> Digest(const dataplane::Layout& layout = TestLayout()) {
    return PackedSha256(RealFileSystem(), path_, layout);
  }
  TempDir dir_;
  const std::string path_ = dir_.Join("m.safetensors");
};

TEST_F(CheckpointTest, IsThatOfThePackedModelWhateverTheOrderInTheFile) {
  const std::vector<uint8_t> model = TestModel("one");
  WriteModel(path_, model);
  EXPECT_THAT(Digest(), IsOkAndHolds(dataplane::Sha256Of(model)));
}

TEST_F(CheckpointTest, LargerThanABlock) {
  const dataplane::Layout layout = *dataplane::Layout::Create(
      {{"w", dataplane::DataType::kFloat32, {300'001}, dataplane::TensorKind::kParameter, 1}});
  std::vector<uint8_t> model(layout.total_bytes());
  for (size_t i = 0; i < model.size(); ++i) model[i] = static_cast<uint8_t>(i * 7 + i / 256);
  WriteModel(path_, model, layout);
  EXPECT_THAT(Digest(layout), IsOkAndHolds(dataplane::Sha256Of(model)));
}

TEST_F(CheckpointTest, WhatIsNone) {
  EXPECT_THAT(Digest(), StatusIs(absl::StatusCode::kNotFound));
  ASSERT_OK(RealFileSystem()->WriteFileAtomically(path_, "not such a file"));
  EXPECT_THAT(Digest(), StatusIs(absl::StatusCode::kDataLoss));
  const auto one = [](const char* name, int64_t elements) {
    return *dataplane::Layout::Create(
        {{name, dataplane::DataType::kFloat32, {elements}, dataplane::TensorKind::kParameter, 1}});
  };
  WriteModel(path_, std::vector<uint8_t>(8), one("w", 2));
  EXPECT_THAT(Digest(one("v", 2)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("tensor v")));
  EXPECT_THAT(Digest(one("w", 1)), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("tensor w")));
  EXPECT_THAT(Digest(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("1 tensors")));
}

}  // namespace
}  // namespace causeway::backup
