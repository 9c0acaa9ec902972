#include "worker/sample_decoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::HasSubstr;

SampleDecoder::Options TwoChannels() {
  return {.sample_shape = {2, 1, 2}, .label_bytes = 1, .mean = {0, 0.5}, .std = {1, 0.25}, .classes = 10};
}

TEST(SampleDecoderTest, NormalizesEachChannelAndReadsTheLabel) {
  auto decoder = SampleDecoder::Create(TwoChannels());
  ASSERT_THAT(decoder, IsOk());
  EXPECT_EQ(decoder->record_bytes(), 5);
  EXPECT_EQ(decoder->sample_elements(), 4);
  const std::vector<uint8_t> record = {0, 255, 0, 51, 7};
  std::vector<float> input(4);
  int64_t label = -1;
  ASSERT_THAT(decoder->Decode(record, absl::MakeSpan(input), &label), IsOk());
  EXPECT_THAT(input, ElementsAre(FloatEq(0), FloatEq(1), FloatEq(-2), FloatEq(-1.2f)));
  EXPECT_EQ(label, 7);
}

TEST(SampleDecoderTest, WithoutMeanAndStdScalesToOne) {
  auto decoder = SampleDecoder::Create({.sample_shape = {1, 1, 2}, .label_bytes = 1});
  ASSERT_THAT(decoder, IsOk());
  std::vector<float> input(2);
  int64_t label;
  ASSERT_THAT(decoder->Decode(std::vector<uint8_t>{255, 102, 0}, absl::MakeSpan(input), &label), IsOk());
  EXPECT_THAT(input, ElementsAre(FloatEq(1), FloatEq(0.4f)));
}

TEST(SampleDecoderTest, LabelsAreLittleEndian) {
  auto decoder = SampleDecoder::Create({.sample_shape = {1, 1, 1}, .label_bytes = 4, .classes = 70000});
  ASSERT_THAT(decoder, IsOk());
  std::vector<float> input(1);
  int64_t label;
  ASSERT_THAT(decoder->Decode(std::vector<uint8_t>{0, 2, 1, 1, 0}, absl::MakeSpan(input), &label), IsOk());
  EXPECT_EQ(label, 65536 + 256 + 2);
}

TEST(SampleDecoderTest, RefusesAWrongLabelOrSize) {
  auto decoder = SampleDecoder::Create(TwoChannels());
  ASSERT_THAT(decoder, IsOk());
  std::vector<float> input(4);
  int64_t label;
  EXPECT_THAT(decoder->Decode(std::vector<uint8_t>{0, 0, 0, 0, 10}, absl::MakeSpan(input), &label),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("label 10")));
  EXPECT_THAT(decoder->Decode(std::vector<uint8_t>{0, 0, 0, 0}, absl::MakeSpan(input), &label),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(decoder->Decode(std::vector<uint8_t>{0, 0, 0, 0, 0}, absl::MakeSpan(input).first(3), &label),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST(SampleDecoderTest, RefusesImpossibleOptions) {
  const auto refuses = [](void (*change)(SampleDecoder::Options*)) {
    SampleDecoder::Options options = TwoChannels();
    change(&options);
    return absl::IsInvalidArgument(SampleDecoder::Create(options).status());
  };
  EXPECT_TRUE(refuses([](auto* o) { o->sample_shape = {4}; }));
  EXPECT_TRUE(refuses([](auto* o) { o->sample_shape = {2, 0, 2}; }));
  EXPECT_TRUE(refuses([](auto* o) { o->sample_shape = {2, int64_t{1} << 40, int64_t{1} << 40}; }));
  EXPECT_TRUE(refuses([](auto* o) { o->label_bytes = 0; }));
  EXPECT_TRUE(refuses([](auto* o) { o->label_bytes = 9; }));
  EXPECT_TRUE(refuses([](auto* o) { o->classes = 0; }));
  EXPECT_TRUE(refuses([](auto* o) { o->mean = {0.5}; }));
  EXPECT_TRUE(refuses([](auto* o) { o->std = {1, 0}; }));
}

class FewRecords : public SampleSource {
 public:
  absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) override {
    if (sample > 2) return absl::NotFoundError("not there");
    std::fill(out.begin(), out.end(), static_cast<uint8_t>(sample));
    return absl::OkStatus();
  }
};

TEST(BatchLoaderTest, LoadsSamplesInTheOrderAskedFor) {
  auto decoder = SampleDecoder::Create({.sample_shape = {1, 1, 2}, .label_bytes = 1});
  ASSERT_THAT(decoder, IsOk());
  FewRecords source;
  BatchLoader loader(&source, *decoder);
  auto batch = loader.Load({2, 0, 1});
  ASSERT_THAT(batch, IsOk());
  EXPECT_EQ(batch->size, 3);
  EXPECT_THAT(batch->labels, ElementsAre(2, 0, 1));
  EXPECT_THAT(batch->inputs,
              ElementsAre(FloatEq(2 / 255.f), FloatEq(2 / 255.f), 0, 0, FloatEq(1 / 255.f), FloatEq(1 / 255.f)));
  batch = loader.Load({1});
  ASSERT_THAT(batch, IsOk());
  EXPECT_THAT(batch->labels, ElementsAre(1));
  EXPECT_EQ(batch->inputs.size(), 2u);
}

TEST(BatchLoaderTest, NamesTheSampleThatFails) {
  auto decoder = SampleDecoder::Create({.sample_shape = {1, 1, 2}, .label_bytes = 1, .classes = 2});
  ASSERT_THAT(decoder, IsOk());
  FewRecords source;
  BatchLoader loader(&source, *decoder);
  EXPECT_THAT(loader.Load({0, 3}), StatusIs(absl::StatusCode::kNotFound, HasSubstr("sample 3: not there")));
  EXPECT_THAT(loader.Load({0, 2}), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("sample 2: label 2")));
}

}  // namespace
}  // namespace causeway::worker
