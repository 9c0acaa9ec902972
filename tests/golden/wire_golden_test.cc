// Freezes the bytes on the wire. A failure here means that this program no longer talks to its older self: add fields, never change them.

#include <string>

#include <gtest/gtest.h>

#include "absl/strings/escaping.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "dataplane/transfer.h"
#include "proto/bulk.pb.h"
#include "proto/membership.pb.h"

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

TEST(WireGoldenTest, PushRequest) {
  v1::PushRequest m;
  *m.mutable_fence() = Fence();
  m.set_initial(true);
  m.set_attempt(5);
  m.set_layout_sha256("layout");
  m.set_part(0);
  m.set_parts(1);
  *m.mutable_elements() = Elements(0, 300);
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
  m.mutable_version()->set_major(1);
  m.mutable_version()->set_minor(2);
  m.mutable_version()->set_build("0.1.0");
  m.set_incarnation(3);
  m.mutable_device()->set_kind("cpu");
  m.mutable_device()->set_name("x");
  m.mutable_device()->set_threads(4);
  m.mutable_device()->set_memory_bytes(5);
  m.mutable_device()->set_torch_version("2");
  m.mutable_emulation()->set_slowdown(2);
  m.mutable_emulation()->set_down_bytes_per_s(3);
  m.mutable_emulation()->set_up_bytes_per_s(4);
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

TEST(WireGoldenTest, LayoutAndItsHash) {
  ExpectWire(
      SmallLayout().ToProto(),
      "0a1a0a0c636f6e76312e77656967687410011a0406010505200128010a1a0a0f626e2e72756e6e696e675f6d65616e10011a010620022802"
      "0a1e0a16626e2e6e756d5f626174636865735f747261636b6564100220032802");
  EXPECT_EQ(dataplane::ToHex(SmallLayout().hash()), "db4c81bb051198b42c74fa6a0952bb1f57f68909f207da90562395c9f319f7b7");
}

}  // namespace
}  // namespace causeway
