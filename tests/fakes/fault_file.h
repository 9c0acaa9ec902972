#ifndef CAUSEWAY_TESTS_FAKES_FAULT_FILE_H_
#define CAUSEWAY_TESTS_FAKES_FAULT_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/random.h"

namespace causeway {

// A disk in memory that fails as disks do: it is full, it has errors, and when the power goes it forgets what was not synced, contents
// and names alike.
//
// Every composite operation of FileSystem is made of the system calls that the real one makes, and each of these is decided on by itself.
// Not thread-safe.
class FaultDisk : public FileSystem {
 public:
  enum class Call { kCreate, kRead, kWrite, kTruncate, kSync, kRename, kRemove, kMakeDir, kSyncDir };
  enum class Fate {
    kDone,
    kIoError,
    kFull,         // For a write: after a part of it.
    kCrashBefore,  // The disk is off from here on: see PowerOn.
    kCrashAfter,
  };
  static bool IsWrite(Call call) { return call != Call::kRead; }

  FaultDisk();
  ~FaultDisk() override;

  // What becomes of the next call; empty: everything is done.
  std::function<Fate(Call call, const std::string& path)> decide;
  int64_t free_bytes = int64_t{1} << 40;  // Only told, not enforced.

  // From now on every call fails, and handles from before stay dead.
  void PowerOff();
  bool off() const { return off_; }
  enum class Loss {
    kNothing,   // A process was killed: the system still has all that it wrote.
    kUnsynced,  // Exactly what was not synced is lost.
    kSome,      // Of what was not synced, some is there: of appended bytes a beginning, of others any.
  };
  void PowerOn(Loss loss, Random* random);

  // Another disk with what would be there after a crash that loses all that may be lost. Nothing of it fails.
  std::unique_ptr<FaultDisk> Durable() const;
  // The synced size of a file whose name is synced as well; -1: none.
  int64_t DurableSize(const std::string& path) const;
  // Changes whenever Durable would.
  int64_t syncs() const { return syncs_; }

  // ---- FileSystem
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode) override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override;
  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content, int mode) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status RemoveTree(const std::string& path) override;
  absl::Status MakeDirs(const std::string& path, int mode) override;
  absl::Status Truncate(const std::string& path, int64_t size_bytes) override;
  bool Exists(const std::string& path) override;
  absl::StatusOr<int64_t> FileSize(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override;
  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override;
  absl::StatusOr<std::unique_ptr<Lock>> LockFile(const std::string& path) override;

  // ---- For SQLite (fault_vfs.h): an open file, read and written anywhere.
  class Handle {
   public:
    virtual ~Handle() = default;
    // Returns how many bytes there were.
    virtual absl::StatusOr<int64_t> ReadAt(int64_t offset, absl::Span<uint8_t> out) = 0;
    virtual absl::Status WriteAt(int64_t offset, absl::Span<const uint8_t> data) = 0;
    virtual absl::Status Truncate(int64_t size_bytes) = 0;
    virtual absl::Status Sync() = 0;
    virtual int64_t Size() = 0;
  };
  // Errors: also NotFound (missing, and not to be created).
  absl::StatusOr<std::unique_ptr<Handle>> OpenHandle(const std::string& path, bool create);
  absl::Status SyncFolderOf(const std::string& path);

 private:
  struct Node;
  class OpenFile;
  class ReadingFile;
  using NodePtr = std::shared_ptr<Node>;

  // Decides on a call and does it. Errors: those of its fate.
  absl::Status Perform(Call call, const std::string& path, absl::string_view what, const std::function<void()>& effect);
  absl::Status CheckOn(const std::string& path) const;
  Node* FindFolder(const std::string& path, std::string* name) const;  // Of the path's last part; null: missing.
  NodePtr Find(const std::string& path) const;
  absl::StatusOr<NodePtr> OpenNode(const std::string& path, bool create, bool truncate);
  absl::Status Write(Node* node, const std::string& path, int64_t offset, absl::Span<const uint8_t> data, bool append);
  absl::Status TruncateNode(Node* node, const std::string& path, int64_t size_bytes);
  absl::Status SyncNode(Node* node, const std::string& path);
  static NodePtr CopyDurable(const Node& node);
  static void Settle(Node* node, Loss loss, Random* random);

  NodePtr root_;
  bool off_ = false;
  int64_t life_ = 1;  // Handles of an earlier one are dead.
  int64_t syncs_ = 0;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_FAULT_FILE_H_
