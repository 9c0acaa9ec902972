#include "worker/certificate_renewer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/completion.h"
#include "base/mutex.h"
#include "dataplane/identity_file.h"
#include "tests/fakes/fake_clock.h"
#include "tests/fakes/fake_coordinator.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::worker {
namespace {

using dataplane::PeerIdentity;

// On a fake clock; a thread works, and all waits are for something that it tells.
class CertificateRenewerTest : public ::testing::Test {
 protected:
  CertificateRenewerTest() {
    start_ = clock_.WallNow();
    EXPECT_THAT(dataplane::WriteIdentityFile(fs_, path_, *Sign(*dataplane::CreateCsr(key_), "w1"), key_), IsOk());
    first_ = Read();
    coordinator_.SignCertificates([this](const std::string& csr) { return Sign(csr, name_); });
  }

  // For ten hours from now on.
  absl::StatusOr<std::string> Sign(const std::string& csr, const std::string& name) {
    dataplane::LeafOptions leaf;
    leaf.identity = {.role = PeerIdentity::Role::kWorker, .name = name, .site = "lab"};
    leaf.validity = dataplane::ValidityFrom(clock_.WallNow(), absl::Hours(10));
    return dataplane::SignCsr(csr, pki_.ca_pem(), pki_.ca_key_pem(), leaf);
  }
  std::string Read() { return fs_->ReadFile(path_, 1 << 20).value_or(""); }

  void Start() {
    CertificateRenewer::Options options;
    options.path = path_;
    options.on_renewed = [this](const PeerIdentity& identity) {
      MutexLock lock(&mu_);
      renewed_.push_back(identity.serial);
      changed_.SignalAll();
      return absl::OkStatus();
    };
    options.client = &coordinator_;
    options.fs = fs_;
    options.clock = &clock_;
    auto renewer = CertificateRenewer::Create(options);
    ASSERT_THAT(renewer, IsOk());
    renewer_ = *std::move(renewer);
    renewer_->Start();
  }
  // Lets time pass in steps until there were so many renewals; says how much it took.
  absl::Duration PassUntil(size_t renewals, absl::Duration step, absl::Duration at_most) {
    for (absl::Duration passed; passed <= at_most; passed += step) {
      {
        MutexLock lock(&mu_);
        // Real time, a bounded wait for the thread to have looked.
        if (renewed_.size() < renewals)
          RealClock()->AwaitUntil(&mu_, &changed_, RealClock()->Now() + absl::Milliseconds(20));
        if (renewed_.size() >= renewals) return passed;
      }
      clock_.Advance(step);
    }
    return absl::InfiniteDuration();
  }
  bool AwaitRenewals(size_t renewals) {
    const absl::Time deadline = RealClock()->Now() + absl::Seconds(10);
    MutexLock lock(&mu_);
    while (renewed_.size() < renewals && RealClock()->Now() < deadline)
      RealClock()->AwaitUntil(&mu_, &changed_, deadline);
    return renewed_.size() >= renewals;
  }

  TempDir dir_;
  FileSystem* const fs_ = RealFileSystem();
  FakeClock clock_;
  FakeCoordinator coordinator_{&clock_};
  const TestPki pki_{dir_.path()};
  const std::string path_ = dir_.Join("worker.pem");
  const std::string key_ = *dataplane::GenerateKeyPem();
  std::string name_ = "w1";
  absl::Time start_;
  std::string first_;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> renewed_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<CertificateRenewer> renewer_;
};

TEST_F(CertificateRenewerTest, AtTwoThirdsOfItsLife) {
  Start();
  EXPECT_FALSE(AwaitRenewals(0) && PassUntil(1, absl::Minutes(30), absl::Hours(6)) != absl::InfiniteDuration());
  EXPECT_EQ(Read(), first_);
  // Back-dated by an hour, it has eleven: two thirds are over 6 h 20 min after it was made.
  EXPECT_LE(PassUntil(1, absl::Minutes(5), absl::Hours(1)), absl::Minutes(30));
  const std::string second = Read();
  EXPECT_NE(second, first_);
  EXPECT_THAT(dataplane::CheckKeyMatches(second, second), IsOk());
  EXPECT_THAT(dataplane::CheckKeyMatches(second, key_), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_GT(dataplane::ParseCertificate(second)->not_after, dataplane::ParseCertificate(first_)->not_after);
  // And so on.
  EXPECT_LE(PassUntil(2, absl::Minutes(30), absl::Hours(8)), absl::Hours(7));
}

TEST_F(CertificateRenewerTest, WhenTold) {
  Start();
  renewer_->RenewNow();
  renewer_->RenewNow();
  ASSERT_TRUE(AwaitRenewals(1));
  renewer_->RenewNow();  // Still the same request.
  clock_.Advance(absl::Seconds(6));
  renewer_->RenewNow();
  ASSERT_TRUE(AwaitRenewals(2));
  renewer_->Stop();
  MutexLock lock(&mu_);
  EXPECT_EQ(renewed_.size(), 2u);
  EXPECT_EQ(dataplane::ParseCertificate(Read())->serial, renewed_.back());
}

TEST_F(CertificateRenewerTest, AFailureIsTriedAgainAndLeavesTheOldOne) {
  coordinator_.FailCalls("RenewCertificate", 3, absl::UnavailableError("nobody there"));
  Start();
  renewer_->RenewNow();
  EXPECT_NE(PassUntil(1, absl::Seconds(1), absl::Minutes(1)), absl::InfiniteDuration());
  EXPECT_NE(Read(), first_);
}

TEST_F(CertificateRenewerTest, ACertificateOfSomebodyElseIsNotTaken) {
  name_ = "w2";
  Start();
  renewer_->RenewNow();
  EXPECT_EQ(PassUntil(1, absl::Seconds(1), absl::Seconds(10)), absl::InfiniteDuration());
  EXPECT_EQ(Read(), first_);
}

TEST_F(CertificateRenewerTest, AnswersOverAForeignKeyAreNotTaken) {
  coordinator_.SignCertificates(
      [this](const std::string&) { return Sign(*dataplane::CreateCsr(*dataplane::GenerateKeyPem()), "w1"); });
  Start();
  renewer_->RenewNow();
  EXPECT_EQ(PassUntil(1, absl::Seconds(1), absl::Seconds(10)), absl::InfiniteDuration());
  EXPECT_EQ(Read(), first_);
}

}  // namespace
}  // namespace causeway::worker
