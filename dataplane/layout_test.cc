#include "dataplane/layout.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dataplane/digest.h"
#include "proto/common.pb.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::HasSubstr;

std::vector<TensorSpec> Tensors() {
  return {{.name = "conv.weight", .shape = {2, 3}},
          {.name = "conv.bias", .shape = {2}},
          {.name = "bn.mean", .shape = {}, .kind = TensorKind::kFloatBuffer, .layer = 2},
          {.name = "bn.count", .dtype = DataType::kInt64, .shape = {}, .kind = TensorKind::kIntegerBuffer, .layer = 2}};
}

TEST(LayoutTest, OffsetsCountBytesAndElements) {
  absl::StatusOr<Layout> layout = Layout::Create(Tensors());
  ASSERT_THAT(layout, IsOk());
  EXPECT_EQ(layout->byte_offset(0), 0);
  EXPECT_EQ(layout->byte_offset(1), 24);
  EXPECT_EQ(layout->byte_offset(3), 36);
  EXPECT_EQ(layout->element_offset(3), 9);
  EXPECT_EQ(layout->total_bytes(), 44);
  EXPECT_EQ(layout->total_elements(), 10);
  EXPECT_EQ(layout->num_layers(), 2);
}

TEST(LayoutTest, ProtoGoesThereAndBack) {
  absl::StatusOr<Layout> layout = Layout::Create(Tensors());
  ASSERT_THAT(layout, IsOk());
  absl::StatusOr<Layout> again = Layout::FromProto(layout->ToProto());
  ASSERT_THAT(again, IsOk());
  EXPECT_EQ(again->hash(), layout->hash());
  EXPECT_EQ(again->ToProto().SerializeAsString(), layout->ToProto().SerializeAsString());
}

TEST(LayoutTest, HashTellsEveryFieldAndTheOrder) {
  const std::string hash = Layout::Create(Tensors())->hash();
  EXPECT_EQ(hash.size(), kSha256Bytes);
  EXPECT_EQ(Layout::Create(Tensors())->hash(), hash);
  auto changed = [&](auto change) {
    std::vector<TensorSpec> tensors = Tensors();
    change(tensors);
    absl::StatusOr<Layout> layout = Layout::Create(std::move(tensors));
    EXPECT_THAT(layout, IsOk());
    return layout->hash();
  };
  EXPECT_NE(changed([](auto& t) { t[0].name = "conv.weigh"; }), hash);
  EXPECT_NE(changed([](auto& t) { t[0].shape = {3, 2}; }), hash);
  EXPECT_NE(changed([](auto& t) { t[1].kind = TensorKind::kFloatBuffer; }), hash);
  EXPECT_NE(changed([](auto& t) { t[1].layer = 2; }), hash);
  EXPECT_NE(changed([](auto& t) { std::swap(t[0], t[1]); }), hash);
  EXPECT_NE(
      changed([](auto& t) { t[3] = {.name = "bn.count", .shape = {2}, .kind = TensorKind::kFloatBuffer, .layer = 2}; }),
      hash);
}

TEST(LayoutTest, BadLayoutsAreRefused) {
  auto refused = [](auto change) {
    std::vector<TensorSpec> tensors = Tensors();
    change(tensors);
    return Layout::Create(std::move(tensors)).status();
  };
  const auto invalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(refused([](auto& t) { t.clear(); }), StatusIs(invalid, HasSubstr("at least one")));
  EXPECT_THAT(refused([](auto& t) { t[1].name = t[0].name; }), StatusIs(invalid, HasSubstr("conv.weight")));
  EXPECT_THAT(refused([](auto& t) { t[1].name = ""; }), StatusIs(invalid, HasSubstr("name")));
  EXPECT_THAT(refused([](auto& t) { t[1].name = std::string(257, 'a'); }), StatusIs(invalid, HasSubstr("257")));
  EXPECT_THAT(refused([](auto& t) { t[1].name = "a\nb"; }), StatusIs(invalid, HasSubstr("a?b")));
  EXPECT_THAT(refused([](auto& t) { t[0].layer = 2; }), StatusIs(invalid, HasSubstr("layer 2")));
  EXPECT_THAT(refused([](auto& t) { t[3].layer = 1; }), StatusIs(invalid, HasSubstr("layer 1")));
  EXPECT_THAT(refused([](auto& t) { t[0].shape = {2, -3}; }), StatusIs(invalid, HasSubstr("-3")));
  EXPECT_THAT(refused([](auto& t) { t[0].kind = TensorKind::kIntegerBuffer; }),
              StatusIs(invalid, HasSubstr("conv.weight")));
  EXPECT_THAT(refused([](auto& t) { t[3].kind = TensorKind::kFloatBuffer; }), StatusIs(invalid, HasSubstr("bn.count")));
}

TEST(LayoutTest, SizesAreBounded) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  auto shape = [](std::vector<int64_t> s) { return Layout::Create({{.name = "x", .shape = std::move(s)}}).status(); };
  EXPECT_THAT(shape({int64_t{1} << 44}), IsOk());
  EXPECT_THAT(shape({(int64_t{1} << 44) + 1}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(shape({kHuge, kHuge}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(shape({0, kHuge, kHuge}), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(shape({0, 5}), IsOk());
  EXPECT_THAT(Layout::Create({{.name = "x", .shape = {int64_t{1} << 44}}, {.name = "y", .shape = {1}}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("\"y\"")));
}

TEST(LayoutTest, UnknownValuesFromOutsideAreRefused) {
  v1::Layout proto = Layout::Create(Tensors())->ToProto();
  v1::Layout bad = proto;
  bad.mutable_tensors(0)->set_dtype(static_cast<v1::DataType>(9));
  EXPECT_THAT(Layout::FromProto(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("type 9")));
  bad = proto;
  bad.mutable_tensors(0)->clear_kind();
  EXPECT_THAT(Layout::FromProto(bad), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("kind 0")));
}

}  // namespace
}  // namespace causeway::dataplane
