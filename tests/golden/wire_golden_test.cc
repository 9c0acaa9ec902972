// Freezes the bytes on the wire and in the journal. A failure here means that this program no longer talks to its older self, or no longer
// reads what that one wrote: add fields, never change them.

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "dataplane/transfer.h"
#include "proto/bulk.pb.h"
#include "proto/journal.pb.h"
#include "proto/membership.pb.h"
#include "proto/operator.pb.h"

namespace causeway {
namespace {

std::string Hex(const google::protobuf::MessageLite& message) {
  return absl::BytesToHexString(message.SerializeAsString());
}

// The frozen bytes also parse back into the same message.
template <typename Message>
void ExpectWire(const Message& message, const std::string& hex) {
  EXPECT_EQ(Hex(message), hex);
  Message parsed;
  ASSERT_TRUE(parsed.ParseFromString(absl::HexStringToBytes(hex)));
  EXPECT_EQ(Hex(parsed), hex);
}

v1::Fence Fence() {
  v1::Fence fence;
  fence.set_job("job");
  fence.set_fragment(1);
  fence.set_round(2);
  fence.set_site_generation(3);
  fence.set_incarnation(4);
  return fence;
}

v1::ElementRange Elements(int64_t begin, int64_t end) {
  v1::ElementRange range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

dataplane::Layout SmallLayout() {
  return *dataplane::Layout::Create(
      {{.name = "conv1.weight", .shape = {6, 1, 5, 5}},
       {.name = "bn.running_mean", .shape = {6}, .kind = dataplane::TensorKind::kFloatBuffer, .layer = 2},
       {.name = "bn.num_batches_tracked",
        .dtype = dataplane::DataType::kInt64,
        .kind = dataplane::TensorKind::kIntegerBuffer,
        .layer = 2}});
}

v1::SampleRange Samples(int64_t begin, int64_t end) {
  v1::SampleRange range;
  range.set_begin(begin);
  range.set_end(end);
  return range;
}

v1::ProtocolVersion Version() {
  v1::ProtocolVersion version;
  version.set_major(1);
  version.set_minor(2);
  version.set_build("0.1.0");
  return version;
}

v1::DataSource Source(const std::string& name) {
  v1::DataSource source;
  source.set_format("idx");
  source.set_images(name + "-images");
  source.set_labels(name + "-labels");
  source.add_mean(0.5);
  source.add_std(0.25);
  return source;
}

v1::JobSpec Spec() {
  v1::JobSpec m;
  m.set_name("job");
  m.add_sites("lab");
  m.add_sites("home");
  m.mutable_model()->set_builtin("lenet");
  m.mutable_model()->set_classes(10);
  *m.mutable_data()->mutable_train() = Source("train");
  *m.mutable_data()->mutable_test() = Source("test");
  m.mutable_batch()->set_per_worker(1);
  m.mutable_batch()->set_max(2);
  v1::OptimizerSpec* optimizer = m.mutable_optimizer();
  optimizer->set_name("sgd");
  optimizer->set_learning_rate(1);
  optimizer->set_momentum(2);
  optimizer->set_weight_decay(3);
  optimizer->mutable_schedule()->set_name("step");
  optimizer->mutable_schedule()->set_warmup_samples(1);
  optimizer->mutable_schedule()->set_step_samples(2);
  optimizer->mutable_schedule()->set_gamma(3);
  m.mutable_end()->set_epochs(1);
  m.mutable_end()->set_rounds(2);
  m.mutable_end()->set_samples(3);
  m.mutable_end()->set_target_metric(v1::METRIC_LOSS);
  m.mutable_end()->set_target_value(5);
  m.mutable_allocation()->set_method("exact");
  m.mutable_allocation()->set_objective("barrier");
  m.mutable_site_sync()->set_method("none");
  m.mutable_rounds()->set_per_epoch(1);
  m.mutable_rounds()->set_quorum(2);
  m.mutable_rounds()->set_deadline_s(3);
  m.mutable_rounds()->set_replan_after_s(4);
  m.mutable_rounds()->set_max_change(5);
  m.mutable_checkpoint()->set_every_rounds(1);
  m.mutable_checkpoint()->set_keep(2);
  m.set_seed(12);
  m.set_orphan_timeout_s(13);
  return m;
}

v1::DeviceProfile Profile() {
  v1::DeviceProfile m;
  v1::DeviceProfile::BatchTime* time = m.add_batch_times();
  time->set_batch_size(1);
  time->set_batch_time_s(2);
  time->set_repeats(3);
  m.set_max_parallel(2);
  m.set_down_bytes_per_s(3);
  m.set_up_bytes_per_s(4);
  m.set_round_trip_s(5);
  m.set_eval_samples_per_s(6);
  return m;
}

v1::WorkerPlan PlanOfAWorker() {
  v1::WorkerPlan m;
  m.set_worker("w1");
  m.set_site("lab");
  m.set_samples(3);
  m.set_batch_size(4);
  m.set_batch_time_s(5);
  m.set_down_bytes_per_s(6);
  m.set_up_bytes_per_s(7);
  m.set_steps_per_epoch(8);
  m.set_send_s(9);
  m.set_compute_s(10);
  m.set_comm_s(11);
  m.set_total_s(12);
  return m;
}

v1::Plan Plan() {
  v1::Plan m;
  m.set_number(1);
  m.set_method("exact");
  m.set_objective("barrier");
  m.set_samples(4);
  m.set_sample_bytes(5);
  m.set_model_bytes(6);
  m.set_rounds_per_epoch(7);
  m.set_epochs(8);
  m.set_predicted_total_s(9);
  m.set_lower_bound_s(10);
  m.set_binding("send");
  m.set_even_split_total_s(12);
  *m.add_workers() = PlanOfAWorker();
  m.set_pinned(true);
  m.set_reason("first plan");
  return m;
}

v1::WorkerProgress Progress() {
  v1::WorkerProgress m;
  m.set_job("job");
  m.set_round(2);
  m.set_phase(v1::WORKER_PHASE_WAITING);
  m.set_steps_done(4);
  m.set_steps_planned(5);
  m.set_samples_done(6);
  m.set_train_loss(7);
  m.set_fetch_bytes_done(8);
  m.set_fetch_bytes_total(9);
  return m;
}

v1::Emulation Emulation() {
  v1::Emulation m;
  m.set_slowdown(2);
  m.set_down_bytes_per_s(3);
  m.set_up_bytes_per_s(4);
  return m;
}

v1::Evaluation Evaluation() {
  v1::Evaluation m;
  m.set_version(1);
  m.set_correct(2);
  m.set_total(3);
  m.set_loss(4);
  m.set_accuracy(5);
  m.set_complete(true);
  return m;
}

v1::StoredRound OpenRound() {
  v1::StoredRound m;
  m.set_round(1);
  m.set_attempt(2);
  m.set_base_version(3);
  m.set_plan(4);
  v1::StoredRound::Participant* participant = m.add_participants();
  participant->set_worker("w1");
  participant->set_planned_samples(2);
  participant->set_rank(3);
  m.set_quorum_of(6);
  return m;
}

TEST(WireGoldenTest, PushRequest) {
  v1::PushRequest m;
  *m.mutable_fence() = Fence();
  m.set_initial(true);
  m.set_attempt(5);
  m.set_layout_sha256("layout");
  m.set_part(0);
  m.set_parts(1);
  *m.add_elements() = Elements(0, 300);
  m.set_samples(6);
  m.set_steps(7);
  m.set_total_bytes(1200);
  m.set_sha256("digest");
  m.set_train_loss(0.5);
  m.set_pull_s(1);
  m.set_evaluate_s(2);
  m.set_compute_s(3);
  m.set_previous_push_s(4);
  m.set_fresh_optimizer(true);
  ExpectWire(
      m,
      "0a0d0a036a6f6210011802200328041001180522066c61796f757430013a0310ac024006480750b0095a0664696765737461000000000000"
      "e03f69000000000000f03f71000000000000004079000000000000084081010000000000001040880101");
}

TEST(WireGoldenTest, FrameWithData) {
  const std::string payload = "abc";
  v1::Frame m = dataplane::internal::DataFrame("name", 10, 100, dataplane::AsBytes(payload));
  m.set_payload(payload);
  ExpectWire(m, "3a130a046e616d65100a18642150392f89945faf787a03616263");
}

TEST(WireGoldenTest, FramesOfEveryKind) {
  v1::Frame m;
  m.mutable_fetch_request()->set_job("j");
  m.mutable_fetch_request()->add_items()->set_offset(9);
  ExpectWire(m, "0a070a016a12021009");
  m.mutable_probe_request()->set_direction(v1::ProbeRequest::DIRECTION_UP);
  m.mutable_probe_request()->set_seconds(1);
  m.mutable_probe_request()->set_bytes(2);
  ExpectWire(m, "120d080211000000000000f03f1802");
  m.mutable_pull_request()->set_job("j");
  m.mutable_pull_request()->set_fragment(1);
  m.mutable_pull_request()->set_version(-1);
  *m.mutable_pull_request()->mutable_elements() = Elements(1, 2);
  m.mutable_pull_request()->set_offset(3);
  ExpectWire(m, "1a180a016a100118ffffffffffffffffff012204080110022803");
  m.mutable_push_request()->set_part(1);
  ExpectWire(m, "22022801");
  m.mutable_pull_response()->set_version(1);
  *m.mutable_pull_response()->mutable_layout() = SmallLayout().ToProto();
  m.mutable_pull_response()->set_layout_sha256("l");
  m.mutable_pull_response()->set_total_bytes(2);
  m.mutable_pull_response()->set_sha256("s");
  ExpectWire(
      m,
      "2a64080112580a1a0a0c636f6e76312e77656967687410011a0406010505200128010a1a0a0f626e2e72756e6e696e675f6d65616e10011a"
      "0106200228020a1e0a16626e2e6e756d5f626174636865735f747261636b65641002200328021a016c20022a0173");
  m.mutable_push_response()->set_resume_offset(1);
  ExpectWire(m, "32020801");
  m.mutable_push_ack()->set_received_bytes(2);
  m.mutable_push_ack()->set_durable_bytes(1);
  ExpectWire(m, "420408021001");
  m.mutable_push_result()->set_outcome(v1::PushResult::OUTCOME_REJECTED);
  m.mutable_push_result()->set_reason("norm");
  m.mutable_push_result()->set_message("too far");
  ExpectWire(m, "4a11080212046e6f726d1a07746f6f20666172");
  m.mutable_probe_result()->set_bytes(1);
  m.mutable_probe_result()->set_seconds(2);
  ExpectWire(m, "520b0801110000000000000040");
}

TEST(WireGoldenTest, RegisterRequest) {
  v1::RegisterRequest m;
  *m.mutable_version() = Version();
  m.set_incarnation(3);
  m.mutable_device()->set_kind("cpu");
  m.mutable_device()->set_name("x");
  m.mutable_device()->set_threads(4);
  m.mutable_device()->set_memory_bytes(5);
  m.mutable_device()->set_torch_version("2");
  *m.mutable_emulation() = Emulation();
  m.set_http_port(7480);
  ExpectWire(
      m,
      "0a0b080110021a05302e312e3010031a0f0a03637075120178180420052a0132221b09000000000000004011000000000000084019000000"
      "000000104028b83a");
}

TEST(WireGoldenTest, Assignment) {
  v1::Assignment m;
  m.set_sequence(1);
  m.set_job("job");
  m.mutable_spec()->set_name("job");
  m.mutable_prepare()->set_upload_initial(true);
  m.mutable_profile()->set_attempt(1);
  m.mutable_profile()->add_batch_sizes(8);
  m.mutable_profile()->add_batch_sizes(16);
  m.mutable_profile()->set_record_bytes(785);
  m.mutable_profile()->set_seconds(2);
  m.mutable_shard()->set_plan(1);
  m.mutable_shard()->mutable_train()->set_manifest_sha256("m");
  m.mutable_shard()->mutable_train()->set_samples(10);
  m.mutable_shard()->mutable_train()->set_record_bytes(785);
  m.mutable_shard()->mutable_train()->set_records_per_chunk(5);
  m.mutable_shard()->mutable_train()->add_sample_shape(1);
  m.mutable_shard()->mutable_train()->set_label_bytes(1);
  m.mutable_shard()->add_train_ranges()->set_end(7);
  m.mutable_evaluate()->set_version(2);
  m.mutable_evaluate()->add_ranges()->set_begin(3);
  m.mutable_evaluate()->set_attempt(1);
  v1::TrainTask* train = m.mutable_train();
  train->set_plan(1);
  train->set_round(2);
  train->set_version(2);
  train->set_epoch(3);
  train->set_first_step(4);
  train->set_last_step(5);
  train->set_batch_size(6);
  train->set_planned_samples(7);
  train->set_committed_samples(8);
  train->set_round_samples(9);
  train->set_job_samples(10);
  train->set_attempt(11);
  train->set_deadline_ms(12);
  ExpectWire(
      m,
      "080112036a6f621a050a036a6f62220208012a1208011202081018910621000000000000004032170801120f0a016d100a18910620052a01"
      "0130011a0210073a080802120208031801421a0801100218022003280430053806400748085009580a600b680c");
}

TEST(WireGoldenTest, JobSpec) {
  ExpectWire(Spec(),
             "0a036a6f6212036c61621204686f6d651a090a056c656e6574100a226c0a350a03696478120c747261696e2d696d616765731a0c7"
             "47261696e2d6c6162656c732208000000000000e03f2a08000000000000d03f12330a03696478120b746573742d696d616765731a"
             "0b746573742d6c6162656c732208000000000000e03f2a08000000000000d03f2a040801100232350a0373676411000000000000f"
             "03f1900000000000000402100000000000008402a130a0473746570100118022100000000000008403a1809000000000000f03f10"
             "021803200229000000000000144042100a0565786163741207626172726965724a060a046e6f6e655226080111000000000000004"
             "01900000000000008402100000000000010402900000000000014405a0408011002600c690000000000002a40");
}

TEST(WireGoldenTest, DeviceProfile) {
  ExpectWire(
      Profile(),
      "0a0d080111000000000000004018031002190000000000000840210000000000001040290000000000001440310000000000001840");
}

TEST(WireGoldenTest, WorkerPlan) {
  ExpectWire(PlanOfAWorker(),
             "0a02773112036c616218032004290000000000001440310000000000001840390000000000001c404008490000000000002240510"
             "000000000002440590000000000002640610000000000002840");
}

TEST(WireGoldenTest, Plan) {
  ExpectWire(
      Plan(),
      "0801120565786163741a076261727269657220042805300638074100000000000020404900000000000022405100000000000024405a0473"
      "656e646100000000000028406a4e0a02773112036c616218032004290000000000001440310000000000001840390000000000001c404008"
      "49000000000000224051000000000000244059000000000000264061000000000000284070017a0a666972737420706c616e");
}

TEST(WireGoldenTest, JoinRequestAndResponse) {
  v1::JoinRequest request;
  *request.mutable_version() = Version();
  request.set_token("t");
  request.set_worker_name("w1");
  request.set_csr_pem("c");
  ExpectWire(request, "0a0b080110021a05302e312e301201741a027731220163");
  v1::JoinResponse response;
  response.set_site("lab");
  response.set_worker("w1");
  response.set_certificate_pem("c");
  response.set_ca_pem("a");
  ExpectWire(response, "0a036c6162120277311a0163220161");
}

TEST(WireGoldenTest, RegisterResponse) {
  v1::RegisterResponse m;
  *m.mutable_version() = Version();
  m.set_site("lab");
  m.set_worker("w1");
  m.set_site_generation(4);
  m.set_coordinator_incarnation(5);
  m.set_heartbeat_interval_ms(6);
  m.set_lease_ms(7);
  v1::EndpointRange* endpoint = m.add_endpoints();
  endpoint->set_address("h:1");
  *endpoint->mutable_elements() = Elements(1, 2);
  ExpectWire(m, "0a0b080110021a05302e312e3012036c61621a0277312004280530063807420b0a03683a31120408011002");
}

TEST(WireGoldenTest, HeartbeatRequestAndResponse) {
  v1::HeartbeatRequest request;
  request.set_incarnation(1);
  request.set_sequence(2);
  request.set_wall_time_ms(3);
  request.set_assignment_sequence(4);
  *request.mutable_progress() = Progress();
  request.set_disk_free_bytes(6);
  request.set_cache_bytes(7);
  ExpectWire(request, "08011002180320042a1c0a036a6f6210021809200428053006390000000000001c404008480930063807");
  v1::HeartbeatResponse response;
  response.set_sequence(1);
  response.set_wall_time_ms(2);
  response.mutable_assignment()->set_sequence(3);
  ExpectWire(response, "080110021a020803");
}

TEST(WireGoldenTest, Reports) {
  v1::ReportModelRequest model;
  *model.mutable_fence() = Fence();
  *model.mutable_layout() = SmallLayout().ToProto();
  model.set_layout_sha256("l");
  model.set_has_optimizer_state(true);
  ExpectWire(
      model,
      "0a0d0a036a6f62100118022003280412580a1a0a0c636f6e76312e77656967687410011a0406010505200128010a1a0a0f626e2e72756e6e"
      "696e675f6d65616e10011a0106200228020a1e0a16626e2e6e756d5f626174636865735f747261636b65641002200328021a016c2001");
  v1::ReportProfileRequest profile;
  *profile.mutable_fence() = Fence();
  profile.set_attempt(2);
  *profile.mutable_profile() = Profile();
  ExpectWire(profile,
             "0a0d0a036a6f62100118022003280410021a350a0d080111000000000000004018031002190000000000000840210000000000001"
             "040290000000000001440310000000000001840");
  v1::ReportDataRequest data;
  *data.mutable_fence() = Fence();
  data.set_plan(2);
  data.set_bytes_fetched(3);
  data.set_seconds(4);
  data.set_corrupt_chunks(5);
  ExpectWire(data, "0a0d0a036a6f621001180220032804100218032100000000000010402805");
  v1::ReportEvaluationRequest evaluation;
  *evaluation.mutable_fence() = Fence();
  evaluation.set_version(2);
  evaluation.set_attempt(3);
  *evaluation.add_ranges() = Samples(1, 2);
  evaluation.set_correct(5);
  evaluation.set_total(6);
  evaluation.set_loss_sum(7);
  ExpectWire(evaluation, "0a0d0a036a6f6210011802200328041002180322040801100228053006390000000000001c40");
  v1::ReportFailureRequest failure;
  *failure.mutable_fence() = Fence();
  failure.set_task("train");
  failure.set_code(3);
  failure.set_message("m");
  failure.set_permanent(true);
  ExpectWire(failure, "0a0d0a036a6f6210011802200328041205747261696e180322016d2801");
}

TEST(WireGoldenTest, SubmitJobRequest) {
  v1::SubmitJobRequest m;
  m.set_yaml("y");
  m.set_file_name("f");
  m.set_request_id("r");
  m.mutable_pinned_plan()->set_number(1);
  ExpectWire(m, "0a01791201661a017222020801");
}

TEST(WireGoldenTest, GetJobResponse) {
  v1::GetJobResponse m;
  v1::JobSummary* summary = m.mutable_summary();
  summary->set_job("job");
  summary->set_state(v1::JOB_STATE_PAUSED);
  summary->set_reason("r");
  summary->set_round(4);
  summary->set_rounds_planned(5);
  summary->set_epochs_done(6);
  summary->set_version(7);
  *summary->mutable_evaluation() = Evaluation();
  summary->set_submitted_ms(9);
  summary->set_ended_ms(10);
  summary->set_model("lenet");
  m.mutable_spec()->set_name("job");
  m.mutable_plan()->set_number(1);
  v1::WorkerInJob* worker = m.add_workers();
  worker->set_worker("w1");
  worker->set_site("lab");
  *worker->mutable_emulation() = Emulation();
  worker->set_live(true);
  worker->set_takes_part(true);
  *worker->mutable_progress() = Progress();
  worker->mutable_plan()->set_samples(3);
  worker->mutable_profile()->set_max_parallel(2);
  worker->set_rounds(9);
  worker->set_compute_s(10);
  worker->set_pull_s(11);
  worker->set_push_s(12);
  worker->set_evaluate_s(13);
  worker->set_fetch_s(14);
  worker->set_fetch_bytes(15);
  worker->set_samples_counted(16);
  worker->set_fresh_optimizer(true);
  worker->set_excluded("e");
  v1::RoundRecord* record = m.add_rounds();
  record->set_round(1);
  record->set_version(2);
  record->set_plan(3);
  record->set_samples(4);
  record->set_contributions(5);
  record->set_planned_contributions(6);
  record->set_seconds(7);
  record->set_train_loss(8);
  *record->mutable_evaluation() = Evaluation();
  record->set_committed_ms(10);
  m.set_train_seconds(6);
  m.set_round_elapsed_s(7);
  m.set_round_deadline_s(8);
  m.add_waiting_for("w1");
  (*m.mutable_rejected())["norm"] = 10;
  m.set_seconds_left(11);
  m.set_job_dir("/d");
  ExpectWire(
      m,
      "0a400a036a6f6210091a0172200428053100000000000018403807421a080110021803210000000000001040290000000000001440300148"
      "09500a5a056c656e657412050a036a6f621a020801228b010a02773112036c61621a1b090000000000000040110000000000000840190000"
      "00000000104020012801321c0a036a6f6210021809200428053006390000000000001c40400848093a021803420210024809510000000000"
      "002440590000000000002640610000000000002840690000000000002a40710000000000002c40780f800110880101920101652a3c080110"
      "021803200428053006390000000000001c404100000000000020404a1a080110021803210000000000001040290000000000001440300150"
      "0a310000000000001840390000000000001c404100000000000020404a02773152080a046e6f726d100a59000000000000264062022f64");
}

TEST(JournalGoldenTest, StoredShards) {
  v1::StoredShards m;
  v1::StoredShards::Shard* shard = m.add_shards();
  shard->set_worker("w1");
  *shard->add_ranges() = Samples(1, 2);
  ExpectWire(m, "0a0a0a027731120408011002");
}

TEST(JournalGoldenTest, StoredRoundAndRuntime) {
  ExpectWire(OpenRound(), "08011002180320042a080a027731100218033006");
  v1::StoredRuntime m;
  *m.mutable_open_round() = OpenRound();
  m.set_active_plan(2);
  m.set_final_version(-1);
  m.set_rejected_rounds(4);
  ExpectWire(m, "0a1408011002180320042a080a027731100218033006100218ffffffffffffffffff012004");
}

TEST(JournalGoldenTest, StoredContribution) {
  v1::StoredContribution m;
  m.set_steps(1);
  m.set_train_loss(2);
  m.set_pull_s(3);
  m.set_evaluate_s(4);
  m.set_compute_s(5);
  m.set_push_s(6);
  m.set_fresh_optimizer(true);
  m.set_change_ratio(8);
  ExpectWire(m,
             "080111000000000000004019000000000000084021000000000000104029000000000000144031000000000000184038014100000"
             "00000002040");
}

TEST(WireGoldenTest, LayoutAndItsHash) {
  ExpectWire(
      SmallLayout().ToProto(),
      "0a1a0a0c636f6e76312e77656967687410011a0406010505200128010a1a0a0f626e2e72756e6e696e675f6d65616e10011a010620022802"
      "0a1e0a16626e2e6e756d5f626174636865735f747261636b6564100220032802");
  EXPECT_EQ(dataplane::ToHex(SmallLayout().hash()), "db4c81bb051198b42c74fa6a0952bb1f57f68909f207da90562395c9f319f7b7");
}

}  // namespace
}  // namespace causeway
