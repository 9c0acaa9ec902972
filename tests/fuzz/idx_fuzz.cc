// A dataset's idx files, plain or gzip. Input: the images' length in two bytes, the images, then the labels.
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <memory>
#include <string>

#include "base/file.h"
#include "server/data_owner.h"
#include "tests/fakes/temp_dir.h"
#include "tests/fuzz/fuzz_require.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace causeway;  // NOLINT
  const TempDir dir;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  const absl::string_view images = input.Piece();
  std::ofstream(dir.Join("images"), std::ios::binary) << std::string(images);
  std::ofstream(dir.Join("labels"), std::ios::binary) << std::string(input.Rest());
  const std::unique_ptr<server::DataOwner> owner =
      *server::DataOwner::Create({.fs = RealFileSystem(), .data_root = dir.path(), .chunk_dir = dir.Join("chunks")});
  const server::DataOwner::Source source = {.images = "images", .labels = "labels", .seed = 1};
  const absl::StatusOr<server::DataOwner::Dataset> built = owner->Build(source);
  if (!built.ok()) {
    Require(absl::IsInvalidArgument(built.status()) || absl::IsDataLoss(built.status()));
    return 0;
  }
  Require(built->info.samples() > 0 && built->info.record_bytes() > 0 && built->max_label <= 255);
  Require(owner->Open(built->info, source).ok());
  return 0;
}
