#include "dataplane/pki.h"

#include <openssl/pem.h>
#include <openssl/x509.h>

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/ascii.h"
#include "base/clock.h"
#include "dataplane/digest.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

using ::testing::HasSubstr;

constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kDenied = absl::StatusCode::kPermissionDenied;

class PkiTest : public ::testing::Test {
 protected:
  struct Ca {
    std::string key;
    std::string pem;
  };
  static Ca MakeCa() {
    Ca ca;
    ca.key = *GenerateKeyPem();
    ca.pem = *CreateCaCertificate(ca.key, "Test CA", {Day(0), Day(100)});
    return ca;
  }
  static absl::Time Day(int n) { return absl::FromUnixSeconds(1'790'000'000) + n * absl::Hours(24); }
  static PeerIdentity Coordinator() { return {.role = PeerIdentity::Role::kCoordinator}; }
  static PeerIdentity Worker() { return {.role = PeerIdentity::Role::kWorker, .name = "a1", .site = "lab"}; }
  static PeerIdentity Operator() { return {.role = PeerIdentity::Role::kOperator, .name = "ann"}; }

  absl::StatusOr<std::string> Sign(const PeerIdentity& identity, std::vector<std::string> hosts = {},
                                   Validity validity = {Day(1), Day(10)}) const {
    return SignCsr(csr_, ca_.pem, ca_.key, {.identity = identity, .hosts = std::move(hosts), .validity = validity});
  }

  const Ca ca_ = MakeCa();
  const std::string key_ = *GenerateKeyPem();
  const std::string csr_ = *CreateCsr(key_);
};

TEST_F(PkiTest, CertificateCarriesTheIdentity) {
  for (const PeerIdentity& identity : {Worker(), Operator(), Coordinator()}) {
    absl::StatusOr<std::string> pem = Sign(identity);
    ASSERT_THAT(pem, IsOk());
    absl::StatusOr<PeerIdentity> parsed = ParseCertificate(*pem);
    ASSERT_THAT(parsed, IsOk());
    EXPECT_EQ(IdentityUri(*parsed), IdentityUri(identity));
    EXPECT_EQ(parsed->not_after, Day(10));
    EXPECT_FALSE(parsed->serial.empty());
    EXPECT_NE(parsed->serial, ParseCertificate(*Sign(identity))->serial);
    EXPECT_THAT(CheckKeyMatches(*pem, key_), IsOk());
    EXPECT_THAT(CheckKeyMatches(*pem, ca_.key), StatusIs(kInvalid));
  }
}

TEST_F(PkiTest, UrisAreStrict) {
  EXPECT_EQ(IdentityUri(Worker()), "causeway://worker/lab/a1");
  EXPECT_EQ(IdentityUri(Operator()), "causeway://operator/ann");
  EXPECT_EQ(IdentityUri(Coordinator()), "causeway://coordinator");
  absl::StatusOr<PeerIdentity> worker = ParseIdentityUri("causeway://worker/lab/a1");
  ASSERT_THAT(worker, IsOk());
  EXPECT_EQ(worker->role, PeerIdentity::Role::kWorker);
  EXPECT_EQ(worker->site, "lab");
  EXPECT_EQ(worker->name, "a1");
  for (absl::string_view bad :
       {"", "causeway://", "causeway://worker/lab", "causeway://worker/lab/a1/x", "causeway://worker/Lab/a1",
        "causeway://operator/", "causeway://operator/a/b", "causeway://coordinator/x", "https://coordinator",
        "causeway://root/x", "causeway://operator/..", "causeway://worker//a1"}) {
    EXPECT_THAT(ParseIdentityUri(bad), StatusIs(kInvalid)) << bad;
  }
}

TEST_F(PkiTest, BadIdentitiesAreNotSigned) {
  PeerIdentity smuggler = Worker();
  smuggler.name = "a1,URI:causeway://coordinator";
  EXPECT_THAT(Sign(smuggler), StatusIs(kInvalid));
  EXPECT_THAT(Sign(PeerIdentity()), StatusIs(kInvalid));
  EXPECT_THAT(Sign(Coordinator(), {"a.example,URI:causeway://operator/x"}), StatusIs(kInvalid));
  EXPECT_THAT(Sign(Coordinator(), {""}), StatusIs(kInvalid));
  EXPECT_THAT(Sign(Worker(), {"a.example"}), StatusIs(kInvalid));
  EXPECT_THAT(Sign(Coordinator(), {"a.example", "10.0.0.1", "::1"}), IsOk());
}

TEST_F(PkiTest, BadRequestsAreNotSigned) {
  const LeafOptions options = {.identity = Worker(), .validity = {Day(1), Day(2)}};
  EXPECT_THAT(SignCsr("nonsense", ca_.pem, ca_.key, options), StatusIs(kInvalid));
  EXPECT_THAT(SignCsr(std::string(1 << 20, 'a'), ca_.pem, ca_.key, options), StatusIs(kInvalid));
  EXPECT_THAT(SignCsr(csr_, ca_.pem, key_, options), StatusIs(kInvalid, HasSubstr("the CA")));
  EXPECT_THAT(SignCsr(csr_, ca_.pem, ca_.key, {.identity = Worker(), .validity = {Day(2), Day(1)}}),
              StatusIs(kInvalid));

  // Somebody else's public key, signed with the own one.
  auto load = [](const std::string& pem) {
    std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())),
                                                      BIO_free_all);
    return PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr);
  };
  EVP_PKEY* own = load(key_);
  EVP_PKEY* other = load(ca_.key);
  X509_REQ* request = X509_REQ_new();
  X509_REQ_set_pubkey(request, other);
  X509_REQ_sign(request, own, EVP_sha256());
  std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new(BIO_s_mem()), BIO_free_all);
  PEM_write_bio_X509_REQ(bio.get(), request);
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  EXPECT_THAT(SignCsr(std::string(data, size), ca_.pem, ca_.key, options),
              StatusIs(kInvalid, HasSubstr("not signed by its key")));
  EXPECT_THAT(CsrKeySha256(std::string(data, size)), StatusIs(kInvalid, HasSubstr("not signed by its key")));
  X509_REQ_free(request);
  EVP_PKEY_free(own);

  // Another kind of key.
  EVP_PKEY* p384 = EVP_EC_gen("P-384");
  request = X509_REQ_new();
  X509_REQ_set_pubkey(request, p384);
  X509_REQ_sign(request, p384, EVP_sha256());
  std::unique_ptr<BIO, decltype(&BIO_free_all)> bio2(BIO_new(BIO_s_mem()), BIO_free_all);
  PEM_write_bio_X509_REQ(bio2.get(), request);
  const long size2 = BIO_get_mem_data(bio2.get(), &data);
  EXPECT_THAT(SignCsr(std::string(data, size2), ca_.pem, ca_.key, options), StatusIs(kInvalid, HasSubstr("P-256")));
  X509_REQ_free(request);
  EVP_PKEY_free(p384);
  EVP_PKEY_free(other);
}

TEST_F(PkiTest, RequestsAreToldApartByTheirKey) {
  const std::string again = *CreateCsr(key_);
  ASSERT_NE(again, csr_);  // The signature is random.
  ASSERT_THAT(CsrKeySha256(csr_), IsOk());
  EXPECT_EQ(CsrKeySha256(csr_)->size(), kSha256Bytes);
  EXPECT_EQ(*CsrKeySha256(again), *CsrKeySha256(csr_));
  EXPECT_NE(*CsrKeySha256(*CreateCsr(ca_.key)), *CsrKeySha256(csr_));
  EXPECT_THAT(CsrKeySha256("nonsense"), StatusIs(kInvalid));
}

TEST_F(PkiTest, CertificatesWithoutIdentityAreRefused) {
  EXPECT_THAT(ParseCertificate(ca_.pem), StatusIs(kInvalid, HasSubstr("this one 0")));
  EXPECT_THAT(ParseCertificate("nonsense"), StatusIs(kInvalid));
  EXPECT_THAT(ParseCertificate(key_), StatusIs(kInvalid));
}

TEST_F(PkiTest, PinIsTheDigestOfTheDerForm) {
  absl::StatusOr<std::string> pin = CaPin(ca_.pem);
  ASSERT_THAT(pin, IsOk());
  std::unique_ptr<BIO, decltype(&BIO_free_all)> bio(BIO_new_mem_buf(ca_.pem.data(), static_cast<int>(ca_.pem.size())),
                                                    BIO_free_all);
  char* name = nullptr;
  char* header = nullptr;
  unsigned char* der = nullptr;
  long size = 0;
  ASSERT_EQ(PEM_read_bio(bio.get(), &name, &header, &der, &size), 1);
  EXPECT_EQ(*pin, "sha256:" + ToHex(Sha256Of(absl::MakeConstSpan(der, size))));
  OPENSSL_free(name);
  OPENSSL_free(header);
  OPENSSL_free(der);
  EXPECT_NE(*pin, *CaPin(MakeCa().pem));
  EXPECT_THAT(CaPin("nonsense"), StatusIs(kInvalid));
}

TEST_F(PkiTest, ChainIsCheckedAgainstThePin) {
  const std::string leaf = *Sign(Coordinator());
  const std::string pin = *CaPin(ca_.pem);
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, pin, Day(5)), IsOkAndHolds(ca_.pem));
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, "sha256:" + absl::AsciiStrToUpper(pin.substr(7)), Day(5)), IsOk());
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, "sha256:12", Day(5)), StatusIs(kInvalid));
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, pin.substr(7), Day(5)), StatusIs(kInvalid));
  const Ca foreign = MakeCa();
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, *CaPin(foreign.pem), Day(5)), StatusIs(kDenied, HasSubstr(pin)));
  EXPECT_THAT(VerifyChainAgainstPin({leaf}, pin, Day(5)), StatusIs(kDenied));
  EXPECT_THAT(VerifyChainAgainstPin({}, pin, Day(5)), StatusIs(kDenied));
  // The right CA, shown by somebody whom it has not signed.
  const std::string impostor =
      *SignCsr(csr_, foreign.pem, foreign.key, {.identity = Coordinator(), .validity = {Day(1), Day(10)}});
  EXPECT_THAT(VerifyChainAgainstPin({impostor, ca_.pem}, pin, Day(5)), StatusIs(kDenied, HasSubstr("does not verify")));
  // Signed, but a worker.
  EXPECT_THAT(VerifyChainAgainstPin({*Sign(Worker()), ca_.pem}, pin, Day(5)), StatusIs(kDenied));
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, pin, Day(11)), StatusIs(kDenied, HasSubstr("expired")));
  EXPECT_THAT(VerifyChainAgainstPin({leaf, ca_.pem}, pin, Day(0)), StatusIs(kDenied, HasSubstr("not yet valid")));
}

TEST_F(PkiTest, NobodyThereIsUnavailable) {
  EXPECT_THAT(FetchServerChain("127.0.0.1", 1, RealClock()->Now() + absl::Seconds(5)),
              StatusIs(absl::StatusCode::kUnavailable));
}

}  // namespace
}  // namespace causeway::dataplane
