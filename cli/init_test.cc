#include "cli/init.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "dataplane/pki.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"

namespace causeway::cli {
namespace {

using dataplane::PeerIdentity;
using ::testing::HasSubstr;

class InitTest : public testing::Test {
 protected:
  InitTest() {
    options_.address = {"coord.example", 9443};
    options_.dir = dir_.Join("coordinator");
    options_.context_dir = dir_.Join("config/causeway");
    options_.wall_now = absl::FromUnixSeconds(1800000000);
  }

  std::string Read(const std::string& path) {
    absl::StatusOr<std::string> text = files_->ReadFile(path, 1 << 20);
    EXPECT_THAT(text, IsOk());
    return text.value_or("");
  }
  int Mode(const std::string& path) {
    struct stat info = {};
    EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
    return info.st_mode & 0777;
  }

  TempDir dir_;
  FileSystem* const files_ = RealFileSystem();
  InitOptions options_;
};

TEST_F(InitTest, MakesWhatACoordinatorAndItsOperatorNeed) {
  absl::StatusOr<InitResult> result = InitCoordinator(options_, files_);
  ASSERT_THAT(result, IsOk());
  absl::StatusOr<jobspec::CoordinatorConfig> config = jobspec::LoadCoordinatorConfig(result->config_path);
  ASSERT_THAT(config, IsOk());
  EXPECT_EQ(config->advertise, options_.address);
  EXPECT_EQ(config->listen.ToString(), "0.0.0.0:9443");
  EXPECT_EQ(config->dir, options_.dir);
  EXPECT_EQ(config->data_root, options_.dir + "/data");
  EXPECT_TRUE(files_->Exists(config->data_root));

  jobspec::TlsPaths tls = jobspec::CoordinatorTlsPaths(config->dir);
  std::string ca = Read(tls.ca);
  EXPECT_THAT(dataplane::CaPin(ca), IsOkAndHolds(result->ca_pin));
  EXPECT_THAT(dataplane::CheckKeyMatches(ca, Read(tls.ca_key)), IsOk());
  std::string chain = Read(tls.certificate);
  EXPECT_THAT(dataplane::CheckKeyMatches(chain, Read(tls.key)), IsOk());
  EXPECT_EQ(chain.substr(chain.size() - ca.size()),
            ca);  // Leaf, then CA: a joining worker checks its pin on the latter.
  absl::StatusOr<PeerIdentity> identity = dataplane::ParseCertificate(chain);
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(identity->role, PeerIdentity::Role::kCoordinator);

  absl::StatusOr<Context> context = LoadContext(options_.context_dir, files_);
  ASSERT_THAT(context, IsOk());
  EXPECT_EQ(context->coordinator, options_.address);
  EXPECT_EQ(Read(context->ca_path()), ca);
  EXPECT_THAT(dataplane::CheckKeyMatches(Read(context->certificate_path()), Read(context->key_path())), IsOk());
  identity = dataplane::ParseCertificate(Read(context->certificate_path()));
  ASSERT_THAT(identity, IsOk());
  EXPECT_EQ(identity->role, PeerIdentity::Role::kOperator);
  EXPECT_EQ(identity->name, "admin");

  for (const std::string& key : {tls.ca_key, tls.key, context->key_path()}) EXPECT_EQ(Mode(key), 0600) << key;
  EXPECT_EQ(Mode(options_.context_dir), 0700);
  EXPECT_EQ(Mode(options_.dir + "/tls"), 0700);
}

TEST_F(InitTest, DataRootAndOperatorAsTold) {
  options_.data_root = dir_.Join("x/../datasets");
  options_.operator_name = "eve";
  absl::StatusOr<InitResult> result = InitCoordinator(options_, files_);
  ASSERT_THAT(result, IsOk());
  EXPECT_EQ(jobspec::LoadCoordinatorConfig(result->config_path)->data_root, dir_.Join("datasets"));
  EXPECT_EQ(LoadContext(options_.context_dir, files_)->operator_name, "eve");
}

TEST_F(InitTest, NeverOverwrites) {
  ASSERT_THAT(InitCoordinator(options_, files_), IsOk());
  std::string ca = Read(jobspec::CoordinatorTlsPaths(options_.dir).ca);
  EXPECT_THAT(InitCoordinator(options_, files_),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("choose another --dir")));

  InitOptions other = options_;
  other.dir = dir_.Join("other");
  EXPECT_THAT(InitCoordinator(other, files_),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("choose another --context")));
  EXPECT_FALSE(files_->Exists(other.dir));

  // What is left of a broken attempt counts too.
  ASSERT_THAT(files_->Remove(JoinPath(options_.dir, "coordinator.yaml")), IsOk());
  EXPECT_THAT(InitCoordinator(options_, files_), StatusIs(absl::StatusCode::kAlreadyExists));
  EXPECT_EQ(Read(jobspec::CoordinatorTlsPaths(options_.dir).ca), ca);
}

TEST_F(InitTest, BadOperatorName) {
  options_.operator_name = "Eve!";
  EXPECT_THAT(InitCoordinator(options_, files_),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("operator name \"Eve!\"")));
  EXPECT_FALSE(files_->Exists(options_.dir));
}

}  // namespace
}  // namespace causeway::cli
