#include "base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"

namespace causeway {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT: return absl::StatusCode::kNotFound;
    case EEXIST: return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS: return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT: return absl::StatusCode::kResourceExhausted;
    default: return absl::StatusCode::kInternal;
  }
}

absl::Status ErrnoError(absl::string_view doing, absl::string_view path, int error) {
  return absl::Status(CodeOf(error),
                      absl::StrCat("cannot ", doing, " ", path, ": ", std::generic_category().message(error)));
}

// Repeats a system call that a signal interrupted.
template <typename Call>
auto Retried(Call call) {
  decltype(call()) result;
  do {
    result = call();
  } while (result < 0 && errno == EINTR);
  return result;
}

std::string ParentOf(const std::string& path) {
  std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

// Owns a file descriptor.
class Fd {
 public:
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) = delete;
  ~Fd() { Close(); }
  int get() const { return fd_; }
  // Returns errno, or 0.
  int Close() {
    if (fd_ < 0) return 0;
    // Not retried: Linux has freed the descriptor even when the call was interrupted.
    return ::close(std::exchange(fd_, -1)) == 0 || errno == EINTR ? 0 : errno;
  }

 private:
  int fd_;
};

absl::StatusOr<Fd> Open(const std::string& path, int flags, int mode, absl::string_view doing) {
  Fd fd(Retried([&] { return ::open(path.c_str(), flags | O_CLOEXEC, mode); }));
  if (fd.get() < 0) return ErrnoError(doing, path, errno);
  return fd;
}

// Makes the names in a folder durable.
absl::Status SyncFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(Fd fd, Open(folder, O_RDONLY | O_DIRECTORY, 0, "open the folder"));
  // EINVAL: a file system whose folders cannot be synced, and need not be.
  if (Retried([&] { return ::fsync(fd.get()); }) != 0 && errno != EINVAL)
    return ErrnoError("sync the folder", folder, errno);
  return absl::OkStatus();
}

class PosixWritableFile : public WritableFile {
 public:
  PosixWritableFile(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  absl::Status Append(absl::Span<const uint8_t> data) override {
    while (!data.empty()) {
      ssize_t written = Retried([&] { return ::write(fd_.get(), data.data(), data.size()); });
      if (written < 0) return ErrnoError("write to", path_, errno);
      data.remove_prefix(written);
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (Retried([&] { return ::fdatasync(fd_.get()); }) != 0) return ErrnoError("sync", path_, errno);
    if (folder_synced_) return absl::OkStatus();
    // The file may be new: without its name on the disk, its bytes would be lost.
    RETURN_IF_ERROR(SyncFolder(ParentOf(path_)));
    folder_synced_ = true;
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (int error = fd_.Close(); error != 0) return ErrnoError("close", path_, error);
    return absl::OkStatus();
  }

 private:
  const std::string path_;
  Fd fd_;
  bool folder_synced_ = false;
};

class PosixRandomAccessFile : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, Fd fd, int64_t size_bytes)
      : path_(std::move(path)), fd_(std::move(fd)), size_bytes_(size_bytes) {}

  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    while (!out.empty()) {
      ssize_t got = Retried([&] { return ::pread(fd_.get(), out.data(), out.size(), offset); });
      if (got < 0) return ErrnoError("read", path_, errno);
      if (got == 0) {
        return absl::OutOfRangeError(
            absl::StrCat(path_, " ends at byte ", offset, ", ", out.size(), " more were asked for"));
      }
      out.remove_prefix(got);
      offset += got;
    }
    return absl::OkStatus();
  }

  int64_t size_bytes() const override { return size_bytes_; }

 private:
  const std::string path_;
  const Fd fd_;
  const int64_t size_bytes_;
};

class PosixLock : public FileSystem::Lock {
 public:
  explicit PosixLock(Fd fd) : fd_(std::move(fd)) {}

 private:
  const Fd fd_;  // Closing it gives the lock up.
};

class PosixFileSystem : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForAppend(const std::string& path) override {
    return OpenForWriting(path, O_APPEND, 0644);
  }

  absl::StatusOr<std::unique_ptr<WritableFile>> Create(const std::string& path, int mode) override {
    return OpenForWriting(path, O_TRUNC, mode);
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    // Not blocking: a pipe without a writer would hold up whoever opens it.
    ASSIGN_OR_RETURN(Fd fd, Open(path, O_RDONLY | O_NONBLOCK, 0, "open"));
    struct stat info;
    if (::fstat(fd.get(), &info) != 0) return ErrnoError("look at", path, errno);
    if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
    return std::make_unique<PosixRandomAccessFile>(path, std::move(fd), info.st_size);
  }

  absl::StatusOr<std::string> ReadFile(const std::string& path, int64_t max_bytes) override {
    ASSIGN_OR_RETURN(Fd fd, Open(path, O_RDONLY, 0, "open"));
    std::string content;
    while (true) {
      // Grows as bytes come: sizes of files in /proc are not known beforehand.
      const size_t had = content.size();
      content.resize(had + (1 << 16));
      ssize_t got = Retried([&] { return ::read(fd.get(), content.data() + had, content.size() - had); });
      if (got < 0) return ErrnoError("read", path, errno);
      content.resize(had + got);
      if (got == 0) return content;
      if (static_cast<int64_t>(content.size()) > max_bytes) {
        return absl::ResourceExhaustedError(absl::StrCat(path, " is larger than the ", max_bytes, " bytes allowed"));
      }
    }
  }

  absl::Status WriteFileAtomically(const std::string& path, absl::string_view content, int mode) override {
    const std::string aside = absl::StrCat(path, ".tmp-", ::gettid());  // Two threads may write one path.
    ::unlink(aside.c_str());                                            // Left by a crash, perhaps with another mode.
    absl::Cleanup remove_aside = [&] { ::unlink(aside.c_str()); };
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, Create(aside, mode));
    RETURN_IF_ERROR(
        file->Append(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(content.data()), content.size())));
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(file->Close());
    RETURN_IF_ERROR(Rename(aside, path));
    std::move(remove_aside).Cancel();
    return absl::OkStatus();
  }

  absl::Status Rename(const std::string& from, const std::string& to) override {
    if (::rename(from.c_str(), to.c_str()) != 0) return ErrnoError(absl::StrCat("rename ", from, " to"), to, errno);
    RETURN_IF_ERROR(SyncFolder(ParentOf(to)));
    return ParentOf(from) == ParentOf(to) ? absl::OkStatus() : SyncFolder(ParentOf(from));
  }

  absl::Status Remove(const std::string& path) override {
    if (::unlink(path.c_str()) != 0) return ErrnoError("remove", path, errno);
    return absl::OkStatus();
  }

  absl::Status RemoveTree(const std::string& path) override {
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) return ErrnoError("remove", path, error.value());
    return absl::OkStatus();
  }

  absl::Status MakeDirs(const std::string& path, int mode) override {
    const std::string dir(absl::StripSuffix(path, "/"));
    if (::mkdir(dir.c_str(), mode) == 0) return SyncFolder(ParentOf(dir));
    if (errno == ENOENT && !dir.empty()) {
      RETURN_IF_ERROR(MakeDirs(ParentOf(dir), mode));
      if (::mkdir(dir.c_str(), mode) == 0) return SyncFolder(ParentOf(dir));
    }
    const int error = errno;
    struct stat info;
    if (::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode)) {
      // Whoever made it may have failed, or died, before its name was on the disk. Where that cannot be seen to, it was not us.
      const absl::Status synced = SyncFolder(ParentOf(dir));
      return absl::IsPermissionDenied(synced) ? absl::OkStatus() : synced;
    }
    return ErrnoError("make the folder", path, error);
  }

  absl::Status Truncate(const std::string& path, int64_t size_bytes) override {
    if (Retried([&] { return ::truncate(path.c_str(), size_bytes); }) != 0) return ErrnoError("truncate", path, errno);
    return absl::OkStatus();
  }

  bool Exists(const std::string& path) override {
    struct stat info;
    return ::stat(path.c_str(), &info) == 0;
  }

  absl::StatusOr<int64_t> FileSize(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return ErrnoError("look at", path, errno);
    return info.st_size;
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& dir) override {
    std::error_code error;
    std::vector<std::string> names;
    for (std::filesystem::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return ErrnoError("list", dir, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }

  absl::StatusOr<int64_t> FreeBytes(const std::string& path) override {
    struct statvfs info;
    if (Retried([&] { return ::statvfs(path.c_str(), &info); }) != 0)
      return ErrnoError("look at the disk of", path, errno);
    return static_cast<int64_t>(info.f_bavail) * static_cast<int64_t>(info.f_frsize);
  }

  absl::StatusOr<std::unique_ptr<Lock>> LockFile(const std::string& path) override {
    ASSIGN_OR_RETURN(Fd fd, Open(path, O_RDWR | O_CREAT, 0644, "open the lock"));
    if (Retried([&] { return ::flock(fd.get(), LOCK_EX | LOCK_NB); }) != 0) {
      if (errno != EWOULDBLOCK) return ErrnoError("lock", path, errno);
      char text[32];
      ssize_t got = ::pread(fd.get(), text, sizeof(text), 0);
      int64_t pid;
      const bool known = got > 0 && absl::SimpleAtoi(absl::string_view(text, got), &pid);
      return absl::FailedPreconditionError(
          absl::StrCat(path, " is locked by ", known ? absl::StrCat("process ", pid) : "another process"));
    }
    // For the message above only, so that a full disk does not matter.
    const std::string pid = absl::StrCat(::getpid(), "\n");
    if (::ftruncate(fd.get(), 0) == 0) (void)!::pwrite(fd.get(), pid.data(), pid.size(), 0);
    return std::make_unique<PosixLock>(std::move(fd));
  }

 private:
  absl::StatusOr<std::unique_ptr<WritableFile>> OpenForWriting(const std::string& path, int flags, int mode) {
    ASSIGN_OR_RETURN(Fd fd, Open(path, O_WRONLY | O_CREAT | flags, mode, "open for writing"));
    return std::make_unique<PosixWritableFile>(path, std::move(fd));
  }
};

absl::StatusOr<std::string> RealPath(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return ErrnoError("resolve", path, errno);
  absl::Cleanup free_resolved = [&] { std::free(resolved); };
  return std::string(resolved);
}

}  // namespace

FileSystem* RealFileSystem() {
  static PosixFileSystem* const file_system = new PosixFileSystem;
  return file_system;
}

std::string JoinPath(absl::string_view a, absl::string_view b) { return absl::StrCat(a, "/", b); }

absl::StatusOr<std::string> ResolveBelow(const std::string& root, absl::string_view relative) {
  if (absl::StartsWith(relative, "/") || absl::StrContains(relative, '\0')) {
    return absl::InvalidArgumentError(absl::StrCat("path \"", relative, "\" is not a relative path"));
  }
  for (absl::string_view part : absl::StrSplit(relative, '/')) {
    if (part == "..") return absl::InvalidArgumentError(absl::StrCat("path \"", relative, "\" has a \"..\" part"));
  }
  ASSIGN_OR_RETURN(std::string real_root, RealPath(root));
  ASSIGN_OR_RETURN(std::string real_path, RealPath(JoinPath(root, relative)));
  if (real_path != real_root && !absl::StartsWith(real_path, absl::StrCat(absl::StripSuffix(real_root, "/"), "/"))) {
    return absl::PermissionDeniedError(absl::StrCat("path \"", relative, "\" leads out of ", root));
  }
  return real_path;
}

}  // namespace causeway
