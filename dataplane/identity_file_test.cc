#include "dataplane/identity_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "dataplane/pki.h"
#include "tests/fakes/status_matchers.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fakes/test_pki.h"

namespace causeway::dataplane {
namespace {

class IdentityFileTest : public ::testing::Test {
 protected:
  std::string Read(const std::string& path) { return fs_->ReadFile(path, 1 << 20).value_or(""); }
  void ExpectMerged(const std::string& certificates, const std::string& key) {
    EXPECT_EQ(Read(files_.certificate), certificates + key);
    EXPECT_FALSE(fs_->Exists(files_.key));
    EXPECT_EQ(std::filesystem::status(files_.certificate).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    EXPECT_THAT(CheckKeyMatches(Read(files_.certificate), Read(files_.certificate)), IsOk());
  }

  TempDir dir_;
  FileSystem* const fs_ = RealFileSystem();
  const TestPki pki_{dir_.path()};
  const TestPki::Files files_ = pki_.Coordinator();
};

TEST_F(IdentityFileTest, AKeyMovesInAndItsFileGoes) {
  const std::string certificates = Read(files_.certificate);
  const std::string key = Read(files_.key);
  EXPECT_FALSE(HoldsKey(certificates));
  EXPECT_TRUE(HoldsKey(key));
  ASSERT_THAT(MergeIdentityFile(fs_, files_.certificate, files_.key), IsOk());
  ExpectMerged(certificates, key);
  ASSERT_THAT(MergeIdentityFile(fs_, files_.certificate, files_.key), IsOk());
  ExpectMerged(certificates, key);
}

TEST_F(IdentityFileTest, ATryThatWasBrokenOffIsRepeated) {
  const std::string certificates = Read(files_.certificate);
  const std::string key = Read(files_.key);
  ASSERT_THAT(WriteIdentityFile(fs_, files_.certificate, certificates, key), IsOk());  // And then the power went.
  ASSERT_THAT(MergeIdentityFile(fs_, files_.certificate, files_.key), IsOk());
  ExpectMerged(certificates, key);
}

TEST_F(IdentityFileTest, AForeignKeyIsRefusedAndNothingChanges) {
  const std::string certificates = Read(files_.certificate);
  ASSERT_THAT(fs_->WriteFileAtomically(files_.key, *GenerateKeyPem(), 0600), IsOk());
  EXPECT_THAT(MergeIdentityFile(fs_, files_.certificate, files_.key), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_EQ(Read(files_.certificate), certificates);
  EXPECT_TRUE(fs_->Exists(files_.key));
}

TEST_F(IdentityFileTest, RenewalAtTwoThirdsOfALife) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);
  const Validity year = ValidityFrom(now, absl::Hours(24 * 365));
  EXPECT_EQ(year.not_before, now - absl::Hours(1));
  EXPECT_EQ(year.not_after, now + absl::Hours(24 * 365));
  EXPECT_EQ(RenewalTime(year), year.not_before + absl::Hours(24 * 365 + 1) * 2 / 3);
  // However short, it is renewed after it was made and before it ends.
  const Validity minute = ValidityFrom(now, absl::Minutes(1));
  EXPECT_EQ(RenewalTime(minute), now + absl::Seconds(38));
}

}  // namespace
}  // namespace causeway::dataplane
