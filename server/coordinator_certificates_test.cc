#include "server/coordinator_test_fixture.h"

namespace causeway::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Holder = v1::CertificateStatus;

class CertificatesTest : public CoordinatorTest {
 protected:
  CertificatesTest() { Fleet(2); }

  absl::StatusOr<dataplane::PeerIdentity> Renew(const dataplane::PeerIdentity& peer,
                                                const std::string& key = *dataplane::GenerateKeyPem()) {
    v1::RenewCertificateRequest request;
    request.set_csr_pem(*dataplane::CreateCsr(key));
    auto response = On([&] { return coordinator_->RenewCertificate(peer, request); });
    if (!response.ok()) return response.status();
    EXPECT_OK(dataplane::CheckKeyMatches(response->certificate_pem(), key));
    return dataplane::ParseCertificate(response->certificate_pem());
  }
  absl::Status Allowed(const dataplane::PeerIdentity& peer) {
    return coordinator_->Authorize(peer, "/causeway.v1.Membership/Register");
  }
  v1::CertificateStatus Shown(const std::string& name) {
    dataplane::PeerIdentity operator_;
    operator_.role = dataplane::PeerIdentity::Role::kOperator;
    operator_.name = "admin";
    operator_.serial = "0abc";
    auto list = On([&] { return coordinator_->ListCertificates(operator_); });
    EXPECT_OK(list);
    for (const v1::CertificateStatus& c : list->certificates()) {
      if (c.name() == name) return c;
    }
    return {};
  }
};

TEST_F(CertificatesTest, BothCountUntilTheNextOneIsAskedForWithTheNewOne) {
  const dataplane::PeerIdentity a = worker("w0").peer;
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity b, Renew(a));
  EXPECT_EQ(b.name, "w0");
  EXPECT_EQ(b.site, "lab");
  EXPECT_NE(b.serial, a.serial);
  EXPECT_OK(Allowed(a));
  EXPECT_OK(Allowed(b));
  Kill();
  Start();
  EXPECT_OK(Allowed(a));
  EXPECT_OK(Allowed(b));
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity c, Renew(b));
  EXPECT_THAT(Allowed(a), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("was replaced")));
  EXPECT_OK(Allowed(b));
  EXPECT_OK(Allowed(c));
}

TEST_F(CertificatesTest, AnAnswerThatWasLostLocksNobodyOut) {
  const dataplane::PeerIdentity a = worker("w0").peer;
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity lost, Renew(a));
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity b, Renew(a));
  EXPECT_OK(Allowed(a));
  EXPECT_OK(Allowed(b));
  EXPECT_THAT(Allowed(lost), StatusIs(absl::StatusCode::kPermissionDenied));
}

TEST_F(CertificatesTest, WhoWasRemovedGetsNone) {
  const dataplane::PeerIdentity a = worker("w0").peer;
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity b, Renew(a));
  ASSERT_OK(On([&] { return coordinator_->RemoveWorker("w0"); }));
  for (const dataplane::PeerIdentity& peer : {a, b}) {
    EXPECT_THAT(Renew(peer), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("was removed")));
    EXPECT_THAT(Allowed(peer), StatusIs(absl::StatusCode::kPermissionDenied, HasSubstr("was removed")));
  }
  EXPECT_OK(Allowed(worker("w1").peer));
}

TEST_F(CertificatesTest, NobodyGetsOneForSomebodyElse) {
  dataplane::PeerIdentity stranger = worker("w0").peer;
  stranger.name = "w1";  // With w0's serial.
  EXPECT_THAT(Renew(stranger), StatusIs(absl::StatusCode::kPermissionDenied));
  v1::RenewCertificateRequest garbage;
  garbage.set_csr_pem("garbage");
  EXPECT_THAT(On([&] { return coordinator_->RenewCertificate(worker("w0").peer, garbage); }),
              StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_OK(Allowed(worker("w0").peer));
}

TEST_F(CertificatesTest, AnOperatorAsksAndTheHeartbeatTells) {
  std::vector<bool> told;
  ScriptedWorker& w = worker("w0");
  w.stream = *On([&] {
    return coordinator_->OpenHeartbeat(w.peer, Incarnation(w.incarnation),
                                       {.send =
                                            [&](const v1::HeartbeatResponse& r) {
                                              if (r.sequence() > 0) told.push_back(r.renew_certificate());
                                            },
                                        .close = [](const absl::Status&) {}});
  });
  const auto beat = [&] {
    v1::HeartbeatRequest request;
    request.set_incarnation(w.incarnation);
    request.set_sequence(static_cast<int64_t>(told.size()) + 1);
    EXPECT_OK(On([&] { return coordinator_->Heartbeat(w.stream, request); }));
  };
  beat();
  v1::RequestRenewalRequest request;
  request.set_worker("w0");
  auto asked = On([&] { return coordinator_->RequestRenewal(request); });
  ASSERT_OK(asked);
  EXPECT_THAT(asked->workers(), ElementsAre("w0"));
  EXPECT_TRUE(Shown("w0").renewal_asked());
  EXPECT_FALSE(Shown("w1").renewal_asked());
  beat();
  beat();
  ASSERT_OK_AND_ASSIGN(const dataplane::PeerIdentity renewed, Renew(w.peer));
  beat();
  EXPECT_THAT(told, ElementsAre(false, true, true, false));
  EXPECT_FALSE(Shown("w0").renewal_asked());
  EXPECT_EQ(Shown("w0").serial(), renewed.serial);
  EXPECT_EQ(Shown("w0").expires_ms(), absl::ToUnixMillis(renewed.not_after));

  request.set_worker("none");
  EXPECT_THAT(On([&] { return coordinator_->RequestRenewal(request); }), StatusIs(absl::StatusCode::kNotFound));
  request.Clear();
  request.set_coordinator(true);
  EXPECT_THAT(On([&] { return coordinator_->RequestRenewal(request); }),
              StatusIs(absl::StatusCode::kFailedPrecondition));
  request.Clear();
  request.set_all_workers(true);
  ASSERT_OK(On([&] { return coordinator_->RemoveWorker("w1"); }));
  EXPECT_THAT(On([&] { return coordinator_->RequestRenewal(request); })->workers(), ElementsAre("w0"));
  EXPECT_EQ(Shown("w1").name(), "");
}

TEST_F(CertificatesTest, TheListAndAnOperatorsOwn) {
  EXPECT_EQ(Shown("").holder(), Holder::HOLDER_CA);
  EXPECT_EQ(Shown("").sha256(), *dataplane::CaPin(pki_.ca_pem()));
  EXPECT_EQ(Shown("admin").holder(), Holder::HOLDER_OPERATOR);
  EXPECT_EQ(Shown("admin").serial(), "0abc");
  EXPECT_TRUE(Shown("w1").live());
  dataplane::PeerIdentity admin;
  admin.role = dataplane::PeerIdentity::Role::kOperator;
  admin.name = "admin";
  v1::RenewCertificateRequest request;
  request.set_csr_pem(*dataplane::CreateCsr(*dataplane::GenerateKeyPem()));
  auto response = On([&] { return coordinator_->RenewOperatorCertificate(admin, request); });
  ASSERT_OK(response);
  EXPECT_EQ(dataplane::IdentityUri(*dataplane::ParseCertificate(response->certificate_pem())),
            "causeway://operator/admin");
}

}  // namespace
}  // namespace causeway::server
