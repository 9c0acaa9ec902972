#ifndef CAUSEWAY_TESTS_FAKES_TEST_PKI_H_
#define CAUSEWAY_TESTS_FAKES_TEST_PKI_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "dataplane/link.h"
#include "dataplane/pki.h"

namespace causeway {

// A certificate authority for a test, its files below one folder. Aborts when OpenSSL or the disk fails.
class TestPki {
 public:
  struct Files {
    std::string certificate;
    std::string key;
    std::string ca;
  };

  // Two of different `name` in one folder do not meet.
  explicit TestPki(const std::string& dir, const std::string& name = "test");

  const std::string& ca_pem() const { return ca_pem_; }
  const std::string& ca_key_pem() const { return ca_key_pem_; }

  // An hour around now.
  static dataplane::Validity Now();
  // Over since a minute.
  static dataplane::Validity Expired();

  Files Coordinator(const std::vector<std::string>& hosts = {"localhost", "127.0.0.1"},
                    const dataplane::Validity& validity = Now()) const;
  Files Worker(const std::string& site, const std::string& name, const dataplane::Validity& validity = Now()) const;
  Files Operator(const std::string& name, const dataplane::Validity& validity = Now()) const;

 private:
  Files Make(const std::string& file, const dataplane::LeafOptions& options) const;

  const std::string prefix_;
  std::string ca_key_pem_;
  std::string ca_pem_;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_TEST_PKI_H_
