#include "cli/cert_commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_test_fixture.h"
#include "dataplane/identity_file.h"
#include "dataplane/pki.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/test_pki.h"

namespace causeway::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CertCommandsTest : public CliTest {
 protected:
  std::string Read(const std::string& name) {
    return RealFileSystem()->ReadFile(dir_.Join(name), 1 << 20).value_or("");
  }
};

TEST_F(CertCommandsTest, ShowsWhoseAndUntilWhen) {
  const int64_t now_ms = absl::ToUnixMillis(clock_.WallNow());
  const auto add = [&](v1::CertificateStatus::Holder holder, const char* name, int64_t left_s) {
    v1::CertificateStatus* c = coordinator_.answers.ListCertificates.add_certificates();
    c->set_holder(holder);
    c->set_name(name);
    c->set_serial("0abc");
    c->set_expires_ms(now_ms + left_s * 1000);
    return c;
  };
  add(v1::CertificateStatus::HOLDER_CA, "", 3650 * 86400)->set_sha256("sha256:ff");
  add(v1::CertificateStatus::HOLDER_COORDINATOR, "", 7200);
  add(v1::CertificateStatus::HOLDER_WORKER, "a1", -1);
  add(v1::CertificateStatus::HOLDER_WORKER, "a2", 100 * 86400)->set_renewal_asked(true);
  EXPECT_EQ(Run({"cert", "show"}), 0);
  EXPECT_THAT(out(), AllOf(HasSubstr("ca "), HasSubstr("3650 days"), HasSubstr("sha256:ff"), HasSubstr("2h00m"),
                           HasSubstr("expired"), HasSubstr("renewal asked for"), HasSubstr("0abc")));
  EXPECT_EQ(Run({"cert", "show", "--output", "json"}), 0);
  EXPECT_EQ(OutJson()["schema"], "causeway.certificates/1");
  EXPECT_EQ(OutJson()["certificates"][0]["holder"], "CA");
  EXPECT_EQ(OutJson()["certificates"][3]["name"], "a2");
}

TEST_F(CertCommandsTest, AsksWorkersAndTheCoordinator) {
  coordinator_.answers.RequestRenewal.add_workers("a1");
  EXPECT_EQ(Run({"cert", "renew", "a1"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "RequestRenewal worker: \"a1\"");
  EXPECT_THAT(out(), HasSubstr("asked: a1;"));
  coordinator_.answers.RequestRenewal.Clear();
  EXPECT_EQ(Run({"cert", "renew", "coordinator", "--output", "json"}), 0);
  EXPECT_EQ(coordinator_.calls.back(), "RequestRenewal coordinator: true");
  EXPECT_EQ(OutJson()["schema"], "causeway.certificate-renewal/1");
  EXPECT_EQ(OutJson()["asked"], Json::parse("[\"coordinator\"]"));
  EXPECT_EQ(OutJson()["operator_renewed"], false);
  coordinator_.error = absl::NotFoundError("no worker zz");
  EXPECT_EQ(Run({"cert", "renew", "zz"}), 1);
  EXPECT_EQ(err(), "causeway: no worker zz\n");
}

TEST_F(CertCommandsTest, TheOperatorsKeyIsMadeHereAndReplacesTheOldPairInOneFile) {
  const TestPki pki(dir_.path());
  const TestPki::Files old = pki.Operator("admin");
  Write("config/operator.pem", *RealFileSystem()->ReadFile(old.certificate, 1 << 20));
  Write("config/operator.key", *RealFileSystem()->ReadFile(old.key, 1 << 20));
  coordinator_.sign = [&](const std::string& csr) {
    dataplane::LeafOptions leaf;
    leaf.identity = {.role = dataplane::PeerIdentity::Role::kOperator, .name = "admin"};
    leaf.validity = TestPki::Now();
    return *dataplane::SignCsr(csr, pki.ca_pem(), pki.ca_key_pem(), leaf);
  };
  EXPECT_EQ(Run({"cert", "renew", "operator"}), 0) << err();
  EXPECT_THAT(coordinator_.calls, ElementsAre(StartsWith("RenewOperatorCertificate ")));
  const std::string pem = Read("config/operator.pem");
  EXPECT_TRUE(dataplane::HoldsKey(pem));
  EXPECT_OK(dataplane::CheckKeyMatches(pem, pem));
  EXPECT_NE(dataplane::ParseCertificate(pem)->serial,
            dataplane::ParseCertificate(*RealFileSystem()->ReadFile(old.certificate, 1 << 20))->serial);
  EXPECT_FALSE(RealFileSystem()->Exists(dir_.Join("config/operator.key")));
  // Everybody's.
  coordinator_.answers.RequestRenewal.add_workers("a1");
  EXPECT_EQ(Run({"cert", "renew"}), 0) << err();
  EXPECT_THAT(coordinator_.calls[1], "RequestRenewal coordinator: true all_workers: true");
  EXPECT_THAT(out(), HasSubstr("the operator's certificate was renewed\nasked: coordinator, a1;"));
  EXPECT_NE(Read("config/operator.pem"), pem);
}

TEST_F(CertCommandsTest, AnExpiredOperatorIsMadeANewOneByTheAuthority) {
  const auto init = [&](const std::string& name) {
    return Run({"--context", dir_.Join(name + "-operator"), "init", "--address", "c.example:7443", "--dir",
                dir_.Join(name), "--operator", "ann"});
  };
  ASSERT_EQ(init("one"), 0) << err();
  ASSERT_EQ(init("two"), 0) << err();
  clock_.Advance(absl::Hours(24 * 400));
  const std::string old = Read("one-operator/operator.pem");
  const std::vector<std::string> renew = {"--context", dir_.Join("one-operator"), "cert", "renew", "operator", "--dir"};
  const auto with = [&](const std::string& dir) {
    std::vector<std::string> arguments = renew;
    arguments.push_back(dir_.Join(dir));
    return arguments;
  };
  EXPECT_EQ(Run(with("two")), 4);
  EXPECT_THAT(err(), HasSubstr("for another coordinator"));
  EXPECT_EQ(Run(with("none")), 1);
  EXPECT_THAT(err(), HasSubstr("none/tls/ca.pem"));
  EXPECT_EQ(Run({"cert", "renew", "a1", "--dir", dir_.Join("one")}), 2);
  EXPECT_EQ(Read("one-operator/operator.pem"), old);

  EXPECT_EQ(Run(with("one")), 0) << err();
  EXPECT_THAT(out(), HasSubstr("the operator's certificate was renewed"));
  EXPECT_EQ(connected_to_, "");
  const std::string pem = Read("one-operator/operator.pem");
  const absl::StatusOr<dataplane::PeerIdentity> identity = dataplane::ParseCertificate(pem);
  ASSERT_OK(identity);
  EXPECT_EQ(dataplane::IdentityUri(*identity), "causeway://operator/ann");
  EXPECT_GT(identity->not_after, clock_.WallNow() + absl::Hours(24 * 364));
  EXPECT_OK(dataplane::CheckKeyMatches(pem, pem));
  EXPECT_FALSE(RealFileSystem()->Exists(dir_.Join("one-operator/operator.key")));
}

TEST_F(CertCommandsTest, WarnsOfAnOperatorsCertificateThatIsNearItsEnd) {
  const TestPki pki(dir_.path());
  const auto expires_in = [&](absl::Duration left) {
    const absl::Time now = clock_.WallNow();
    Write("config/operator.pem",
          *RealFileSystem()->ReadFile(pki.Operator("admin", {now - absl::Hours(60), now + left}).certificate, 1 << 20));
  };
  expires_in(absl::Hours(31));
  EXPECT_EQ(Run({"site", "list"}), 0);
  EXPECT_EQ(err(), "");
  expires_in(absl::Hours(29));
  EXPECT_EQ(Run({"site", "list"}), 0);
  EXPECT_THAT(err(), AllOf(HasSubstr("warning: " + dir_.Join("config/operator.pem") + " expires at "),
                           HasSubstr("`causeway cert renew operator`")));
  EXPECT_THAT(out(), testing::Not(HasSubstr("warning")));
}

TEST_F(CertCommandsTest, AnAnswerThatDoesNotFitChangesNothing) {
  Write("config/operator.pem", "old");
  coordinator_.sign = [](const std::string&) { return "garbage"; };
  EXPECT_EQ(Run({"cert", "renew", "operator"}), 1);
  EXPECT_EQ(Read("config/operator.pem"), "old");
}

}  // namespace
}  // namespace causeway::cli
