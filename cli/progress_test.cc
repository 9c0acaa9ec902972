#include "cli/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "cli/output.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

v1::GetJobResponse Training() {
  v1::GetJobResponse status;
  status.mutable_summary()->set_job("fashion");
  status.mutable_summary()->set_state(v1::JOB_STATE_TRAINING);
  status.mutable_summary()->set_round(2);
  status.mutable_summary()->set_rounds_planned(10);
  status.mutable_summary()->set_epochs_done(2);
  status.mutable_summary()->set_version(2);
  status.mutable_plan()->set_number(1);
  status.mutable_plan()->set_rounds_per_epoch(2);
  for (const char* name : {"a1", "a2"}) {
    v1::WorkerInJob* worker = status.add_workers();
    worker->set_worker(name);
    worker->set_site("a");
    worker->set_live(true);
    worker->set_takes_part(true);
    worker->mutable_plan()->set_compute_s(6);
    worker->mutable_plan()->set_comm_s(2);
    worker->mutable_progress()->set_phase(v1::WORKER_PHASE_TRAINING);
    worker->mutable_progress()->set_steps_done(5);
    worker->mutable_progress()->set_steps_planned(10);
    worker->mutable_progress()->set_samples_done(160);
    worker->mutable_progress()->set_train_loss(0.5);
  }
  return status;
}

void AddRound(v1::GetJobResponse* status, int64_t round) {
  v1::RoundRecord* record = status->add_rounds();
  record->set_round(round);
  record->set_version(round + 1);
  record->set_samples(60000);
  record->set_contributions(2);
  record->set_planned_contributions(2);
  record->set_seconds(4.2);
  record->set_train_loss(0.25);
}

TEST(JobEventsTest, FirstStatusThenOnlyWhatIsNew) {
  JobEvents events;
  v1::GetJobResponse status = Training();
  AddRound(&status, 1);
  v1::WorkerPlan* share = status.mutable_plan()->add_workers();
  share->set_worker("a1");
  share->set_samples(60000);
  share->set_batch_size(32);
  status.mutable_plan()->add_workers()->set_worker("a2");
  status.mutable_plan()->set_reason("first plan");
  status.mutable_plan()->set_predicted_total_s(40);
  status.mutable_plan()->set_even_split_total_s(80);
  EXPECT_THAT(events.Update(status), ElementsAre("fashion: TRAINING",
                                                 "fashion: plan 1 (first plan): a1 60000 samples in batches of 32, a2 "
                                                 "none; predicted 40.0s in all, even split 1m20s"));
  EXPECT_THAT(events.Update(status), IsEmpty());

  status.mutable_workers(0)->mutable_progress()->set_steps_done(6);
  EXPECT_THAT(events.Update(status), IsEmpty());

  AddRound(&status, 2);
  v1::Evaluation* evaluation = status.mutable_summary()->mutable_evaluation();
  evaluation->set_version(2);
  evaluation->set_accuracy(0.875);
  evaluation->set_loss(0.5);
  evaluation->set_total(10000);
  EXPECT_THAT(events.Update(status),
              ElementsAre("fashion: round 2: version 3, 60000 samples, 2 of 2 contributions, 4.2s, train loss 0.2500",
                          "fashion: version 2 evaluated: accuracy 0.8750, loss 0.5000 on 10000 samples"));
  EXPECT_THAT(events.Update(status), IsEmpty());
}

TEST(JobEventsTest, WorkersRejectionsAndWaiting) {
  JobEvents events;
  v1::GetJobResponse status = Training();
  events.Update(status);
  status.mutable_workers(1)->set_live(false);
  (*status.mutable_rejected())["nan"] = 1;
  EXPECT_THAT(events.Update(status),
              ElementsAre("fashion: worker a2 is lost", "fashion: contributions rejected as nan: 1"));
  status.mutable_workers(1)->set_live(true);
  EXPECT_THAT(events.Update(status), ElementsAre("fashion: worker a2 is back"));
  status.add_waiting_for("a2");
  status.set_round_deadline_s(30);
  status.set_round_elapsed_s(29);
  EXPECT_THAT(events.Update(status), IsEmpty());
  status.set_round_elapsed_s(31);
  EXPECT_THAT(events.Update(status), ElementsAre("fashion: round 2 is past its deadline and waits for a2"));
  status.set_round_elapsed_s(32);
  EXPECT_THAT(events.Update(status), IsEmpty());
}

TEST(JobEventsTest, TheEndComesLast) {
  JobEvents events;
  v1::GetJobResponse status = Training();
  events.Update(status);
  AddRound(&status, 2);
  status.mutable_summary()->set_state(v1::JOB_STATE_FAILED);
  status.mutable_summary()->set_reason("three rounds were rejected");
  std::vector<std::string> lines = events.Update(status);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[1], "fashion: FAILED (three rounds were rejected)");
}

TEST(BarTest, FillsFromTheLeft) {
  EXPECT_EQ(Bar(0, 4), "[----]");
  EXPECT_EQ(Bar(0.5, 4), "[##--]");
  EXPECT_EQ(Bar(0.99, 4), "[###-]");
  EXPECT_EQ(Bar(1, 4), "[####]");
  EXPECT_EQ(Bar(7, 4), "[####]");
  EXPECT_EQ(Bar(-1, 4), "[----]");
}

TEST(RenderProgressTest, ShowsTheJobAndABarPerWorker) {
  v1::GetJobResponse status = Training();
  status.mutable_summary()->mutable_evaluation()->set_accuracy(0.875);
  status.set_seconds_left(90);
  status.set_round_elapsed_s(3);
  status.set_round_deadline_s(30);
  status.add_waiting_for("a1");
  status.mutable_workers(0)->set_rounds(4);
  status.mutable_workers(0)->set_compute_s(12);
  status.mutable_workers(0)->set_pull_s(3);
  status.mutable_workers(0)->set_push_s(1);
  status.mutable_workers(1)->mutable_emulation()->set_slowdown(4);
  std::vector<std::string> lines = RenderProgress(status, 200);
  ASSERT_THAT(lines, SizeIs(5));
  EXPECT_EQ(lines[0], "fashion TRAINING  round 2 of 10  epoch 2.00  version 2  accuracy 0.8750, loss 0.0000");
  EXPECT_EQ(lines[1], "in this round 3.0s of at most 30.0s  left: about 1m30s  waiting for a1");
  EXPECT_THAT(lines[3],
              AllOf(HasSubstr("a1"), HasSubstr("[##########----------]"), HasSubstr("training"), HasSubstr("5/10"),
                    HasSubstr("160"), HasSubstr("0.5000"), HasSubstr("4.0s / 4.0s"), Not(HasSubstr("emulated"))));
  EXPECT_THAT(lines[4], AllOf(HasSubstr("4.0s / -"), EndsWith("emulated")));
}

TEST(RenderProgressTest, PhasesMoveTheBar) {
  v1::GetJobResponse status = Training();
  v1::WorkerProgress* progress = status.mutable_workers(0)->mutable_progress();
  progress->set_phase(v1::WORKER_PHASE_FETCHING);
  progress->set_fetch_bytes_done(3);
  progress->set_fetch_bytes_total(4);
  EXPECT_THAT(RenderProgress(status, 200)[3], HasSubstr("[###############-----]"));
  progress->set_phase(v1::WORKER_PHASE_WAITING);
  EXPECT_THAT(RenderProgress(status, 200)[3], HasSubstr("[####################]"));
  progress->set_phase(v1::WORKER_PHASE_PULLING);
  EXPECT_THAT(RenderProgress(status, 200)[3], HasSubstr("[--------------------]"));
  status.mutable_workers(0)->set_takes_part(false);
  EXPECT_THAT(RenderProgress(status, 200)[3], HasSubstr("takes no part"));
  status.mutable_workers(0)->set_live(false);
  EXPECT_THAT(RenderProgress(status, 200)[3], HasSubstr("lost"));
}

TEST(RenderProgressTest, NoLineIsWiderThanTheTerminal) {
  for (const std::string& line : RenderProgress(Training(), 40)) EXPECT_LT(line.size(), 40u);
}

TEST(PlainViewTest, PrintsOnlyChanges) {
  std::ostringstream out, err;
  std::unique_ptr<WatchView> view = MakePlainView(&out, &err);
  view->Show(Training());
  std::string first = out.str();
  EXPECT_THAT(first, HasSubstr("fashion: TRAINING\n"));
  EXPECT_THAT(first, Not(HasSubstr("\x1b")));
  view->Show(Training());
  EXPECT_EQ(out.str(), first);
  view->Note("trying again");
  EXPECT_EQ(out.str(), first);
  EXPECT_EQ(err.str(), "trying again\n");
}

TEST(TerminalViewTest, RedrawsTheBlockUnderTheEvents) {
  std::ostringstream out;
  std::unique_ptr<WatchView> view = MakeTerminalView(&out, 120);
  view->Show(Training());
  EXPECT_THAT(out.str(), Not(HasSubstr("\x1b[")));
  out.str("");
  view->Show(Training());
  // Five lines up, cleared, drawn again.
  EXPECT_THAT(out.str(), testing::StartsWith("\x1b[5A\r\x1b[Jfashion TRAINING"));
  out.str("");
  view->Note("trying again");
  EXPECT_EQ(out.str(), "\x1b[5A\r\x1b[Jtrying again\n");
  out.str("");
  view->Show(Training());
  EXPECT_THAT(out.str(), testing::StartsWith("fashion TRAINING"));
}

TEST(JsonViewTest, OneLinePerChange) {
  std::ostringstream out, err;
  std::unique_ptr<WatchView> view = MakeJsonView(&out, &err);
  view->Show(Training());
  view->Show(Training());
  v1::GetJobResponse next = Training();
  next.mutable_summary()->set_round(3);
  view->Show(next);
  std::istringstream lines(out.str());
  std::string line;
  std::vector<Json> documents;
  while (std::getline(lines, line)) documents.push_back(Json::parse(line));
  ASSERT_THAT(documents, SizeIs(2));
  EXPECT_EQ(documents[0]["schema"], "causeway.job/1");
  EXPECT_EQ(documents[1]["summary"]["round"], 3);
}

}  // namespace
}  // namespace causeway::cli
