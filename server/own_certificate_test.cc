#include "server/own_certificate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/fakes/fake_clock.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;

class OwnCertificateTest : public ::testing::Test {
 protected:
  static dataplane::Validity HoursAround(int before, int after) {
    const absl::Time now = RealClock()->WallNow();
    return {.not_before = now - absl::Hours(before), .not_after = now + absl::Hours(after)};
  }
  OwnCertificate::Options Options(const TestPki::Files& files) {
    return {.fs = RealFileSystem(),
            .clock = RealClock(),
            .path = files.certificate,
            .key_path = files.key,
            .ca_pem = pki_.ca_pem(),
            .ca_key_pem = pki_.ca_key_pem(),
            .hosts = {"coord.example", "10.0.0.1"},
            .lifetime = absl::Hours(10)};
  }
  std::string Read(const TestPki::Files& files) {
    return RealFileSystem()->ReadFile(files.certificate, 1 << 20).value_or("");
  }

  TempDir dir_;
  const TestPki pki_{dir_.path()};
};

TEST_F(OwnCertificateTest, IsRenewedOverANewKey) {
  const TestPki::Files files = pki_.Coordinator({"localhost"}, HoursAround(1, 9));
  const std::string old_key = *RealFileSystem()->ReadFile(files.key, 1 << 20);
  ASSERT_OK_AND_ASSIGN(auto own, OwnCertificate::Create(Options(files)));
  const dataplane::CertificateInfo first = own->info();
  EXPECT_FALSE(own->due());
  EXPECT_FALSE(RealFileSystem()->Exists(files.key));
  ASSERT_OK(own->Renew());
  EXPECT_NE(own->info().serial, first.serial);
  EXPECT_GT(own->info().validity.not_after, first.validity.not_after);
  const std::string pem = Read(files);
  EXPECT_OK(dataplane::CheckKeyMatches(pem, pem));
  EXPECT_FALSE(dataplane::CheckKeyMatches(pem, old_key).ok());
  // What it serves still leads to the pinned authority.
  const std::string leaf = pem.substr(0, pem.find("-----END CERTIFICATE-----") + 26);
  EXPECT_OK(dataplane::VerifyChainAgainstPin({leaf, pki_.ca_pem()}, *dataplane::CaPin(pki_.ca_pem()),
                                             RealClock()->WallNow()));
}

TEST_F(OwnCertificateTest, IsDueAtTwoThirds) {
  FakeClock clock;
  const absl::Time now = clock.WallNow();
  const TestPki::Files files =
      pki_.Coordinator({}, {.not_before = now - absl::Hours(1), .not_after = now + absl::Hours(8)});
  OwnCertificate::Options options = Options(files);
  options.clock = &clock;
  ASSERT_OK_AND_ASSIGN(auto own, OwnCertificate::Create(options));
  clock.Advance(absl::Hours(5) - absl::Minutes(1));
  EXPECT_FALSE(own->due());
  clock.Advance(absl::Minutes(2));
  EXPECT_TRUE(own->due());
  ASSERT_OK(own->Renew());
  EXPECT_FALSE(own->due());
}

TEST_F(OwnCertificateTest, WhatHasExpiredWhileNobodyRanIsRenewedAtTheStart) {
  const TestPki::Files files = pki_.Coordinator({}, TestPki::Expired());
  ASSERT_OK_AND_ASSIGN(auto own, OwnCertificate::Create(Options(files)));
  EXPECT_GT(own->info().validity.not_after, RealClock()->WallNow() + absl::Hours(9));
  EXPECT_FALSE(own->due());
}

TEST_F(OwnCertificateTest, WhatIsNoCoordinatorsIsRefused) {
  EXPECT_THAT(OwnCertificate::Create(Options(pki_.Worker("lab", "w1"))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("not a coordinator's")));
  TestPki::Files files = pki_.Coordinator();
  ASSERT_OK(RealFileSystem()->WriteFileAtomically(files.key, *dataplane::GenerateKeyPem(), 0600));
  EXPECT_THAT(OwnCertificate::Create(Options(files)), StatusIs(absl::StatusCode::kInvalidArgument));
  files.certificate = dir_.Join("none.pem");
  EXPECT_THAT(OwnCertificate::Create(Options(files)), StatusIs(absl::StatusCode::kNotFound));
}

}  // namespace
}  // namespace causeway::server
