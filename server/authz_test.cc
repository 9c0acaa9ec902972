#include "server/authz.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "dataplane/digest.h"
#include "proto/membership.pb.h"
#include "proto/operator.pb.h"
#include "tests/fakes/status_matchers.h"

namespace causeway::server {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

using Role = dataplane::PeerIdentity::Role;

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

dataplane::PeerIdentity Peer(Role role) {
  dataplane::PeerIdentity peer;
  peer.role = role;
  if (role != Role::kAnonymous) peer.not_after = kNow + absl::Hours(1);
  return peer;
}

// Of every service in proto/, read from the sources: a file without messages has no descriptor that a program could hold on to, and a new
// file is not forgotten.
std::vector<std::string> OurMethods() {
  std::vector<std::string> methods;
  for (const auto& entry : std::filesystem::directory_iterator(JoinPath(CAUSEWAY_SOURCE_DIR, "proto"))) {
    if (entry.path().extension() != ".proto") continue;
    std::ifstream in(entry.path());
    const std::regex declaration("^\\s*(package|service|rpc)\\s+([\\w.]+)");
    std::string package;
    std::string service;
    for (std::string line; std::getline(in, line);) {
      std::smatch match;
      if (!std::regex_search(line, match, declaration)) continue;
      if (match[1] == "package") package = match[2];
      if (match[1] == "service") service = match[2];
      if (match[1] == "rpc") methods.push_back(absl::StrCat("/", package, ".", service, "/", match[2].str()));
    }
  }
  return methods;
}

// Written out once more, by hand, so that a slip in the table is seen.
std::set<Role> Expected(const std::string& method) {
  if (method == "/causeway.v1.Membership/Join") return {Role::kAnonymous};
  if (method.starts_with("/causeway.v1.Membership/") || method.starts_with("/causeway.v1.Data/"))
    return {Role::kWorker};
  if (method == "/causeway.v1.Parameters/Push") return {Role::kWorker};
  if (method == "/causeway.v1.Parameters/Pull") return {Role::kWorker, Role::kOperator};
  if (method.starts_with("/causeway.v1.Operator/")) return {Role::kOperator};
  if (method.starts_with("/grpc.health.v1.Health/")) return {Role::kWorker, Role::kOperator};
  if (method == "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo") return {Role::kOperator};
  return {};
}

TEST(AuthzTest, EveryMethodOfEveryServiceHasOneRule) {
  std::map<std::string, int> rules;
  for (const RpcRule& rule : RpcRules()) ++rules[std::string(rule.method)];
  const std::vector<std::string> methods = OurMethods();
  for (const auto* file : {v1::RegisterRequest::descriptor()->file(), v1::SubmitJobRequest::descriptor()->file()}) {
    const google::protobuf::ServiceDescriptor* service = file->service(0);
    for (int i = 0; i < service->method_count(); ++i) {
      EXPECT_THAT(methods, testing::Contains(absl::StrCat("/", service->full_name(), "/", service->method(i)->name())));
    }
  }
  EXPECT_THAT(methods, testing::IsSupersetOf({"/causeway.v1.Data/Fetch", "/causeway.v1.Parameters/Push"}));
  for (const std::string& method : methods) EXPECT_EQ(rules[method], 1) << method;
  std::set<std::string> known(methods.begin(), methods.end());
  for (const auto& [method, count] : rules) {
    EXPECT_EQ(count, 1) << method;
    if (method.starts_with("/causeway.")) {
      EXPECT_TRUE(known.contains(method)) << method << " is in no service";
    }
  }
}

TEST(AuthzTest, WholeMatrix) {
  std::vector<std::string> methods = OurMethods();
  for (const RpcRule& rule : RpcRules()) methods.emplace_back(rule.method);
  for (const std::string& method : methods) {
    for (Role role : {Role::kAnonymous, Role::kWorker, Role::kOperator, Role::kCoordinator}) {
      const absl::Status status = Authorize(Peer(role), method, kNow);
      if (Expected(method).contains(role)) {
        EXPECT_OK(status) << method << " as " << static_cast<int>(role);
      } else {
        EXPECT_THAT(status, StatusIs(role == Role::kAnonymous ? absl::StatusCode::kUnauthenticated
                                                              : absl::StatusCode::kPermissionDenied))
            << method << " as " << static_cast<int>(role);
      }
    }
  }
}

TEST(AuthzTest, AnUnknownMethodIsForNobody) {
  for (const char* unknown :
       {"/causeway.v1.Operator/DropAllJobs", "/causeway.v2.Membership/Join", "/causeway.v1.Membership/Join/", "Join",
        "", "/causeway.v1.membership/join", "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"}) {
    for (Role role : {Role::kAnonymous, Role::kWorker, Role::kOperator, Role::kCoordinator}) {
      EXPECT_FALSE(Authorize(Peer(role), unknown, kNow).ok()) << unknown << " as " << static_cast<int>(role);
    }
  }
}

TEST(AuthzTest, ACertificateThatExpiredSinceTheConnectionWasMade) {
  for (Role role : {Role::kWorker, Role::kOperator}) {
    dataplane::PeerIdentity peer = Peer(role);
    const char* method = role == Role::kWorker ? "/causeway.v1.Membership/Heartbeat" : "/causeway.v1.Operator/ListJobs";
    EXPECT_OK(Authorize(peer, method, peer.not_after - absl::Seconds(1)));
    EXPECT_THAT(Authorize(peer, method, peer.not_after),
                StatusIs(absl::StatusCode::kUnauthenticated, HasSubstr("expired")));
  }
}

TEST(JoinTokenTest, FormAndRoundTrip) {
  const JoinToken token = NewJoinToken();
  EXPECT_EQ(token.id.size(), 12u);
  EXPECT_EQ(token.id.find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(token.secret.size(), 43u);
  EXPECT_EQ(token.secret.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"),
            std::string::npos);
  EXPECT_EQ(token.ToString(), absl::StrCat("cw1.", token.id, ".", token.secret));
  ASSERT_OK_AND_ASSIGN(const JoinToken parsed, ParseJoinToken(token.ToString()));
  EXPECT_EQ(parsed.id, token.id);
  EXPECT_EQ(parsed.secret, token.secret);
}

TEST(JoinTokenTest, TokensDiffer) {
  std::set<std::string> ids;
  std::set<std::string> secrets;
  for (int i = 0; i < 100; ++i) {
    const JoinToken token = NewJoinToken();
    ids.insert(token.id);
    secrets.insert(token.secret);
  }
  EXPECT_EQ(ids.size(), 100u);
  EXPECT_EQ(secrets.size(), 100u);
}

TEST(JoinTokenTest, NoErrorShowsTheSecret) {
  const JoinToken token = NewJoinToken();
  for (const std::string& bad :
       {token.secret, absl::StrCat("cw2.", token.id, ".", token.secret), absl::StrCat(token.ToString(), "x"),
        absl::StrCat("cw1.", token.id, token.secret), absl::StrCat("cw1.x", token.id, ".", token.secret),
        absl::StrCat(token.ToString(), ".x"), std::string()}) {
    EXPECT_THAT(ParseJoinToken(bad), StatusIs(absl::StatusCode::kInvalidArgument, Not(HasSubstr(token.secret)))) << bad;
  }
}

TEST(JoinTokenTest, Hash) {
  const std::string hash = HashTokenSecret("abc");
  EXPECT_EQ(dataplane::ToHex(hash), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_TRUE(SameHash(hash, HashTokenSecret("abc")));
  EXPECT_FALSE(SameHash(hash, HashTokenSecret("abd")));
  EXPECT_FALSE(SameHash(hash, hash.substr(0, 31)));
  EXPECT_FALSE(SameHash("", hash));
  for (size_t i = 0; i < hash.size(); ++i) {
    std::string other = hash;
    other[i] ^= 1;
    EXPECT_FALSE(SameHash(hash, other)) << i;
  }
}

}  // namespace
}  // namespace causeway::server
