#include "tests/fakes/test_pki.h"

#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"

namespace causeway {
namespace {

using dataplane::LeafOptions;
using dataplane::PeerIdentity;
using dataplane::Validity;

std::string Must(absl::StatusOr<std::string> result) {
  CAUSEWAY_CHECK(result.ok());
  return *std::move(result);
}

void WriteFile(const std::string& path, const std::string& content) {
  CAUSEWAY_CHECK(RealFileSystem()->WriteFileAtomically(path, content, 0600).ok());
}

}  // namespace

TestPki::TestPki(const std::string& dir, const std::string& name)
    : prefix_(JoinPath(dir, name)),
      ca_key_pem_(Must(dataplane::GenerateKeyPem())),
      ca_pem_(Must(dataplane::CreateCaCertificate(ca_key_pem_, absl::StrCat(name, " CA"), Now()))) {
  WriteFile(prefix_ + "-ca.pem", ca_pem_);
}

Validity TestPki::Now() {
  const absl::Time now = RealClock()->WallNow();
  return {.not_before = now - absl::Hours(1), .not_after = now + absl::Hours(1)};
}

Validity TestPki::Expired() {
  const absl::Time now = RealClock()->WallNow();
  return {.not_before = now - absl::Minutes(30), .not_after = now - absl::Minutes(1)};
}

TestPki::Files TestPki::Coordinator(const std::vector<std::string>& hosts, const Validity& validity) const {
  return Make("coordinator",
              {.identity = {.role = PeerIdentity::Role::kCoordinator}, .hosts = hosts, .validity = validity});
}

TestPki::Files TestPki::Worker(const std::string& site, const std::string& name, const Validity& validity) const {
  return Make("worker-" + name,
              {.identity = {.role = PeerIdentity::Role::kWorker, .name = name, .site = site}, .validity = validity});
}

TestPki::Files TestPki::Operator(const std::string& name, const Validity& validity) const {
  return Make("operator-" + name,
              {.identity = {.role = PeerIdentity::Role::kOperator, .name = name}, .validity = validity});
}

TestPki::Files TestPki::Make(const std::string& file, const LeafOptions& options) const {
  const std::string key = Must(dataplane::GenerateKeyPem());
  std::string certificate = Must(dataplane::SignCsr(Must(dataplane::CreateCsr(key)), ca_pem_, ca_key_pem_, options));
  if (options.identity.role == PeerIdentity::Role::kCoordinator) absl::StrAppend(&certificate, ca_pem_);
  Files files = {.certificate = absl::StrCat(prefix_, "-", file, ".pem"),
                 .key = absl::StrCat(prefix_, "-", file, ".key"),
                 .ca = prefix_ + "-ca.pem"};
  WriteFile(files.key, key);
  WriteFile(files.certificate, certificate);
  return files;
}

}  // namespace causeway
