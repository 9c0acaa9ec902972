#include "worker/join.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "dataplane/pki.h"
#include "dataplane/protocol_version.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::worker {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

class JoinTest : public testing::Test {
 protected:
  JoinTest() {
    options_.token = "secret";
    options_.ca_pin = *dataplane::CaPin(pki_.ca_pem());
    options_.name = "lab-7";
    options_.dir = dir_.Join("worker");
    options_.config.coordinator = {"coord.example", 7443};
    options_.config.emulate.slowdown = 2;
    options_.fs = RealFileSystem();
    options_.clock = RealClock();
    options_.fetch_chain = [this](const std::string& host, int port,
                                  absl::Time) -> absl::StatusOr<std::vector<std::string>> {
      EXPECT_EQ(host, "coord.example");
      EXPECT_EQ(port, 7443);
      return std::vector<std::string>{*RealFileSystem()->ReadFile(pki_.Coordinator().certificate, 1 << 16),
                                      pki_.ca_pem()};
    };
    options_.call_join = [this](const std::string& address, const std::string& ca_pem, const v1::JoinRequest& request,
                                absl::Time) -> absl::StatusOr<v1::JoinResponse> {
      EXPECT_EQ(address, "coord.example:7443");
      requests_.push_back(request);
      dataplane::LeafOptions leaf;
      leaf.identity.role = dataplane::PeerIdentity::Role::kWorker;
      leaf.identity.site = "lab";
      leaf.identity.name = "lab-7";
      leaf.validity = TestPki::Now();
      v1::JoinResponse response;
      response.set_site("lab");
      response.set_worker("lab-7");
      response.set_ca_pem(ca_pem);
      response.set_certificate_pem(*dataplane::SignCsr(request.csr_pem(), pki_.ca_pem(), pki_.ca_key_pem(), leaf));
      return response;
    };
  }

  TempDir dir_;
  TestPki pki_{dir_.path()};
  JoinOptions options_;
  std::vector<v1::JoinRequest> requests_;
};

TEST_F(JoinTest, StoresWhatAWorkerNeeds) {
  auto joined = Join(options_);
  ASSERT_THAT(joined, IsOk());
  EXPECT_EQ(joined->site, "lab");
  EXPECT_EQ(joined->worker, "lab-7");
  ASSERT_THAT(requests_, SizeIs(1));
  EXPECT_EQ(requests_[0].token(), "secret");
  EXPECT_EQ(requests_[0].worker_name(), "lab-7");
  EXPECT_EQ(requests_[0].version().major(), dataplane::kProtocolMajor);

  const std::string key = *RealFileSystem()->ReadFile(KeyPath(options_.dir), 1 << 16);
  EXPECT_THAT(dataplane::CheckKeyMatches(*RealFileSystem()->ReadFile(CertificatePath(options_.dir), 1 << 16), key),
              IsOk());
  EXPECT_EQ(*RealFileSystem()->ReadFile(CaPath(options_.dir), 1 << 16), pki_.ca_pem());
  EXPECT_THAT(requests_[0].csr_pem(), testing::Not(HasSubstr("PRIVATE")));
  struct stat info;
  ASSERT_EQ(stat(KeyPath(options_.dir).c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);

  auto config = jobspec::LoadWorkerConfig(joined->config_path);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->coordinator.ToString(), "coord.example:7443");
  EXPECT_EQ(config->dir, options_.dir);
  EXPECT_EQ(config->emulate.slowdown, 2);
}

TEST_F(JoinTest, SendsNoTokenToAStranger) {
  options_.ca_pin = "sha256:" + std::string(64, '0');
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("the token was not sent")));
  options_.ca_pin = "sha256:12";
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(requests_, IsEmpty());
  EXPECT_FALSE(RealFileSystem()->Exists(options_.dir));
}

TEST_F(JoinTest, TellsARefusal) {
  options_.call_join = [](const auto&...) { return absl::PermissionDeniedError("the token has expired"); };
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kPermissionDenied,
                                       HasSubstr("join coord.example:7443: the token has expired")));
  EXPECT_FALSE(RealFileSystem()->Exists(ConfigPath(options_.dir)));
}

TEST_F(JoinTest, LeavesAWorkersFolderAlone) {
  ASSERT_THAT(Join(options_), IsOk());
  const std::string key = *RealFileSystem()->ReadFile(KeyPath(options_.dir), 1 << 16);
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("--config")));
  EXPECT_EQ(*RealFileSystem()->ReadFile(KeyPath(options_.dir), 1 << 16), key);
  EXPECT_THAT(requests_, SizeIs(1));
}

TEST_F(JoinTest, ChecksTheAnswer) {
  const auto call_join = options_.call_join;
  options_.call_join = [&](const auto&... arguments) {
    absl::StatusOr<v1::JoinResponse> response = call_join(arguments...);
    response->set_worker("lab-8");
    return response;
  };
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("lab-8")));
  options_.call_join = [&](const auto&... arguments) {
    absl::StatusOr<v1::JoinResponse> response = call_join(arguments...);
    response->set_certificate_pem(pki_.ca_pem());
    return response;
  };
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_FALSE(RealFileSystem()->Exists(ConfigPath(options_.dir)));
}

TEST_F(JoinTest, ARepetitionUsesTheSameKey) {
  const auto call_join = options_.call_join;
  options_.call_join = [&](const auto&... arguments) -> absl::StatusOr<v1::JoinResponse> {
    EXPECT_THAT(call_join(arguments...), IsOk());
    return absl::UnavailableError("the connection broke");
  };
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kUnavailable));
  options_.call_join = call_join;
  // Something else is where the certificate is to lie.
  std::filesystem::create_directories(CertificatePath(options_.dir) + "/x");
  EXPECT_THAT(Join(options_), testing::Not(IsOk()));
  EXPECT_FALSE(RealFileSystem()->Exists(ConfigPath(options_.dir)));
  std::filesystem::remove_all(CertificatePath(options_.dir));
  ASSERT_THAT(Join(options_), IsOk());
  ASSERT_THAT(requests_, SizeIs(3));
  for (const v1::JoinRequest& request : requests_) {
    EXPECT_EQ(*dataplane::CsrKeySha256(request.csr_pem()), *dataplane::CsrKeySha256(requests_[0].csr_pem()));
  }
  EXPECT_THAT(dataplane::CheckKeyMatches(*RealFileSystem()->ReadFile(CertificatePath(options_.dir), 1 << 16),
                                         *RealFileSystem()->ReadFile(KeyPath(options_.dir), 1 << 16)),
              IsOk());
}

TEST_F(JoinTest, NamesAFileThatIsNoKey) {
  ASSERT_THAT(RealFileSystem()->MakeDirs(options_.dir + "/tls"), IsOk());
  ASSERT_THAT(RealFileSystem()->WriteFileAtomically(KeyPath(options_.dir), "no key"), IsOk());
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(KeyPath(options_.dir))));
  EXPECT_THAT(requests_, IsEmpty());
}

TEST_F(JoinTest, ChecksNames) {
  options_.name = "../up";
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("worker name")));
  options_.name = "";
  options_.token = "";
  EXPECT_THAT(Join(options_), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("token")));
  EXPECT_THAT(requests_, IsEmpty());
}

}  // namespace
}  // namespace causeway::worker
