#include "worker/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::worker {
namespace {

using testing::HasSubstr;
using testing::Not;

class WorkerMetricsTest : public testing::Test {
 protected:
  WorkerMetricsTest() {
    WorkerMetrics::Options options;
    options.registry = registry_.get();
    options.clock = &clock_;
    options.site = "lab";
    options.worker = "lab-1";
    options.version = "0.1.0";
    options.torch_version = "2";
    options.certificate_expires = clock_.WallNow() + absl::Hours(1);
    options.cache_used_bytes = [] { return 11; };
    options.disk_free_bytes = [] { return 12; };
    options.phase = [this] { return phase_; };
    options.cache_limit_bytes = 13;
    metrics_ = std::make_unique<WorkerMetrics>(options);
  }

  FakeClock clock_;
  v1::WorkerPhase phase_ = v1::WORKER_PHASE_IDLE;
  std::unique_ptr<MetricRegistry> registry_ = MetricRegistry::Create();
  std::unique_ptr<WorkerMetrics> metrics_;
};

TEST_F(WorkerMetricsTest, ShowsWhatIsReadAtExposition) {
  phase_ = v1::WORKER_PHASE_TRAINING;
  clock_.Advance(absl::Seconds(60));
  const std::string text = registry_->Expose();
  EXPECT_THAT(text, HasSubstr("causeway_worker_cache_bytes 11\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_disk_free_bytes 12\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_cache_limit_bytes 13\n"));
  EXPECT_THAT(text, HasSubstr("causeway_certificate_expiry_seconds 3540\n"));
  EXPECT_THAT(text, HasSubstr("causeway_heartbeat_age_seconds 60\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_phase{phase=\"training\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_phase{phase=\"idle\"} 0\n"));
  EXPECT_THAT(text,
              HasSubstr("causeway_worker_build_info{site=\"lab\",torch=\"2\",version=\"0.1.0\",worker=\"lab-1\"} 1\n"));
}

TEST_F(WorkerMetricsTest, CountsConnections) {
  metrics_->SetConnected(true);
  metrics_->SetConnected(true);
  metrics_->SetConnected(false);
  metrics_->SetConnected(true);
  clock_.Advance(absl::Seconds(5));
  metrics_->HeartbeatAnswered(0.25);
  const std::string text = registry_->Expose();
  EXPECT_THAT(text, HasSubstr("causeway_worker_connections_total 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_connected 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_heartbeat_age_seconds 0\n"));
  EXPECT_THAT(text, HasSubstr("causeway_clock_offset_seconds 0.25\n"));
}

TEST_F(WorkerMetricsTest, CountsWork) {
  metrics_->SetJob("a");
  metrics_->StepDone(32, 1.5, absl::Milliseconds(20));
  metrics_->StepDone(16, 1.25, absl::Milliseconds(20));
  metrics_->RoundTrained(4);
  metrics_->Evaluated(0.75, 0.5);
  metrics_->ContributionAnswered("counted");
  metrics_->Transferred(Transfer::kPush, 100, 2);
  metrics_->CorruptChunks(3);
  metrics_->TaskFailed("train");
  std::string text = registry_->Expose();
  EXPECT_THAT(text, HasSubstr("causeway_worker_samples_total{job=\"a\"} 48\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_steps_total{job=\"a\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_train_loss{job=\"a\"} 1.25\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_step_seconds_count{job=\"a\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_round{job=\"a\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_evaluation_accuracy{job=\"a\"} 0.75\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_contributions_total{job=\"a\",outcome=\"counted\"} 1\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_transfer_bytes_total{direction=\"up\",kind=\"push\"} 100\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_transfer_seconds_total{direction=\"up\",kind=\"push\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_corrupt_chunks_total 3\n"));
  EXPECT_THAT(text, HasSubstr("causeway_worker_task_failures_total{task=\"train\"} 1\n"));

  metrics_->SetJob("a");
  metrics_->StepDone(1, 1, absl::Milliseconds(20));
  EXPECT_THAT(registry_->Expose(), HasSubstr("causeway_worker_samples_total{job=\"a\"} 49\n"));
  metrics_->SetJob("b");
  metrics_->StepDone(1, 1, absl::Milliseconds(20));
  text = registry_->Expose();
  EXPECT_THAT(text, Not(HasSubstr("job=\"a\"")));
  EXPECT_THAT(text, HasSubstr("causeway_worker_samples_total{job=\"b\"} 1\n"));
}

TEST_F(WorkerMetricsTest, PromtoolHasNothingToSay) {
  if (std::system("command -v promtool > /dev/null") != 0) GTEST_SKIP() << "no promtool on this machine";
  metrics_->SetJob("a");
  metrics_->StepDone(32, 1.5, absl::Milliseconds(20));
  metrics_->RoundTrained(4);
  metrics_->Evaluated(0.75, 0.5);
  metrics_->ContributionAnswered("counted");
  metrics_->TaskFailed("train");
  TempDir dir;
  std::ofstream(dir.Join("metrics")) << registry_->Expose();
  const std::string command = "promtool check metrics < " + dir.Join("metrics") + " > " + dir.Join("out") + " 2>&1";
  const int status = std::system(command.c_str());
  std::ifstream out(dir.Join("out"));
  const std::string said((std::istreambuf_iterator<char>(out)), std::istreambuf_iterator<char>());
  EXPECT_EQ(status, 0) << said;
  EXPECT_EQ(said, "");
}

}  // namespace
}  // namespace causeway::worker
