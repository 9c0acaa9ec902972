#include "cli/output.h"

#include <gtest/gtest.h>

#include <limits>

#include "proto/bulk.pb.h"

namespace causeway::cli {
namespace {

TEST(ToJsonTest, ShowsEveryFieldInProtoOrder) {
  v1::JobSummary summary;
  summary.set_job("fashion");
  summary.set_state(v1::JOB_STATE_TRAINING);
  summary.set_submitted_ms(int64_t{1} << 53);
  summary.set_epochs_done(0.1);
  EXPECT_EQ(
      ToJson(summary).dump(),
      R"({"job":"fashion","state":"TRAINING","reason":"","round":0,"rounds_planned":0,"epochs_done":0.1,"version":0,"evaluation":null,)"
      R"("submitted_ms":9007199254740992,"ended_ms":0,"model":""})");
}

TEST(ToJsonTest, ListsMapsAndNestedMessages) {
  v1::GetJobResponse status;
  status.add_waiting_for("a1");
  (*status.mutable_rejected())["nan"] = 2;
  status.add_workers()->set_worker("a1");
  status.mutable_spec()->mutable_end()->set_target_metric(v1::METRIC_ACCURACY);
  Json json = ToJson(status);
  EXPECT_EQ(json["waiting_for"].dump(), R"(["a1"])");
  EXPECT_EQ(json["rejected"].dump(), R"({"nan":2})");
  EXPECT_EQ(json["workers"][0]["worker"], "a1");
  EXPECT_EQ(json["workers"][0]["progress"], nullptr);
  EXPECT_EQ(json["spec"]["end"]["target_metric"], "ACCURACY");
  EXPECT_EQ(json["rounds"].dump(), "[]");
}

TEST(ToJsonTest, BytesAreHexadecimalAndNonNumbersNull) {
  v1::DataHeader header;
  header.set_sha256(std::string("\x00\xff", 2));
  EXPECT_EQ(ToJson(header)["sha256"], "00ff");
  v1::RoundRecord round;
  round.set_train_loss(std::numeric_limits<double>::quiet_NaN());
  EXPECT_NE(ToJson(round).dump().find("\"train_loss\":null"), std::string::npos);
}

TEST(JsonDocumentTest, SchemaComesFirstAndBadUtf8IsReplaced) {
  EXPECT_EQ(JsonDocument("causeway.x/1", {{"a", 1}}), "{\n  \"schema\": \"causeway.x/1\",\n  \"a\": 1\n}\n");
  EXPECT_NE(JsonDocument("s/1", {{"a", "\xff"}}).find("\xef\xbf\xbd"), std::string::npos);
}

TEST(TableTest, NumbersAreFlushRight) {
  Table table({"NAME", "N", "TEXT"});
  table.AddRow({"a", "5", "x"});
  table.AddRow({"longer", "12345", ""});
  EXPECT_EQ(table.ToString(),
            "NAME        N  TEXT\n"
            "a           5  x\n"
            "longer  12345  -\n");
}

TEST(TableTest, OnlyAHeader) { EXPECT_EQ(Table({"A", "B"}).ToString(), "A  B\n"); }

TEST(HumanTest, Texts) {
  EXPECT_EQ(HumanBytes(0), "0 B");
  EXPECT_EQ(HumanBytes(1023), "1023 B");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(1024.0 * 1024 - 1), "1.0 MiB");
  EXPECT_EQ(HumanRate(0), "-");
  EXPECT_EQ(HumanRate(1 << 20), "1.0 MiB/s");
  EXPECT_EQ(HumanSeconds(0.123), "0.12s");
  EXPECT_EQ(HumanSeconds(59.9), "59.9s");
  EXPECT_EQ(HumanSeconds(59.99), "1m00s");
  EXPECT_EQ(HumanSeconds(125.4), "2m05s");
  EXPECT_EQ(HumanSeconds(11220), "3h07m");
  EXPECT_EQ(HumanSeconds(std::numeric_limits<double>::infinity()), "-");
  EXPECT_EQ(HumanTime(0), "-");
  EXPECT_EQ(HumanTime(1796032800000), "2026-11-30 10:00:00");
  EXPECT_EQ(HumanNumber(0.12345, 3), "0.123");
  v1::Emulation emulation;
  emulation.set_slowdown(1);
  EXPECT_EQ(HumanEmulation(emulation), "");
  emulation.set_slowdown(2.5);
  emulation.set_up_bytes_per_s(1 << 20);
  EXPECT_EQ(HumanEmulation(emulation), "slowdown 2.5, up 1.0 MiB/s");
  EXPECT_EQ(StateName(v1::JOB_STATE_FINISHED), "FINISHED");
  EXPECT_EQ(StateName(static_cast<v1::JobState>(77)), "STATE 77");
  EXPECT_EQ(PhaseName(v1::WORKER_PHASE_TRAINING), "training");
  EXPECT_EQ(PhaseName(v1::WORKER_PHASE_UNSPECIFIED), "-");
}

}  // namespace
}  // namespace causeway::cli
