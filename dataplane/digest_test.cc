#include "dataplane/digest.h"

#include <string>

#include <gtest/gtest.h>

#include "tests/fakes/status_matchers.h"

namespace causeway::dataplane {
namespace {

TEST(DigestTest, Sha256OfKnownText) {
  EXPECT_EQ(ToHex(Sha256Of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(ToHex(Sha256Of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DigestTest, Sha256InPiecesAndAgain) {
  Sha256 sha256;
  for (int round = 0; round < 2; ++round) {
    sha256.Update(AsBytes("a"));
    sha256.Update({});
    sha256.Update(AsBytes("bc"));
    EXPECT_EQ(sha256.Finish(), Sha256Of("abc"));
  }
}

TEST(DigestTest, Xxh3IsFrozen) {
  EXPECT_EQ(Xxh3({}), 0x2d06800538d394c2);
  EXPECT_EQ(Xxh3(AsBytes("abc")), 0x78af5f94892f3950);
}

TEST(DigestTest, HexGoesThereAndBack) {
  const std::string raw("\x00\x7f\xff", 3);
  EXPECT_EQ(ToHex(raw), "007fff");
  EXPECT_THAT(FromHex("007FfF"), IsOkAndHolds(raw));
  EXPECT_THAT(FromHex("123"), StatusIs(absl::StatusCode::kInvalidArgument));
  EXPECT_THAT(FromHex("0g"), StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace causeway::dataplane
