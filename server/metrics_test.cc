#include "server/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "server/authz.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

const absl::Time kNow = absl::FromUnixSeconds(1000);
const absl::Time kWall = absl::FromUnixSeconds(1'800'000'000);

class MetricsTest : public ::testing::Test {
 protected:
  std::string Text() { return registry_->Expose(); }
  const std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  Metrics metrics_{registry_.get()};
};

TEST_F(MetricsTest, Workers) {
  Membership fleet(Membership::Options{});
  ASSERT_OK(fleet.AddSite(SiteId("lab")));
  fleet.AddToken(Token{.id = "t",
                       .site = SiteId("lab"),
                       .secret_hash = "h",
                       .uses = 9,
                       .uses_left = 9,
                       .expires = absl::InfiniteFuture()});
  for (const char* name : {"a1", "a2", "a3"}) {
    ASSERT_OK(fleet.Join("t", "h", name, name, kWall));
    fleet.SetCertificate(WorkerId(name), "01", kWall + absl::Hours(1));
  }
  v1::RegisterRequest request;
  request.set_incarnation(1);
  ASSERT_OK(fleet.Register(WorkerId("a1"), request, kNow));
  ASSERT_OK(fleet.Register(WorkerId("a2"), request, kNow));
  ASSERT_OK(fleet.RemoveWorker(WorkerId("a2")));
  metrics_.SetWorkers(fleet, kNow + absl::Seconds(3), kWall);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("causeway_workers{site=\"lab\",state=\"live\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_workers{site=\"lab\",state=\"lost\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_up{site=\"lab\",worker=\"a1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_up{site=\"lab\",worker=\"a3\"} 0\n"));
  EXPECT_THAT(text, Not(HasSubstr("\"a2\"")));
  EXPECT_THAT(text, HasSubstr("causeway_worker_heartbeat_age_seconds{site=\"lab\",worker=\"a1\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_certificate_expiry_seconds{site=\"lab\",worker=\"a1\"} 3600\n"));
  EXPECT_THAT(text, HasSubstr("causeway_site_generation{site=\"lab\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_build_info{version="));

  ASSERT_OK(fleet.RemoveWorker(WorkerId("a1")));
  metrics_.ForgetWorker("a1");
  metrics_.SetWorkers(fleet, kNow, kWall);
  EXPECT_THAT(Text(), Not(HasSubstr("\"a1\"")));
  EXPECT_THAT(Text(), HasSubstr("causeway_workers{site=\"lab\",state=\"live\"} 0\n"));
}

TEST_F(MetricsTest, Job) {
  v1::GetJobResponse status;
  status.mutable_summary()->set_job("j");
  status.mutable_summary()->set_state(v1::JOB_STATE_TRAINING);
  status.mutable_summary()->set_round(4);
  status.mutable_summary()->set_version(4);
  status.mutable_summary()->set_epochs_done(2);
  status.mutable_plan()->set_rounds_per_epoch(2);
  status.add_waiting_for("a1");
  v1::WorkerInJob* worker = status.add_workers();
  worker->set_worker("a1");
  worker->set_site("lab");
  worker->set_rounds(4);
  worker->set_compute_s(6);
  worker->set_pull_s(1);
  worker->set_push_s(1);
  worker->mutable_plan()->set_samples(600);
  worker->mutable_plan()->set_compute_s(3);
  worker->mutable_plan()->set_comm_s(0.5);
  metrics_.SetJob(status);
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("causeway_job_state{job=\"j\",state=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_job_state{job=\"j\",state=\"finished\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("causeway_job_round{job=\"j\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("causeway_job_epochs{job=\"j\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_job_waiting_for_workers{job=\"j\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_shard_samples{job=\"j\",site=\"lab\",worker=\"a1\"} 600\n"));
  EXPECT_THAT(text, HasSubstr("causeway_epoch_predicted_seconds{job=\"j\",site=\"lab\",worker=\"a1\"} 3.5\n"));
  EXPECT_THAT(text, HasSubstr("causeway_epoch_measured_seconds{job=\"j\",site=\"lab\",worker=\"a1\"} 4\n"));
  EXPECT_THAT(text, Not(HasSubstr("causeway_job_accuracy_ratio")));

  status.mutable_summary()->mutable_evaluation()->set_accuracy(0.75);
  status.mutable_summary()->set_state(v1::JOB_STATE_FINISHED);
  metrics_.SetJob(status);
  EXPECT_THAT(Text(), HasSubstr("causeway_job_accuracy_ratio{job=\"j\"} 0.75\n"));
  EXPECT_THAT(Text(), HasSubstr("causeway_job_state{job=\"j\",state=\"training\"} 0\n"));
}

TEST_F(MetricsTest, Counters) {
  v1::RoundRecord record;
  record.set_samples(700);
  record.set_seconds(2);
  metrics_.CountRound("j", record, absl::Milliseconds(20));
  metrics_.CountRound("j", record, absl::Milliseconds(20));
  metrics_.CountDroppedRound("j");
  metrics_.CountContribution("j", "not_finite");
  metrics_.CountTransfer("in", "push", 1000, absl::Seconds(2));
  metrics_.CountRefusedCall("permission_denied");
  metrics_.CountRefusedConnection("too_many_connections");
  metrics_.CountFailedCall("data_loss");
  metrics_.SetDisk(5e9, 12);
  metrics_.SetCertificateExpiry(absl::Hours(1));
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("causeway_rounds_total{job=\"j\",outcome=\"committed\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_rounds_total{job=\"j\",outcome=\"dropped\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_samples_total{job=\"j\"} 1400\n"));
  EXPECT_THAT(text, HasSubstr("causeway_round_seconds_count{job=\"j\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_contributions_total{job=\"j\",outcome=\"not_finite\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_transfer_bytes_total{direction=\"in\",kind=\"push\"} 1000\n"));
  EXPECT_THAT(text, HasSubstr("causeway_transfer_seconds_total{direction=\"in\",kind=\"push\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_refused_calls_total{reason=\"permission_denied\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_refused_connections_total{reason=\"too_many_connections\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_failed_calls_total{code=\"data_loss\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_spool_bytes 12\n"));
  EXPECT_THAT(text, HasSubstr("causeway_certificate_expiry_seconds 3600\n"));
}

TEST(MetricsPhasesTest, CountedContribution) {
  const std::unique_ptr<MetricRegistry> registry = MetricRegistry::Create();
  Metrics metrics(registry.get());
  v1::StoredContribution info;
  info.set_pull_s(0.5);
  info.set_compute_s(2);
  info.set_change_ratio(0.25);
  metrics.CountPhases("job", "lab", "a1", info);
  metrics.CountPhases("job", "lab", "a1", info);
  const std::string text = registry->Expose();
  EXPECT_THAT(
      text,
      HasSubstr("causeway_round_phase_seconds_total{job=\"job\",phase=\"compute\",site=\"lab\",worker=\"a1\"} 4\n"));
  EXPECT_THAT(
      text, HasSubstr("causeway_round_phase_seconds_total{job=\"job\",phase=\"pull\",site=\"lab\",worker=\"a1\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_contribution_change_ratio{job=\"job\",site=\"lab\",worker=\"a1\"} 0.25\n"));
}

}  // namespace
}  // namespace causeway::server
