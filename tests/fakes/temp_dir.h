#ifndef CAUSEWAY_TESTS_FAKES_TEMP_DIR_H_
#define CAUSEWAY_TESTS_FAKES_TEMP_DIR_H_

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/log.h"

namespace causeway {

// A folder of its own for a test, removed with all it holds when this is destroyed.
class TempDir {
 public:
  TempDir() : path_((std::filesystem::temp_directory_path() / "causeway-test-XXXXXX").string()) {
    CAUSEWAY_CHECK(mkdtemp(path_.data()) != nullptr);
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string Join(absl::string_view name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_TEMP_DIR_H_
