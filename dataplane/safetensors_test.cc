#include "dataplane/safetensors.h"

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "base/random.h"
#include "dataplane/digest.h"
#include "tests/fakes/memory_file.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::dataplane {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsTest() {
    layout_ =
        *Layout::Create({{.name = "w", .shape = {2, 3}},
                         {.name = "n", .dtype = DataType::kInt64, .shape = {}, .kind = TensorKind::kIntegerBuffer},
                         {.name = "none", .shape = {0}},
                         {.name = "b", .shape = {1}, .layer = 2}});
    packed_.resize(layout_.total_bytes());
    for (size_t i = 0; i < packed_.size(); ++i) packed_[i] = static_cast<uint8_t>(i);
  }

  std::string Write(const SafetensorsMetadata& metadata = {}) {
    std::unique_ptr<WritableFile> file = *RealFileSystem()->Create(path_);
    EXPECT_THAT(WriteSafetensors(layout_, packed_, metadata, file.get()), IsOk());
    EXPECT_THAT(file->Close(), IsOk());
    return *RealFileSystem()->ReadFile(path_, 1 << 20);
  }

  static std::unique_ptr<RandomAccessFile> Open(const std::string& content) {
    return std::make_unique<MemoryFile>(std::vector<uint8_t>(content.begin(), content.end()));
  }

  // A file with this header and so many bytes of data.
  absl::Status ReadHeader(const std::string& json, int data_bytes) {
    std::string content(8, '\0');
    const uint64_t size = json.size();
    std::memcpy(content.data(), &size, 8);
    return ReadSafetensorsHeader(*Open(content + json + std::string(data_bytes, 'x'))).status();
  }

  TempDir dir_;
  const std::string path_ = dir_.Join("model.safetensors");
  Layout layout_;
  std::vector<uint8_t> packed_;
};

TEST_F(SafetensorsTest, BytesAreFrozen) {
  const std::string json =
      R"({"n":{"dtype":"I64","shape":[],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2,3],"data_offsets":[8,32]},)"
      R"("none":{"dtype":"F32","shape":[0],"data_offsets":[32,32]},"b":{"dtype":"F32","shape":[1],"data_offsets":[32,36]}})";
  const std::string content = Write();
  ASSERT_GT(content.size(), 8 + json.size());
  const size_t header = static_cast<uint8_t>(content[0]) + 256 * static_cast<uint8_t>(content[1]);
  EXPECT_EQ(header % 8, 0);
  EXPECT_EQ(content.substr(2, 6), std::string(6, '\0'));
  EXPECT_EQ(content.substr(8, json.size()), json);
  EXPECT_EQ(content.substr(8 + json.size(), header - json.size()), std::string(header - json.size(), ' '));
  // "n" first, then the others in layout order.
  const std::string packed(packed_.begin(), packed_.end());
  EXPECT_EQ(content.substr(8 + header), packed.substr(24, 8) + packed.substr(0, 24) + packed.substr(32));
}

TEST_F(SafetensorsTest, GoesThereAndBack) {
  const SafetensorsMetadata metadata = {{"job", "fashion"}, {"note", "a \"b\" \n ü"}};
  const std::string content = Write(metadata);
  EXPECT_EQ(static_cast<int64_t>(content.size()), SafetensorsFileSize(layout_, metadata));
  std::unique_ptr<RandomAccessFile> file = Open(content);
  absl::StatusOr<SafetensorsHeader> header = ReadSafetensorsHeader(*file);
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->metadata, ElementsAre(Pair("job", "fashion"), Pair("note", metadata.at("note"))));
  ASSERT_EQ(header->tensors.size(), 4);
  EXPECT_EQ(header->tensors[0].name, "n");
  EXPECT_EQ(header->tensors.back().end, file->size_bytes());
  std::vector<uint8_t> packed(layout_.total_bytes());
  ASSERT_THAT(ReadSafetensorsInto(*file, layout_, absl::MakeSpan(packed)), IsOk());
  EXPECT_EQ(packed, packed_);
}

TEST_F(SafetensorsTest, WriteChecksItsInput) {
  std::unique_ptr<WritableFile> file = *RealFileSystem()->Create(path_);
  packed_.pop_back();
  EXPECT_THAT(WriteSafetensors(layout_, packed_, {}, file.get()), StatusIs(kInvalid));
  Layout reserved = *Layout::Create({{.name = "__metadata__", .shape = {1}}});
  EXPECT_THAT(WriteSafetensors(reserved, std::vector<uint8_t>(4), {}, file.get()),
              StatusIs(kInvalid, HasSubstr("__metadata__")));
}

TEST_F(SafetensorsTest, FileThatDoesNotFitTheLayoutIsRefused) {
  std::unique_ptr<RandomAccessFile> file = Open(Write());
  auto read = [&](std::vector<TensorSpec> tensors) {
    Layout layout = *Layout::Create(std::move(tensors));
    std::vector<uint8_t> packed(layout.total_bytes());
    return ReadSafetensorsInto(*file, layout, absl::MakeSpan(packed));
  };
  std::vector<TensorSpec> tensors = layout_.tensors();
  tensors[0].shape = {3, 2};
  EXPECT_THAT(read(tensors), StatusIs(kInvalid, AllOf(HasSubstr("\"w\" is F32 [2, 3]"), HasSubstr("F32 [3, 2]"))));
  tensors = layout_.tensors();
  tensors[0].name = "v";
  EXPECT_THAT(read(tensors), StatusIs(kInvalid, HasSubstr("no tensor \"v\"")));
  tensors = layout_.tensors();
  tensors.pop_back();
  EXPECT_THAT(read(tensors), StatusIs(kInvalid, HasSubstr("4 tensors")));
  tensors = layout_.tensors();
  tensors[1] = {.name = "n", .shape = {2}};
  EXPECT_THAT(read(tensors), StatusIs(kInvalid, HasSubstr("I64")));
  std::vector<uint8_t> small(3);
  EXPECT_THAT(ReadSafetensorsInto(*file, layout_, absl::MakeSpan(small)), StatusIs(kInvalid));
}

TEST_F(SafetensorsTest, HostileHeadersAreRefused) {
  auto tensor = [](const char* name, const char* shape, const char* begin, const char* end, const char* dtype = "F32") {
    return absl::Substitute(R"("$0":{"dtype":"$4","shape":[$1],"data_offsets":[$2,$3]})", name, shape, begin, end,
                            dtype);
  };
  const std::string a = tensor("a", "1", "0", "4");
  ASSERT_THAT(ReadHeader("{" + a + "}", 4), IsOk());
  EXPECT_THAT(ReadHeader("{" + a + "}", 5), StatusIs(kInvalid, HasSubstr("belong to no tensor")));
  EXPECT_THAT(ReadHeader("{" + a + "}", 3), StatusIs(kInvalid, HasSubstr("outside")));
  EXPECT_THAT(ReadHeader("{" + a + "," + tensor("b", "1", "8", "12") + "}", 12),
              StatusIs(kInvalid, HasSubstr("hole or an overlap")));
  EXPECT_THAT(ReadHeader("{" + a + "," + tensor("b", "1", "0", "4") + "}", 4),
              StatusIs(kInvalid, HasSubstr("hole or an overlap")));
  EXPECT_THAT(ReadHeader("{" + a + "," + tensor("a", "1", "4", "8") + "}", 8), StatusIs(kInvalid)) << "a name twice";
  EXPECT_THAT(ReadHeader("{" + tensor("a", "2", "0", "4") + "}", 4), StatusIs(kInvalid, HasSubstr("do not fit")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "1", "4", "0") + "}", 4), StatusIs(kInvalid, HasSubstr("outside")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "-1", "0", "4") + "}", 4), StatusIs(kInvalid, HasSubstr("no size")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "1.0", "0", "4") + "}", 4), StatusIs(kInvalid, HasSubstr("no size")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "4611686018427387904, 8", "0", "4") + "}", 4),
              StatusIs(kInvalid, HasSubstr("too large")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "1", "0", "4", "F8_E4M3") + "}", 4),
              StatusIs(kInvalid, HasSubstr("neither F32 nor I64")));
  EXPECT_THAT(ReadHeader("{" + tensor("a", "1", "0", "99999999999999999999") + "}", 4), StatusIs(kInvalid));
  EXPECT_THAT(ReadHeader(R"({"a":7})", 4), StatusIs(kInvalid));
  EXPECT_THAT(ReadHeader(R"({"__metadata__":{"k":1}})", 0), StatusIs(kInvalid, HasSubstr("metadata")));
  EXPECT_THAT(ReadHeader(R"({"__metadata__":[]})", 0), StatusIs(kInvalid, HasSubstr("metadata")));
  EXPECT_THAT(ReadHeader("[]", 0), StatusIs(kInvalid));
  EXPECT_THAT(ReadHeader("{", 0), StatusIs(kInvalid));
  EXPECT_THAT(ReadHeader("", 0), StatusIs(kInvalid));
  EXPECT_THAT(ReadHeader(std::string(100'000, '['), 0), StatusIs(kInvalid)) << "deep nesting";
  EXPECT_THAT(ReadHeader(R"({"a":)" + std::string(100'000, '['), 0), StatusIs(kInvalid)) << "deep nesting";
}

TEST_F(SafetensorsTest, LengthsAreBounded) {
  auto read = [&](const std::string& content) { return ReadSafetensorsHeader(*Open(content)).status(); };
  EXPECT_THAT(read(""), StatusIs(kInvalid));
  EXPECT_THAT(read("1234567"), StatusIs(kInvalid));
  EXPECT_THAT(read(std::string(8, '\xff')), StatusIs(kInvalid, HasSubstr("a header of 18446744073709551615")));
  EXPECT_THAT(read(std::string("\x09\0\0\0\0\0\0\0{}", 10)), StatusIs(kInvalid, HasSubstr("a header of 9")));
}

TEST_F(SafetensorsTest, BrokenFilesNeverCrash) {
  const std::string good = Write({{"job", "x"}});
  Random random(7);
  int refused = 0;
  for (int i = 0; i < 500; ++i) {
    std::string bad = good;
    for (int n = 0; n < 3; ++n) bad[random.Below(bad.size())] = static_cast<char>(random());
    std::vector<uint8_t> packed(layout_.total_bytes());
    if (!ReadSafetensorsInto(*Open(bad), layout_, absl::MakeSpan(packed)).ok()) ++refused;
  }
  EXPECT_GT(refused, 250);  // Most hit the header; the data has no digest.
}

}  // namespace
}  // namespace causeway::dataplane
