#include "server/coordinator.h"

#include <sqlite3.h>

#include <algorithm>

#include "server/authz.h"
#include "server/coordinator_test_fixture.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr char kHeartbeat[] = "/causeway.v1.Membership/Heartbeat";

TEST_F(CoordinatorTest, FromAJoinToAFinishedJob) {
  Fleet(3);
  ASSERT_OK_AND_ASSIGN(const auto submitted, Submit(Yaml("job"), "r1"));
  EXPECT_EQ(submitted.job(), "job");
  EXPECT_FALSE(submitted.existed());
  EXPECT_EQ(worker("w0").assignment.job(), "job");
  EXPECT_TRUE(worker("w0").assignment.has_prepare());
  Run();
  const v1::GetJobResponse job = Job();
  EXPECT_EQ(job.summary().state(), v1::JOB_STATE_FINISHED) << job.summary().reason();
  EXPECT_EQ(job.summary().version(), 3);
  EXPECT_EQ(job.summary().evaluation().total(), kTestSamples);
  EXPECT_EQ(job.rounds_size(), 3);
  EXPECT_EQ(job.rounds(2).samples(), kTrainSamples);
  EXPECT_EQ(job.rounds(2).evaluation().version(), 2);
  EXPECT_EQ(worker("w0").assignment.job(), "") << "idle again";
  const auto models = On([&] { return coordinator_->ListModels("job"); });
  ASSERT_OK(models);
  ASSERT_EQ(models->models_size(), 3) << "checkpoint.keep";
  EXPECT_TRUE(models->models(2).final());
  EXPECT_TRUE(std::filesystem::exists(models->models(2).path()));
  // Alike weights: the mean of the three.
  const std::vector<uint8_t> model = FinalModel(worker("w0"));
  float first = 0;
  std::memcpy(&first, model.data(), 4);
  EXPECT_NEAR(first, 0.3f + 0.03f, 1e-3);
  EXPECT_EQ(coordinator_->spool()->used_bytes(), 0);
}

TEST_F(CoordinatorTest, TheSameBytesWhateverTheOrderAndOverARestartInARound) {
  std::vector<std::vector<uint8_t>> models;
  for (int variant = 0; variant < 4; ++variant) {
    SCOPED_TRACE(variant);
    const std::string name = absl::StrCat("job", variant);
    if (variant == 0) Fleet(3);
    ASSERT_OK(Submit(Yaml(name)));
    RunUntilTraining(1);
    if (variant == 1) {
      for (const char* n : {"w2", "w1", "w0"}) EXPECT_TRUE(Work(worker(n)));
    }
    if (variant >= 2) {
      const int64_t incarnation = coordinator_->incarnation().value();
      const int counted = variant - 1;
      for (int i = 0; i < counted; ++i) EXPECT_TRUE(Work(worker(absl::StrCat("w", i))));
      const int64_t attempt = worker("w2").assignment.train().attempt();
      Kill();
      Start();
      EXPECT_GT(coordinator_->incarnation().value(), incarnation);
      for (auto& [n, w] : workers_) Connect(w);
      EXPECT_EQ(Job(name).summary().state(), v1::JOB_STATE_TRAINING);
      EXPECT_EQ(Job(name).summary().round(), 1);
      for (int i = 0; i < 3; ++i) {
        const v1::Assignment& a = worker(absl::StrCat("w", i)).assignment;
        EXPECT_EQ(a.has_train(), i >= counted) << i << ": what was counted is counted still";
        if (a.has_train()) {
          EXPECT_EQ(a.train().attempt(), attempt);
        }
      }
      // An acknowledgement that was lost with the coordinator.
      v1::PushRequest again = PushFor(worker("w2"));
      *again.mutable_fence() = Fence(worker("w0"), 1);
      again.mutable_fence()->set_job(name);
      again.set_samples(20);
      ASSERT_OK_AND_ASSIGN(const auto result, Push(worker("w0"), again, Trained(worker("w0"), 1)));
      EXPECT_EQ(result.outcome(), v1::PushResult::OUTCOME_COUNTED);
    }
    Run();
    EXPECT_EQ(Job(name).summary().state(), v1::JOB_STATE_FINISHED);
    EXPECT_EQ(Job(name).summary().version(), 3);
    models.push_back(FinalModel(worker("w1"), name));
    EXPECT_EQ(models.back(), models.front());
  }
}

TEST_F(CoordinatorTest, ARestartBetweenAnyTwoSteps) {
  Fleet(2);
  std::vector<uint8_t> expected;
  for (int steps = 0; steps < 24; steps += 3) {
    SCOPED_TRACE(steps);
    const std::string name = absl::StrCat("job", steps);
    ASSERT_OK(Submit(Yaml(name, "end: {rounds: 2}\n")));
    int done = 0;
    if (steps > 0) {
      Run([&] { return done++ == steps; });
      Kill();
      Start();
      for (auto& [n, w] : workers_) Connect(w);
    }
    Run();
    EXPECT_EQ(Job(name).summary().state(), v1::JOB_STATE_FINISHED) << Job(name).summary().reason();
    EXPECT_EQ(Job(name).summary().evaluation().version(), 2);
    const std::vector<uint8_t> model = FinalModel(worker("w1"), name);
    if (steps == 0) expected = model;
    EXPECT_EQ(model, expected);
  }
}

TEST_F(CoordinatorTest, ASpooledContributionThatIsDamagedCostsTheRoundOnly) {
  Fleet(3);
  ASSERT_OK(Submit(Yaml("job")));
  RunUntilTraining(1);
  EXPECT_TRUE(Work(worker("w0")));
  Kill();
  int removed = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_.Join("state/spool"))) {
    if (file.path().extension() == ".whole" && ++removed > 0) std::filesystem::resize_file(file.path(), 3);
  }
  EXPECT_EQ(removed, 1);
  Start();
  ASSERT_NE(coordinator_, nullptr);
  for (auto& [n, w] : workers_) Connect(w);
  Run();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FINISHED) << Job().summary().reason();
  EXPECT_EQ(Job().rounds(1).contributions(), 3);
}

TEST_F(CoordinatorTest, ADamagedCheckpointCostsTheRoundsSinceTheLastWholeOne) {
  Fleet(2);
  ASSERT_OK(Submit(Yaml("job", "end: {rounds: 5}\ncheckpoint: {keep: 5}\n")));
  RunUntilTraining(3);
  Kill();
  const auto damage = [&](int version) {
    const std::string path = dir_.Join(absl::StrCat("state/jobs/job/model-00000", version, ".safetensors"));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-10, std::ios::end);
    file.put('\x5a');
    EXPECT_TRUE(file.good()) << path;
  };
  damage(3);
  std::filesystem::remove(dir_.Join("state/jobs/job/model-000002.safetensors"));
  Start();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_TRAINING);
  EXPECT_EQ(Job().summary().version(), 1);
  for (auto& [name, worker] : workers_) {
    ++worker.incarnation;
    worker.pushed.clear();
    Connect(worker);
  }
  Run();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FINISHED) << Job().summary().reason();
  EXPECT_EQ(Job().summary().version(), 5);
  EXPECT_EQ(Job().rounds_size(), 5);
}

TEST_F(CoordinatorTest, AJobWithoutAWholeCheckpointFailsAndNamesIt) {
  Fleet(2);
  ASSERT_OK(Submit(Yaml("job", "end: {rounds: 3}\n")));
  RunUntilTraining(1);
  Kill();
  for (const auto& file : std::filesystem::directory_iterator(dir_.Join("state/jobs/job"))) {
    std::filesystem::resize_file(file.path(), 20);
  }
  Start();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_FAILED);
  EXPECT_THAT(Job().summary().reason(), HasSubstr("model-000001.safetensors"));
}

TEST_F(CoordinatorTest, AJournalThatIsLostIsNotMadeAnew) {
  Fleet(2);
  ASSERT_OK(Submit(Yaml("job", "end: {rounds: 3}\n")));
  RunUntilTraining(1);
  Kill();
  const std::string journal = dir_.Join("state/journal.db");
  const auto refused = [&] {
    return testing::Matches(StatusIs(absl::StatusCode::kDataLoss, HasSubstr("state/jobs holds job")))(Open());
  };
  for (const char* file : {"journal.db", "journal.db-wal", "journal.db-shm"}) {
    std::filesystem::remove(dir_.Join(absl::StrCat("state/", file)));
  }
  EXPECT_TRUE(refused());
  EXPECT_FALSE(std::filesystem::exists(journal));
  std::ofstream(journal).close();
  EXPECT_TRUE(refused());
  EXPECT_EQ(std::filesystem::file_size(journal), 0);
  // One that an earlier program made on such a folder: at every start, not only the first.
  ASSERT_OK((*Journal::Open(journal))->NextIncarnation());
  EXPECT_TRUE(refused());
  EXPECT_TRUE(refused());
}

TEST_F(CoordinatorTest, AWorkerThatDoesNotComeBackAfterARestartIsGivenALease) {
  Fleet(4);
  ASSERT_OK(Submit(Yaml("job")));
  RunUntilTraining(1);
  Kill();
  testing::internal::CaptureStderr();
  Start();
  EXPECT_THAT(testing::internal::GetCapturedStderr(), ContainsRegex("coordinator_recovered .*waiting_for=w0,w1,w2,w3"));
  for (const char* name : {"w0", "w1", "w2"}) {
    Connect(worker(name));
    while (Work(worker(name))) {
    }
  }
  EXPECT_EQ(Job().summary().round(), 1);
  EXPECT_THAT(Job().waiting_for(), testing::ElementsAre("w3"));
  testing::internal::CaptureStderr();
  for (int i = 0; i < 24; ++i) {
    for (const char* name : {"w0", "w1", "w2"}) EXPECT_OK(Beat(worker(name)));
    Pass(absl::Milliseconds(500));
  }
  EXPECT_THAT(testing::internal::GetCapturedStderr(), ContainsRegex("workers_not_back workers=w3\n"));
  EXPECT_EQ(Job().summary().round(), 2);
  EXPECT_EQ(Job().rounds(1).contributions(), 3);
}

TEST_F(CoordinatorTest, KilledWorkersAreLost) {
  Fleet(4);
  ASSERT_OK(Submit(Yaml("job")));
  RunUntilTraining(0);
  // Its stream breaks.
  On([&] {
    coordinator_->HeartbeatClosed(worker("w3").stream);
    return true;
  });
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).live(), 4);
  Pass(absl::Milliseconds(1100));
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).live(), 3);
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).generation(), 2);
  for (const char* name : {"w0", "w1", "w2"}) EXPECT_TRUE(Work(worker(name)));
  EXPECT_EQ(Job().summary().round(), 1) << "the round commits with the rest";
  // A mute one: its lease runs out.
  for (int i = 0; i < 11; ++i) {
    for (const char* name : {"w0", "w1"}) EXPECT_OK(Beat(worker(name)));
    Pass(absl::Seconds(1));
  }
  EXPECT_TRUE(worker("w2").is_closed);
  EXPECT_THAT(worker("w2").closed, StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("lease")));
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).live(), 2);
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).generation(), 3);
  // Generations survive.
  Kill();
  Start();
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).generation(), 3);
}

TEST_F(CoordinatorTest, AGenerationIsToldOnlyWhenItIsStored) {
  Fleet(2);
  // Somebody else writes to the journal all the time.
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(dir_.Join("state/journal.db").c_str(), &other), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(other, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  On([&] {
    coordinator_->HeartbeatClosed(worker("w1").stream);
    return true;
  });
  Pass(absl::Milliseconds(1100));
  EXPECT_THAT(Register(worker("w1")), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("generation")));
  ASSERT_EQ(sqlite3_exec(other, "ROLLBACK", nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(other);
  Pass(absl::Milliseconds(200));
  ASSERT_OK_AND_ASSIGN(const v1::RegisterResponse registered, Register(worker("w1")));
  EXPECT_EQ(registered.site_generation(), 2);
  Kill();
  Start();
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).generation(), 2);
}

TEST_F(CoordinatorTest, Submissions) {
  Fleet(1);
  ASSERT_OK(Submit(Yaml("job"), "r1"));
  ASSERT_OK_AND_ASSIGN(const auto repeated, Submit(Yaml("job"), "r1"));
  EXPECT_EQ(repeated.job(), "job");
  EXPECT_TRUE(repeated.existed());
  EXPECT_THAT(Submit(Yaml("job"), "r2"), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("job")));
  EXPECT_THAT(Submit(Yaml("job")), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_THAT(Submit("name: x\nbogus: 1\n"), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("job.yaml")));
  EXPECT_THAT(Submit(Yaml("k", "end: {rounds: 1}\nsites: [nowhere]\n")),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("nowhere")));
  Kill();
  Start();
  ASSERT_OK_AND_ASSIGN(const auto after, Submit(Yaml("job"), "r1"));
  EXPECT_TRUE(after.existed());
  EXPECT_EQ(On([&] { return coordinator_->ListJobs(); }).jobs_size(), 1);
}

TEST_F(CoordinatorTest, APinnedPlanThatCannotBeIsNotStored) {
  Fleet(2);
  v1::SubmitJobRequest request;
  request.set_yaml(Yaml("job"));
  v1::Plan* plan = request.mutable_pinned_plan();
  plan->set_samples(kTrainSamples);
  for (int i = 0; i < 2; ++i) {
    v1::WorkerPlan* worker = plan->add_workers();
    worker->set_worker(absl::StrCat("w", i));
    worker->set_samples(i == 0 ? kTrainSamples + 5 : -5);
    worker->set_batch_size(4);
  }
  EXPECT_THAT(SubmitRequest(request), StatusIs(absl::StatusCode::kInvalidArgument));
  Kill();
  Start();
  plan->mutable_workers(0)->set_samples(kTrainSamples);
  plan->mutable_workers(1)->set_samples(0);
  plan->mutable_workers(0)->set_batch_size(1 << 20);
  EXPECT_OK(SubmitRequest(request));
  Kill();
  Start();
  EXPECT_THAT(Job().summary().state(), v1::JOB_STATE_PROFILING);
}

TEST_F(CoordinatorTest, DataThatDoesNotDo) {
  Fleet(3);
  const auto refused = [&](const std::string& name, const std::string& why) {
    EXPECT_THAT(Submit(Yaml(name)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(why))) << name;
    EXPECT_THAT(On([&] { return coordinator_->GetJob(name); }), StatusIs(absl::StatusCode::kNotFound));
  };
  WriteIdx("train", 2);
  refused("few", "2 samples for 3 workers");
  WriteIdx("train", kTrainSamples, kTrainSamples - 1);
  refused("labels", "59");
  WriteIdx("train", kTrainSamples);
  std::filesystem::resize_file(dir_.Join("data/test"), 100);
  EXPECT_THAT(Submit(Yaml("short")).status().message(), HasSubstr("data.test"));
  std::filesystem::remove(dir_.Join("data/test"));
  EXPECT_THAT(Submit(Yaml("gone")), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CoordinatorTest, LabelsBeyondTheClasses) {
  std::string yaml = Yaml("job");
  yaml.replace(yaml.find("{builtin: mlp}"), 14, "{builtin: mlp, classes: 5}");
  EXPECT_THAT(Submit(yaml), StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("label 9"), HasSubstr("5"))));
}

TEST_F(CoordinatorTest, JobsQueue) {
  Fleet(2);
  ASSERT_OK(Submit(Yaml("job")));
  ASSERT_OK(Submit(Yaml("later", "end: {rounds: 1}\n")));
  EXPECT_EQ(Job("later").summary().state(), v1::JOB_STATE_SUBMITTED);
  RunUntilTraining(1);
  EXPECT_EQ(Job("later").summary().state(), v1::JOB_STATE_SUBMITTED);
  v1::AbortJobRequest abort;
  abort.set_job("job");
  EXPECT_OK(On([&] { return coordinator_->AbortJob(abort); }));
  EXPECT_OK(On([&] { return coordinator_->AbortJob(abort); }));
  Drain();
  EXPECT_EQ(Job().summary().state(), v1::JOB_STATE_ABORTED);
  EXPECT_EQ(Job("later").summary().state(), v1::JOB_STATE_PROFILING);
  EXPECT_EQ(worker("w0").assignment.job(), "later");
  Run();
  EXPECT_EQ(Job("later").summary().state(), v1::JOB_STATE_FINISHED);
  abort.set_job("later");
  EXPECT_THAT(On([&] { return coordinator_->AbortJob(abort); }), StatusIs(absl::StatusCode::kFailedPrecondition));
  abort.set_job("none");
  EXPECT_THAT(On([&] { return coordinator_->AbortJob(abort); }), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CoordinatorTest, TokensAdmitOnlyWhomTheyShould) {
  const std::string token = AddSite("lab", 1);
  const auto bad = [](const char* why) { return StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr(why)); };
  std::string wrong = token;
  wrong.back() = wrong.back() == 'A' ? 'B' : 'A';
  EXPECT_THAT(JoinOnly(wrong, "w0"), bad("unknown"));
  EXPECT_THAT(JoinOnly("nonsense", "w0"), StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr("nonsense"))));
  // A bad request does not use it up.
  v1::JoinRequest request;
  *request.mutable_version() = dataplane::OurVersion();
  request.set_token(token);
  request.set_csr_pem("no request");
  EXPECT_THAT(On([&] { return coordinator_->Join(request); }), StatusIs(absl::StatusCode::kInvalidArgument));
  request.mutable_version()->set_major(99);
  EXPECT_THAT(On([&] { return coordinator_->Join(request); }),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("99.0")));
  ASSERT_OK_AND_ASSIGN(const auto joined, JoinOnly(token, "w0"));
  EXPECT_EQ(joined.site(), "lab");
  EXPECT_EQ(joined.worker(), "w0");
  EXPECT_THAT(JoinOnly(token, "w1"), bad("used up"));

  const std::string second = AddSite("lab");
  EXPECT_THAT(JoinOnly(second, "w0"), StatusIs(absl::StatusCode::kAlreadyExists));
  ASSERT_OK_AND_ASSIGN(const JoinToken parsed, ParseJoinToken(second));
  ASSERT_OK(On([&] { return coordinator_->RevokeToken(parsed.id); }));
  EXPECT_THAT(JoinOnly(second, "w1"), bad("revoked"));
  const std::string third = AddSite("lab");
  // All of it outlives a restart, and nowhere on disk is a secret.
  Kill();
  Start();
  EXPECT_THAT(JoinOnly(token, "w1"), bad("used up"));
  EXPECT_THAT(JoinOnly(second, "w1"), bad("revoked"));
  EXPECT_EQ(On([&] { return coordinator_->ListTokens(); }).tokens_size(), 3);
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_.Join("state"))) {
    if (!file.is_regular_file()) continue;
    std::ifstream in(file.path(), std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    EXPECT_THAT(content, Not(HasSubstr(parsed.secret))) << file.path();
  }
  Pass(absl::Hours(25));
  EXPECT_THAT(JoinOnly(third, "w1"), bad("expired"));
}

TEST_F(CoordinatorTest, AJoinWhoseAnswerWasLostIsRepeated) {
  const std::string token = AddSite("lab", 1);
  const std::string key = *dataplane::GenerateKeyPem();
  ASSERT_OK_AND_ASSIGN(const auto lost, JoinWithKey(token, "w0", key));
  const auto identity = [](const v1::JoinResponse& joined) {
    return *dataplane::ParseCertificate(joined.certificate_pem());
  };
  ASSERT_OK_AND_ASSIGN(const auto again, JoinWithKey(token, "w0", key));
  EXPECT_EQ(again.worker(), "w0");
  EXPECT_EQ(again.site(), "lab");
  EXPECT_OK(dataplane::CheckKeyMatches(again.certificate_pem(), key));
  EXPECT_OK(coordinator_->Authorize(identity(again), kHeartbeat));
  EXPECT_THAT(coordinator_->Authorize(identity(lost), kHeartbeat), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(JoinOnly(token, "w0"), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("used up")));

  // Also by a coordinator, and of a worker, that were there before.
  ScriptedWorker& worker = workers_["w0"];
  worker.peer = identity(again);
  worker.incarnation = 5;
  ASSERT_OK(Register(worker));
  workers_.clear();
  Kill();
  Start();
  ASSERT_OK_AND_ASSIGN(const auto later, JoinWithKey(token, "", key));
  EXPECT_EQ(later.worker(), "w0");
  Kill();
  Start();
  EXPECT_OK(coordinator_->Authorize(identity(later), kHeartbeat));
  EXPECT_THAT(coordinator_->Authorize(identity(again), kHeartbeat), StatusIs(absl::StatusCode::kPermissionDenied));
  ScriptedWorker& stale = workers_["w0"];
  stale.peer = identity(later);
  stale.incarnation = 4;
  EXPECT_THAT(Register(stale), StatusIs(absl::StatusCode::kAborted));
  workers_.clear();
}

TEST_F(CoordinatorTest, AddingASiteAgainLeavesOneTokenPerRequest) {
  const std::string lost = AddSite("lab", 2, "r1");
  const std::string other = AddSite("lab", 2, "r2");
  ASSERT_OK(JoinOnly(lost, "w0"));
  Kill();
  Start();
  const std::string token = AddSite("lab", 2, "r1");
  EXPECT_NE(token, lost);
  const v1::ListTokensResponse tokens = On([&] { return coordinator_->ListTokens(); });
  ASSERT_EQ(tokens.tokens_size(), 2);
  for (const v1::TokenStatus& status : tokens.tokens()) EXPECT_EQ(status.uses_left(), 2);
  EXPECT_THAT(JoinOnly(lost, "w1"), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("unknown")));
  EXPECT_OK(JoinOnly(token, "w1"));
  EXPECT_OK(JoinOnly(other, "w2"));
  Kill();
  Start();
  EXPECT_THAT(JoinOnly(lost, "w3"), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("unknown")));
  EXPECT_OK(JoinOnly(token, "w3"));
  // Without an id, and for another site, it is another request.
  AddSite("lab");
  AddSite("lab");
  AddSite("office", 0, "r1");
  EXPECT_EQ(On([&] { return coordinator_->ListTokens(); }).tokens_size(), 5);
}

TEST_F(CoordinatorTest, ARemovedWorkerIsRefusedEverywhere) {
  Fleet(3);
  ASSERT_OK(Submit(Yaml("job")));
  RunUntilTraining(0);
  const dataplane::PeerIdentity peer = worker("w1").peer;
  EXPECT_OK(coordinator_->Authorize(peer, kHeartbeat));
  dataplane::PeerIdentity replaced = peer;
  replaced.serial = "00";
  EXPECT_THAT(coordinator_->Authorize(replaced, kHeartbeat),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("replaced")));
  replaced = peer;
  replaced.name = "w9";
  EXPECT_THAT(coordinator_->Authorize(replaced, kHeartbeat), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(coordinator_->Authorize(peer, "/causeway.v1.Operator/ListJobs"),
              StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(coordinator_->Authorize({}, kHeartbeat), StatusIs(absl::StatusCode::kUnauthenticated));

  ASSERT_OK(On([&] { return coordinator_->RemoveWorker("w1"); }));
  EXPECT_TRUE(worker("w1").is_closed);
  for (const RpcRule& rule : RpcRules()) {
    if (rule.worker) {
      EXPECT_THAT(coordinator_->Authorize(peer, rule.method),
                  StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("removed")))
          << rule.method;
    }
  }
  EXPECT_THAT(Register(worker("w1")), StatusIs(absl::StatusCode::kPermissionDenied));
  EXPECT_THAT(Job().waiting_for(), Not(testing::Contains("w1")));
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_refused_calls_total{reason=\"permission_denied\"}"));
  EXPECT_THAT(On([&] { return coordinator_->RemoveWorker("w9"); }), StatusIs(absl::StatusCode::kNotFound));
  Kill();
  Start();
  EXPECT_THAT(coordinator_->Authorize(peer, kHeartbeat),
              StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("removed")));
  EXPECT_OK(coordinator_->Authorize(worker("w0").peer, kHeartbeat));
}

TEST_F(CoordinatorTest, OldIncarnationsAndStreams) {
  Fleet(1);
  ScriptedWorker& w0 = worker("w0");
  const int64_t old_stream = w0.stream;
  w0.incarnation = 2;
  Connect(w0);
  EXPECT_TRUE(w0.is_closed) << "the old stream";
  v1::HeartbeatRequest beat;
  beat.set_incarnation(1);
  EXPECT_THAT(On([&] { return coordinator_->Heartbeat(old_stream, beat); }), StatusIs(absl::StatusCode::kAborted));
  EXPECT_OK(Beat(w0));
  On([&] {
    coordinator_->HeartbeatClosed(old_stream);
    return true;
  });
  Pass(absl::Seconds(2));
  EXPECT_EQ(On([&] { return coordinator_->ListSites(); }).sites(0).live(), 1);
  w0.incarnation = 1;
  EXPECT_THAT(Register(w0), StatusIs(absl::StatusCode::kAborted));
  w0.incarnation = 0;
  EXPECT_THAT(Register(w0), StatusIs(absl::StatusCode::kInvalidArgument));
  v1::RegisterRequest request;
  request.mutable_version()->set_major(7);
  request.set_incarnation(3);
  EXPECT_THAT(
      On([&] { return coordinator_->Register(w0.peer, request, ""); }),
      StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr("7.0"), HasSubstr("1.0"), HasSubstr("w0"))));

  ASSERT_OK(Submit(Yaml("job")));
  v1::ReportModelRequest report;
  report.mutable_fence()->set_job("job");
  report.mutable_fence()->set_incarnation(1);
  *report.mutable_layout() = layout_.ToProto();
  report.set_layout_sha256(layout_.hash());
  EXPECT_THAT(On([&] { return coordinator_->ReportModel(w0.peer, report); }), StatusIs(absl::StatusCode::kAborted));
  report.mutable_fence()->set_incarnation(2);
  report.set_layout_sha256("x");
  EXPECT_THAT(On([&] { return coordinator_->ReportModel(w0.peer, report); }), StatusIs(absl::StatusCode::kDataLoss));
  report.mutable_fence()->set_job("none");
  EXPECT_THAT(On([&] { return coordinator_->ReportModel(w0.peer, report); }), StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(CoordinatorTest, ListsAndLeaving) {
  Fleet(2);
  ASSERT_OK_AND_ASSIGN(auto list, On([&] { return coordinator_->ListWorkers({}); }));
  ASSERT_EQ(list.workers_size(), 2);
  EXPECT_TRUE(list.workers(0).live());
  EXPECT_EQ(list.workers(0).site(), "lab");
  v1::ListWorkersRequest one;
  one.set_worker("w9");
  EXPECT_THAT(On([&] { return coordinator_->ListWorkers(one); }), StatusIs(absl::StatusCode::kNotFound));
  v1::LeaveRequest leave;
  leave.set_incarnation(1);
  EXPECT_OK(On([&] { return coordinator_->Leave(worker("w0").peer, leave); }));
  ASSERT_OK_AND_ASSIGN(list, On([&] { return coordinator_->ListWorkers({}); }));
  EXPECT_FALSE(list.workers(0).live());
  EXPECT_THAT(On([&] { return coordinator_->RemoveSite("lab"); }), StatusIs(absl::StatusCode::kFailedPrecondition));
  ASSERT_OK(On([&] { return coordinator_->RemoveWorker("w0"); }));
  ASSERT_OK(On([&] { return coordinator_->RemoveWorker("w1"); }));
  ASSERT_OK(On([&] { return coordinator_->RemoveSite("lab"); }));
  EXPECT_THAT(On([&] { return coordinator_->ListTokens(); }).tokens(), IsEmpty());
  EXPECT_THAT(coordinator_->Authorize(worker("w0").peer, kHeartbeat), StatusIs(absl::StatusCode::kPermissionDenied));
}

}  // namespace
}  // namespace causeway::server
