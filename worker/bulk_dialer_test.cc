#include "worker/bulk_dialer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

using testing::ElementsAre;

// Opens nothing: the error names where it would have.
class NamingDialer : public dataplane::LinkDialer {
 public:
  explicit NamingDialer(const std::string& address) : address_(address) {}
  absl::StatusOr<std::unique_ptr<dataplane::Link>> Dial(dataplane::LinkKind, absl::Time) override {
    return absl::UnavailableError(address_);
  }

 private:
  const std::string address_;
};

class BulkDialerTest : public testing::Test {
 protected:
  std::string Dialed() {
    return std::string(dialer_.Dial(dataplane::LinkKind::kPull, absl::InfiniteFuture()).status().message());
  }

  std::vector<std::string> made_;
  BulkDialer dialer_{[this](const std::string& address) {
                       made_.push_back(address);
                       return std::make_unique<NamingDialer>(address);
                     },
                     "configured:1"};
};

TEST_F(BulkDialerTest, DialsWhereTheCoordinatorSays) {
  EXPECT_EQ(Dialed(), "configured:1");
  v1::RegisterResponse response;
  response.add_endpoints()->set_address("elsewhere:2");
  dialer_.Follow(response);
  EXPECT_EQ(dialer_.address(), "elsewhere:2");
  EXPECT_EQ(Dialed(), "elsewhere:2");
  dialer_.Follow(v1::RegisterResponse());
  EXPECT_EQ(Dialed(), "configured:1");
  dialer_.Follow(response);
  EXPECT_EQ(Dialed(), "elsewhere:2");
  EXPECT_THAT(made_, ElementsAre("configured:1", "elsewhere:2"));
}

TEST_F(BulkDialerTest, LeavesEndpointsOfAPartAlone) {
  v1::RegisterResponse response;
  v1::EndpointRange* part = response.add_endpoints();
  part->set_address("part:2");
  part->mutable_elements()->set_end(10);
  response.add_endpoints();  // Without an address.
  dialer_.Follow(response);
  EXPECT_EQ(Dialed(), "configured:1");
  response.add_endpoints()->set_address("whole:3");
  dialer_.Follow(response);
  EXPECT_EQ(Dialed(), "whole:3");
}

}  // namespace
}  // namespace causeway::worker
