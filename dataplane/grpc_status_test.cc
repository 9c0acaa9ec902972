#include "dataplane/grpc_status.h"

#include <gtest/gtest.h>

#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

TEST(GrpcStatusTest, EveryCodeGoesThereAndBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "why");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status);
    EXPECT_EQ(static_cast<int>(ToGrpc(status).error_code()), code);
  }
  EXPECT_TRUE(ToGrpc(absl::OkStatus()).ok());
  EXPECT_THAT(FromGrpc(grpc::Status::OK), IsOk());
  EXPECT_EQ(ToGrpc(absl::NotFoundError("x")).error_code(), grpc::StatusCode::NOT_FOUND);
}

}  // namespace
}  // namespace causeway::dataplane
