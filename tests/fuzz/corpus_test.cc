// Replays every file that a fuzzer started from or stumbled over.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace causeway {
namespace {

TEST(FuzzCorpusTest, Replay) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CAUSEWAY_FUZZ_CORPUS)) {
    SCOPED_TRACE(entry.path().string());
    const absl::StatusOr<std::string> text = RealFileSystem()->ReadFile(entry.path().string(), 1 << 20);
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_EQ(LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text->data()), text->size()), 0);
    ++files;
  }
  EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace causeway
