#include "backup/checkpoint.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"
#include "dataplane/safetensors.h"

namespace causeway::backup {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;

}  // namespace

absl::StatusOr<std::string> PackedSha256(FileSystem* files, const std::string& path, const dataplane::Layout& layout) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, files->OpenForRead(path));
  const absl::StatusOr<dataplane::SafetensorsHeader> header = dataplane::ReadSafetensorsHeader(*file);
  if (absl::IsInvalidArgument(header.status())) return absl::DataLossError(header.status().message());
  RETURN_IF_ERROR(header.status());
  std::map<std::string, const dataplane::SafetensorsTensor*> by_name;
  for (const dataplane::SafetensorsTensor& tensor : header->tensors) by_name[tensor.name] = &tensor;
  if (by_name.size() != layout.tensors().size()) {
    return absl::DataLossError(
        absl::StrCat(by_name.size(), " tensors, the job's layout has ", layout.tensors().size()));
  }
  dataplane::Sha256 sha256;
  std::vector<uint8_t> block;
  for (const dataplane::TensorSpec& spec : layout.tensors()) {
    const auto found = by_name.find(spec.name);
    if (found == by_name.end() || found->second->dtype != spec.dtype || found->second->shape != spec.shape) {
      return absl::DataLossError(absl::StrCat("tensor ", spec.name, " is missing or not of the job's layout"));
    }
    const int64_t end = found->second->end;
    for (int64_t at = found->second->begin; at < end; at += static_cast<int64_t>(block.size())) {
      block.resize(std::min(kBlockBytes, end - at));
      RETURN_IF_ERROR(file->Read(at, absl::MakeSpan(block)));
      sha256.Update(block);
    }
  }
  return sha256.Finish();
}

}  // namespace causeway::backup
