#include "cli/model_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "cli/cli_test_fixture.h"
#include "dataplane/safetensors.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class ModelCommandsTest : public CliTest {
 protected:
  ModelCommandsTest() {
    dataplane::PulledModel model;
    model.version = 7;
    model.layout = *dataplane::Layout::Create({{.name = "w", .shape = {2}}, {.name = "b", .shape = {1}}});
    model.bytes.resize(12);
    const float values[] = {1, 2, 3};
    std::memcpy(model.bytes.data(), values, sizeof(values));
    model.sha256 = std::string(32, '\x01');
    coordinator_.model = model;
  }
  void AddVersion(int64_t version, bool final) {
    v1::ModelVersion* model = coordinator_.answers.ListModels.add_models();
    model->set_version(version);
    model->set_bytes(2048);
    model->set_final(final);
  }
};

TEST_F(ModelCommandsTest, List) {
  AddVersion(6, true);
  AddVersion(7, false);
  coordinator_.answers.ListModels.mutable_models(0)->mutable_evaluation()->set_accuracy(0.9);
  EXPECT_EQ(Run({"model", "list", "fashion"}), 0);
  EXPECT_THAT(coordinator_.calls, ElementsAre("ListModels job: \"fashion\""));
  EXPECT_THAT(out(), AllOf(HasSubstr("6  2.0 KiB    0.9000"), HasSubstr("yes"), HasSubstr("7  2.0 KiB         -")));
  EXPECT_EQ(Run({"model", "list", "fashion", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.models/1");
  EXPECT_EQ(OutJson()["models"][1]["version"], 7);
}

TEST_F(ModelCommandsTest, FetchWritesSafetensors) {
  std::string path = Write("model.safetensors", "an old file");
  EXPECT_EQ(Run({"model", "fetch", "fashion", "--out", path}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "PullModel fashion -1");
  EXPECT_EQ(coordinator_.last_timeout, absl::InfiniteDuration());
  EXPECT_THAT(out(), HasSubstr("version 7 of fashion, 2 tensors"));

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = RealFileSystem()->OpenForRead(path);
  ASSERT_THAT(file, IsOk());
  absl::StatusOr<dataplane::SafetensorsHeader> header = dataplane::ReadSafetensorsHeader(**file);
  ASSERT_THAT(header, IsOk());
  EXPECT_THAT(header->metadata, UnorderedElementsAre(Pair("format", "pt"), Pair("causeway.job", "fashion"),
                                                     Pair("causeway.version", "7")));
  std::vector<uint8_t> bytes(12);
  ASSERT_THAT(dataplane::ReadSafetensorsInto(**file, coordinator_.model->layout, absl::MakeSpan(bytes)), IsOk());
  EXPECT_EQ(bytes, coordinator_.model->bytes);
  EXPECT_FALSE(RealFileSystem()->Exists(path + ".partial"));

  EXPECT_EQ(Run({"model", "fetch", "fashion", "--out", path, "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.model-fetched/1");
  EXPECT_EQ(OutJson()["bytes"], (*file)->size_bytes());
  EXPECT_EQ(OutJson()["tensor_sha256"].get<std::string>().substr(0, 4), "0101");
}

TEST_F(ModelCommandsTest, FetchTakesTheFinalVersionUnlessTold) {
  AddVersion(6, true);
  AddVersion(7, false);
  EXPECT_EQ(Run({"model", "fetch", "fashion", "--out", dir_.Join("m")}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "PullModel fashion 6");
  EXPECT_EQ(Run({"model", "fetch", "fashion", "--version", "3", "--out", dir_.Join("m"), "--timeout", "5m"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "PullModel fashion 3");
  EXPECT_EQ(coordinator_.last_timeout, absl::Minutes(5));
}

TEST_F(ModelCommandsTest, AFailedFetchLeavesTheOldFile) {
  std::string path = Write("model.safetensors", "an old file");
  coordinator_.model = absl::DataLossError("digest does not fit");
  EXPECT_EQ(Run({"model", "fetch", "fashion", "--out", path}), 1);
  EXPECT_THAT(err(), HasSubstr("digest does not fit"));
  EXPECT_THAT(RealFileSystem()->ReadFile(path, 100), IsOkAndHolds("an old file"));
}

TEST_F(ModelCommandsTest, AFolderThatIsNotThere) {
  EXPECT_EQ(Run({"model", "fetch", "fashion", "--out", dir_.Join("none/m")}), 1);
  EXPECT_THAT(err(), HasSubstr("none/m"));
  // A folder in the file's place: nothing half written is left.
  ASSERT_THAT(RealFileSystem()->MakeDirs(dir_.Join("folder/in")), IsOk());
  EXPECT_NE(Run({"model", "fetch", "fashion", "--out", dir_.Join("folder")}), 0);
  EXPECT_FALSE(RealFileSystem()->Exists(dir_.Join("folder.partial")));
}

TEST_F(ModelCommandsTest, OutIsRequired) {
  EXPECT_EQ(Run({"model", "fetch", "fashion"}), 2);
  EXPECT_THAT(err(), HasSubstr("--out"));
}

}  // namespace
}  // namespace causeway::cli
