// Files whose names say what they are, as processes find them when they start: contributions in the spool, checkpoints, chunks. Input: pieces, each
// a byte for where, then a name. What is no such name is let be; what counts as one can be asked for, and removed.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataplane/digest.h"
#include "dataplane/layout.h"
#include "server/parameter_store.h"
#include "server/spool.h"
#include "tests/fakes/fault_file.h"
#include "tests/fuzz/fuzz_log.h"
#include "tests/fuzz/fuzz_require.h"
#include "worker/chunk_cache.h"

namespace {

using namespace causeway;  // NOLINT

bool IsName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == name.npos && name.find('\0') == name.npos;
}

void CheckSpool(FaultDisk* disk) {
  const auto spool = server::Spool::Create({.fs = disk, .dir = "/spool", .max_bytes = 1 << 20});
  Require(spool.ok());
  int64_t used_bytes = 0;
  for (const server::Spool::Entry& entry : (*spool)->List()) {
    Require(entry.total_bytes > 0 && disk->Exists(entry.path));
    used_bytes += entry.total_bytes;
  }
  Require((*spool)->used_bytes() == used_bytes);
  for (const server::Spool::Entry& entry : (*spool)->List()) {
    // Those from before that are still wanted are taken up, or their place.
    (*spool)->Open(entry.key, entry.total_bytes, entry.sha256).status().IgnoreError();
    Require((*spool)->Remove(entry.key).ok() && !disk->Exists(entry.path));
  }
  Require((*spool)->used_bytes() == 0);
  const auto upload = (*spool)->Open({.job = "job", .worker = "w"}, 10, std::string(dataplane::kSha256Bytes, 'a'));
  Require(upload.ok());
}

void CheckStore(FaultDisk* disk) {
  const auto layout =
      *dataplane::Layout::Create({{"w", dataplane::DataType::kFloat32, {1}, dataplane::TensorKind::kParameter, 1}});
  const auto store = server::ParameterStore::Create({.fs = disk, .dir = "/jobs/job", .layout = layout});
  Require(store.ok());
  const auto versions = (*store)->List();
  Require(versions.ok());
  Version newest(0);
  for (const Version& version : *versions) {
    Require(version.value() >= 0 && version >= newest && disk->Exists((*store)->PathOf(version)));
    Require(absl::IsDataLoss((*store)->Load(version).status()));  // It is empty.
    newest = version;
  }
  const std::vector<uint8_t> model(4);
  const auto checkpoint = (*store)->WriteCheckpoint(newest, model, {});
  Require(checkpoint.ok());
  (*store)->Publish(newest, std::make_shared<const std::vector<uint8_t>>(model), checkpoint->sha256);
  Require((*store)->Prune(1, 1, {}).ok() && (*store)->List()->size() == 1);
}

void CheckCache(FaultDisk* disk, const std::vector<std::string>& names) {
  const auto cache = worker::ChunkCache::Open({.fs = disk, .dir = "/cache", .limit_bytes = 1 << 20});
  Require(cache.ok());
  std::vector<worker::ChunkRef> chunks;
  for (const std::string& name : names) {
    const auto sha256 = dataplane::FromHex(absl::string_view(name).substr(0, 64));
    if (sha256.ok() && sha256->size() == dataplane::kSha256Bytes) chunks.push_back({*sha256, 5});
  }
  const auto pins = (*cache)->Pin(chunks);
  Require(pins.ok());
  const auto check = (*cache)->FindMissing(chunks);
  Require(check.ok() && check->missing.size() == chunks.size());  // None has the content that its name says.
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  KeepQuiet();
  FaultDisk disk;
  for (const char* folder : {"/spool/job", "/jobs/job", "/cache/ab"}) Require(disk.MakeDirs(folder, 0755).ok());
  std::vector<std::string> cached;
  FuzzInput input(absl::string_view(reinterpret_cast<const char*>(data), size));
  while (!input.empty()) {
    const char* const folders[] = {"/spool/job", "/jobs/job", "/cache/ab", "/spool", "/cache"};
    const unsigned where = input.Byte() % 5;
    const std::string name(input.Piece());
    const std::string path = absl::StrCat(folders[where], "/", name);
    if (!IsName(name) || disk.Exists(path)) continue;
    if (where == 4 && dataplane::FromHex(name).ok()) continue;  // Such a name is a folder's.
    Require(disk.WriteFileAtomically(path, where == 2 ? "chunk" : "", 0644).ok());
    if (where == 2) cached.push_back(name);
  }
  CheckSpool(&disk);
  CheckStore(&disk);
  CheckCache(&disk, cached);
  return 0;
}
