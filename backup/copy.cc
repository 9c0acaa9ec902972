#include "backup/copy.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "base/status_macros.h"
#include "dataplane/digest.h"

namespace causeway::backup {
namespace {

constexpr int64_t kBlockBytes = 1 << 20;

// `to` may be null: nothing is written.
absl::StatusOr<Digest> Stream(const RandomAccessFile& from, WritableFile* to) {
  Digest digest = {.bytes = from.size_bytes()};
  dataplane::Sha256 sha256;
  std::vector<uint8_t> block;
  for (int64_t offset = 0; offset < digest.bytes; offset += static_cast<int64_t>(block.size())) {
    block.resize(std::min(kBlockBytes, digest.bytes - offset));
    RETURN_IF_ERROR(from.Read(offset, absl::MakeSpan(block)));
    sha256.Update(block);
    if (to != nullptr) RETURN_IF_ERROR(to->Append(block));
  }
  digest.sha256 = sha256.Finish();
  return digest;
}

}  // namespace

absl::StatusOr<Digest> DigestOf(FileSystem* files, const std::string& path) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> file, files->OpenForRead(path));
  return Stream(*file, nullptr);
}

absl::StatusOr<Digest> CopyFile(FileSystem* files, const std::string& from, const std::string& to, int mode) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RandomAccessFile> source, files->OpenForRead(from));
  RETURN_IF_ERROR(files->MakeDirs(to.substr(0, to.rfind('/')), 0700));
  ASSIGN_OR_RETURN(const std::unique_ptr<WritableFile> target, files->Create(to, mode));
  ASSIGN_OR_RETURN(Digest digest, Stream(*source, target.get()));
  RETURN_IF_ERROR(target->Sync());
  RETURN_IF_ERROR(target->Close());
  return digest;
}

int ModeOf(absl::string_view path) {
  return absl::EndsWith(path, ".key") || absl::EndsWith(path, "/coordinator.pem") ? 0600 : 0644;
}

}  // namespace causeway::backup
