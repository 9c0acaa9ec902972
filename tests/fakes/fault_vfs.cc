#include "tests/fakes/fault_vfs.h"

#include <sqlite3.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace causeway {
namespace {

int CodeOf(const absl::Status& status, int otherwise) {
  if (status.ok()) return SQLITE_OK;
  return absl::IsResourceExhausted(status) ? SQLITE_FULL : otherwise;
}

}  // namespace

struct FaultVfs::File {
  sqlite3_file base;  // First: SQLite knows this alone.
  std::unique_ptr<FaultDisk::Handle> handle;
  std::vector<std::vector<uint8_t>> shared;  // The regions of its shared memory, which no other connection shares.

  static File* Of(sqlite3_file* file) { return reinterpret_cast<File*>(file); }

  static int Close(sqlite3_file* file) {
    Of(file)->~File();
    return SQLITE_OK;
  }
  static int Read(sqlite3_file* file, void* out, int size, sqlite3_int64 offset) {
    auto* const bytes = static_cast<uint8_t*>(out);
    const absl::StatusOr<int64_t> got = Of(file)->handle->ReadAt(offset, absl::MakeSpan(bytes, size));
    if (!got.ok()) return SQLITE_IOERR_READ;
    if (*got == size) return SQLITE_OK;
    std::fill(bytes + *got, bytes + size, uint8_t{0});
    return SQLITE_IOERR_SHORT_READ;
  }
  static int Write(sqlite3_file* file, const void* data, int size, sqlite3_int64 offset) {
    return CodeOf(Of(file)->handle->WriteAt(offset, absl::MakeConstSpan(static_cast<const uint8_t*>(data), size)),
                  SQLITE_IOERR_WRITE);
  }
  static int Truncate(sqlite3_file* file, sqlite3_int64 size) {
    return CodeOf(Of(file)->handle->Truncate(size), SQLITE_IOERR_TRUNCATE);
  }
  static int Sync(sqlite3_file* file, int) { return CodeOf(Of(file)->handle->Sync(), SQLITE_IOERR_FSYNC); }
  static int FileSize(sqlite3_file* file, sqlite3_int64* size) {
    *size = Of(file)->handle->Size();
    return SQLITE_OK;
  }
  static int Lock(sqlite3_file*, int) { return SQLITE_OK; }
  static int CheckReservedLock(sqlite3_file*, int* reserved) {
    *reserved = 0;
    return SQLITE_OK;
  }
  static int FileControl(sqlite3_file*, int, void*) { return SQLITE_NOTFOUND; }
  static int SectorSize(sqlite3_file*) { return 4096; }
  static int Characteristics(sqlite3_file*) { return SQLITE_IOCAP_POWERSAFE_OVERWRITE; }
  // A template, so that SQLite's type of `out` need not be written here.
  template <typename Out>
  static int ShmMap(sqlite3_file* file, int region, int size, int extend, Out out) {
    auto& shared = Of(file)->shared;
    *out = nullptr;
    if (static_cast<size_t>(region) >= shared.size()) {
      if (!extend) return SQLITE_OK;
      shared.resize(region + 1);
    }
    shared[region].resize(size);
    *out = shared[region].data();
    return SQLITE_OK;
  }
  static int ShmLock(sqlite3_file*, int, int, int) { return SQLITE_OK; }
  static void ShmBarrier(sqlite3_file*) {}
  static int ShmUnmap(sqlite3_file* file, int) {
    Of(file)->shared.clear();
    return SQLITE_OK;
  }

  static FaultVfs* VfsOf(sqlite3_vfs* vfs) { return static_cast<FaultVfs*>(vfs->pAppData); }

  static int Open(sqlite3_vfs* vfs, const char* path, sqlite3_file* out, int flags, int* out_flags) {
    static constexpr sqlite3_io_methods kMethods = {
        2,
        Close,
        Read,
        Write,
        Truncate,
        Sync,
        FileSize,
        Lock,
        Lock,
        CheckReservedLock,
        FileControl,
        SectorSize,
        Characteristics,
        ShmMap,
        ShmLock,
        ShmBarrier,
        ShmUnmap,
        nullptr,
        nullptr,
    };
    File* const file = new (out) File{};
    FaultDisk* const disk = path == nullptr ? nullptr : VfsOf(vfs)->DiskOf(path);
    absl::StatusOr<std::unique_ptr<FaultDisk::Handle>> handle = absl::NotFoundError("on no disk");
    if (disk != nullptr) handle = disk->OpenHandle(path, (flags & SQLITE_OPEN_CREATE) != 0);
    if (!handle.ok()) {
      file->~File();
      out->pMethods = nullptr;
      return CodeOf(handle.status(), SQLITE_CANTOPEN);
    }
    file->handle = *std::move(handle);
    file->base.pMethods = &kMethods;
    if (out_flags != nullptr) *out_flags = flags;
    return SQLITE_OK;
  }
  static int Delete(sqlite3_vfs* vfs, const char* path, int sync_folder) {
    FaultDisk* const disk = VfsOf(vfs)->DiskOf(path);
    if (disk == nullptr) return SQLITE_IOERR_DELETE;
    const absl::Status removed = disk->Remove(path);
    if (absl::IsNotFound(removed)) return SQLITE_IOERR_DELETE_NOENT;
    if (!removed.ok()) return SQLITE_IOERR_DELETE;
    return sync_folder ? CodeOf(disk->SyncFolderOf(path), SQLITE_IOERR_DIR_FSYNC) : SQLITE_OK;
  }
  static int Access(sqlite3_vfs* vfs, const char* path, int flags, int* result) {
    FaultDisk* const disk = VfsOf(vfs)->DiskOf(path);
    *result = disk != nullptr && disk->Exists(path);
    // As SQLite's own: an empty journal counts as none.
    if (*result && flags == SQLITE_ACCESS_EXISTS) *result = disk->FileSize(path).value_or(0) > 0;
    return SQLITE_OK;
  }
  static int FullPathname(sqlite3_vfs*, const char* path, int size, char* out) {
    sqlite3_snprintf(size, out, "%s", path);
    return SQLITE_OK;
  }
  static int Randomness(sqlite3_vfs* vfs, int size, char* out) {
    for (int i = 0; i < size; ++i) out[i] = static_cast<char>(VfsOf(vfs)->random_());
    return size;
  }
  static int Sleep(sqlite3_vfs*, int microseconds) { return microseconds; }
  static int CurrentTime(sqlite3_vfs*, double* days) {
    *days = 2460000.5;
    return SQLITE_OK;
  }
  static int GetLastError(sqlite3_vfs*, int, char*) { return 0; }
};

FaultVfs::FaultVfs() : vfs_(std::make_unique<sqlite3_vfs>()), random_(1) {
  *vfs_ = {};
  vfs_->iVersion = 1;
  vfs_->szOsFile = sizeof(File);
  vfs_->mxPathname = 1024;
  vfs_->zName = "causeway-fault";
  vfs_->pAppData = this;
  vfs_->xOpen = File::Open;
  vfs_->xDelete = File::Delete;
  vfs_->xAccess = File::Access;
  vfs_->xFullPathname = File::FullPathname;
  vfs_->xRandomness = File::Randomness;
  vfs_->xSleep = File::Sleep;
  vfs_->xCurrentTime = File::CurrentTime;
  vfs_->xGetLastError = File::GetLastError;
  CAUSEWAY_CHECK(sqlite3_vfs_register(vfs_.get(), /*makeDflt=*/1) == SQLITE_OK);
}

FaultVfs::~FaultVfs() { sqlite3_vfs_unregister(vfs_.get()); }

void FaultVfs::Mount(const std::string& folder, FaultDisk* disk) {
  if (disk == nullptr) {
    disks_.erase(folder);
  } else {
    disks_[folder] = disk;
  }
}

FaultDisk* FaultVfs::DiskOf(const std::string& path) const {
  for (const auto& [folder, disk] : disks_) {
    if (absl::StartsWith(path, absl::StrCat(folder, "/"))) return disk;
  }
  return nullptr;
}

}  // namespace causeway
