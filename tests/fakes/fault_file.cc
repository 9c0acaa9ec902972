#include "tests/fakes/fault_file.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace causeway {
namespace {

constexpr int64_t kSectorBytes = 512;

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos || slash == 0 ? "/" : path.substr(0, slash);
}

absl::Status NotThere(const std::string& path) { return absl::NotFoundError(absl::StrCat(path, " is not there")); }

}  // namespace

// A file or a folder.
struct FaultDisk::Node {
  bool folder = false;

  // A file's content, as programs see it and as it is on the disk; what makes the difference, in order.
  struct Change {
    bool append = false;
    int64_t offset = 0;
    int64_t size = 0;  // -1: cut off at `offset`.
  };
  std::string data;
  std::string durable;
  std::vector<Change> changes;

  // A folder's.
  struct NameChange {
    std::string name;
    NodePtr node;         // Null: removed.
    std::string instead;  // The name that goes in the same instant; may be empty.
  };
  std::map<std::string, NodePtr> names;
  std::map<std::string, NodePtr> durable_names;
  std::vector<NameChange> name_changes;

  void SetName(const std::string& name, NodePtr node, const std::string& instead = "") {
    name_changes.push_back({name, node, instead});
    names.erase(instead);
    if (node == nullptr) {
      names.erase(name);
    } else {
      names[name] = std::move(node);
    }
  }
  static void Apply(const Change& change, const std::string& data, std::string* to) {
    if (change.size < 0) {
      to->resize(std::min<size_t>(to->size(), change.offset));
      return;
    }
    // A later change may have cut it off.
    const int64_t end = std::min<int64_t>(change.offset + change.size, data.size());
    if (end <= change.offset) return;
    if (static_cast<int64_t>(to->size()) < end) to->resize(end, '\0');
    std::copy(data.begin() + change.offset, data.begin() + end, to->begin() + change.offset);
  }
};

FaultDisk::FaultDisk() : root_(std::make_shared<Node>()) { root_->folder = true; }
FaultDisk::~FaultDisk() = default;

// ---- Power

void FaultDisk::PowerOff() {
  off_ = true;
  ++life_;
}

void FaultDisk::PowerOn(Loss loss, Random* random) {
  off_ = false;
  ++life_;
  if (loss != Loss::kNothing) Settle(root_.get(), loss, random);
  ++syncs_;
}

void FaultDisk::Settle(Node* node, Loss loss, Random* random) {
  if (!node->folder) {
    // A file at a time: all, nothing or some of what was not synced.
    const uint64_t mode = loss == Loss::kUnsynced ? 0 : random->Below(3);
    if (mode == 1) {
      node->durable = node->data;
    } else if (mode == 2) {
      bool lost = false;
      for (Node::Change change : node->changes) {
        if (change.append) {
          // Appended bytes reach the disk in order: the first that is missing ends the file.
          if (lost) continue;
          if (random->Below(2) == 0) {
            lost = true;
            change.size = static_cast<int64_t>(random->Below(change.size + 1));
          }
          change.size = std::min<int64_t>(change.size, static_cast<int64_t>(node->data.size()) - change.offset);
          if (change.offset > static_cast<int64_t>(node->durable.size())) continue;
        } else if (random->Below(2) == 0) {
          if (change.size <= kSectorBytes) continue;
          change.size = kSectorBytes * static_cast<int64_t>(random->Below(change.size / kSectorBytes + 1));
        }
        if (change.size != 0) Node::Apply(change, node->data, &node->durable);
      }
    }
    node->data = node->durable;
    node->changes.clear();
    return;
  }
  size_t kept = 0;
  if (loss == Loss::kSome) kept = random->Below(node->name_changes.size() + 1);
  for (size_t i = 0; i < kept; ++i) {
    const Node::NameChange& change = node->name_changes[i];
    if (change.node == nullptr) {
      node->durable_names.erase(change.name);
    } else {
      node->durable_names[change.name] = change.node;
      node->durable_names.erase(change.instead);
    }
  }
  node->names = node->durable_names;
  node->name_changes.clear();
  for (auto& [name, child] : node->names) Settle(child.get(), loss, random);
}

FaultDisk::NodePtr FaultDisk::CopyDurable(const Node& node) {
  auto copy = std::make_shared<Node>();
  copy->folder = node.folder;
  copy->data = copy->durable = node.durable;
  for (const auto& [name, child] : node.durable_names) copy->names[name] = CopyDurable(*child);
  copy->durable_names = copy->names;
  return copy;
}

std::unique_ptr<FaultDisk> FaultDisk::Durable() const {
  auto disk = std::make_unique<FaultDisk>();
  disk->root_ = CopyDurable(*root_);
  return disk;
}

int64_t FaultDisk::DurableSize(const std::string& path) const {
  const Node* node = root_.get();
  for (absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    auto it = node->durable_names.find(std::string(part));
    if (it == node->durable_names.end()) return -1;
    node = it->second.get();
  }
  return static_cast<int64_t>(node->durable.size());
}

// ---- Calls

absl::Status FaultDisk::CheckOn(const std::string& path) const {
  return off_ ? absl::InternalError(absl::StrCat("the machine of ", path, " is off")) : absl::OkStatus();
}

absl::Status FaultDisk::Perform(Call call, const std::string& path, absl::string_view what,
                                const std::function<void()>& effect) {
  RETURN_IF_ERROR(CheckOn(path));
  const Fate fate = decide ? decide(call, path) : Fate::kDone;
  switch (fate) {
    case Fate::kDone: effect(); return absl::OkStatus();
    case Fate::kIoError: return absl::InternalError(absl::StrCat("cannot ", what, " ", path, ": input/output error"));
    case Fate::kFull:
      return absl::ResourceExhaustedError(absl::StrCat("cannot ", what, " ", path, ": no space left on device"));
    case Fate::kCrashBefore: break;
    case Fate::kCrashAfter: effect(); break;
  }
  PowerOff();
  return CheckOn(path);
}

FaultDisk::NodePtr FaultDisk::Find(const std::string& path) const {
  NodePtr node = root_;
  for (absl::string_view part : absl::StrSplit(path, '/', absl::SkipEmpty())) {
    if (!node->folder) return nullptr;
    auto it = node->names.find(std::string(part));
    if (it == node->names.end()) return nullptr;
    node = it->second;
  }
  return node;
}

FaultDisk::Node* FaultDisk::FindFolder(const std::string& path, std::string* name) const {
  *name = path.substr(path.rfind('/') + 1);
  const NodePtr folder = Find(ParentOf(path));
  return folder != nullptr && folder->folder ? folder.get() : nullptr;
}

absl::StatusOr<FaultDisk::NodePtr> FaultDisk::OpenNode(const std::string& path, bool create, bool truncate) {
  RETURN_IF_ERROR(CheckOn(path));
  NodePtr node = Find(path);
  if (node == nullptr) {
    if (!create) return NotThere(path);
    std::string name;
    Node* const folder = FindFolder(path, &name);
    if (folder == nullptr) return NotThere(ParentOf(path));
    RETURN_IF_ERROR(Perform(Call::kCreate, path, "create", [&] {
      node = std::make_shared<Node>();
      folder->SetName(name, node);
    }));
  } else if (truncate && !node->data.empty()) {
    RETURN_IF_ERROR(TruncateNode(node.get(), path, 0));
  }
  if (node->folder) return absl::InvalidArgumentError(absl::StrCat(path, " is a folder"));
  return node;
}

absl::Status FaultDisk::Write(Node* node, const std::string& path, int64_t offset, absl::Span<const uint8_t> data,
                              bool append) {
  const auto put = [&](size_t size) {
    if (size == 0) return;
    if (node->data.size() < offset + size) node->data.resize(offset + size, '\0');
    std::copy_n(data.begin(), size, node->data.begin() + offset);
    node->changes.push_back({append, offset, static_cast<int64_t>(size)});
  };
  absl::Status status = Perform(Call::kWrite, path, "write to", [&] { put(data.size()); });
  if (absl::IsResourceExhausted(status)) put(data.size() / 2);
  return status;
}

absl::Status FaultDisk::TruncateNode(Node* node, const std::string& path, int64_t size_bytes) {
  return Perform(Call::kTruncate, path, "truncate", [&] {
    node->data.resize(size_bytes, '\0');
    node->changes.push_back({false, size_bytes, -1});
  });
}

absl::Status FaultDisk::SyncNode(Node* node, const std::string& path) {
  return Perform(Call::kSync, path, "sync", [&] {
    for (const Node::Change& change : node->changes) Node::Apply(change, node->data, &node->durable);
    node->durable.resize(node->data.size(), '\0');
    node->changes.clear();
    ++syncs_;
  });
}

absl::Status FaultDisk::SyncFolderOf(const std::string& path) {
  const NodePtr folder = Find(ParentOf(path));
  if (folder == nullptr) return NotThere(ParentOf(path));
  return Perform(Call::kSyncDir, ParentOf(path), "sync the folder", [&] {
    folder->durable_names = folder->names;
    folder->name_changes.clear();
    ++syncs_;
  });
}

// ---- Open files

class FaultDisk::OpenFile : public WritableFile, public Handle {
 public:
  OpenFile(FaultDisk* disk, std::string path, NodePtr node)
      : disk_(disk), life_(disk->life_), path_(std::move(path)), node_(std::move(node)) {}

  absl::Status Append(absl::Span<const uint8_t> data) override {
    RETURN_IF_ERROR(CheckAlive());
    return disk_->Write(node_.get(), path_, static_cast<int64_t>(node_->data.size()), data, /*append=*/true);
  }
  absl::Status Close() override { return CheckAlive(); }
  // Of both interfaces. A file's first one also syncs its name (base/file.cc; SQLite does so for its own).
  absl::Status Sync() override {
    RETURN_IF_ERROR(CheckAlive());
    RETURN_IF_ERROR(disk_->SyncNode(node_.get(), path_));
    if (folder_synced_) return absl::OkStatus();
    RETURN_IF_ERROR(disk_->SyncFolderOf(path_));
    folder_synced_ = true;
    return absl::OkStatus();
  }

  absl::StatusOr<int64_t> ReadAt(int64_t offset, absl::Span<uint8_t> out) override {
    RETURN_IF_ERROR(CheckAlive());
    int64_t got = 0;
    RETURN_IF_ERROR(disk_->Perform(Call::kRead, path_, "read", [&] {
      got = std::clamp<int64_t>(static_cast<int64_t>(node_->data.size()) - offset, 0, out.size());
      if (got > 0) std::copy_n(node_->data.begin() + offset, got, out.begin());
    }));
    return got;
  }
  absl::Status WriteAt(int64_t offset, absl::Span<const uint8_t> data) override {
    RETURN_IF_ERROR(CheckAlive());
    return disk_->Write(node_.get(), path_, offset, data, /*append=*/false);
  }
  absl::Status Truncate(int64_t size_bytes) override {
    RETURN_IF_ERROR(CheckAlive());
    return disk_->TruncateNode(node_.get(), path_, size_bytes);
  }
  int64_t Size() override { return static_cast<int64_t>(node_->data.size()); }

 private:
  absl::Status CheckAlive() const {
    if (life_ == disk_->life_) return absl::OkStatus();
    return absl::InternalError(absl::StrCat(path_, " was opened before the machine went off"));
  }

  FaultDisk* const disk_;
  const int64_t life_;
  const std::string path_;
  const NodePtr node_;
  bool folder_synced_ = false;
};

class FaultDisk::ReadingFile : public RandomAccessFile {
 public:
  ReadingFile(FaultDisk* disk, std::string path, NodePtr node)
      : file_(disk, path, node), path_(std::move(path)), size_bytes_(static_cast<int64_t>(node->data.size())) {}

  absl::Status Read(int64_t offset, absl::Span<uint8_t> out) const override {
    ASSIGN_OR_RETURN(const int64_t got, file_.ReadAt(offset, out));
    if (got == static_cast<int64_t>(out.size())) return absl::OkStatus();
    return absl::OutOfRangeError(absl::StrCat(path_, " ends at byte ", offset + got));
  }
  int64_t size_bytes() const override { return size_bytes_; }

 private:
  mutable OpenFile file_;
  const std::string path_;
  const int64_t size_bytes_;
};

// ---- FileSystem

absl::StatusOr<std::unique_ptr<WritableFile>> FaultDisk::OpenForAppend(const std::string& path) {
  ASSIGN_OR_RETURN(NodePtr node, OpenNode(path, /*create=*/true, /*truncate=*/false));
  return std::make_unique<OpenFile>(this, path, std::move(node));
}

absl::StatusOr<std::unique_ptr<WritableFile>> FaultDisk::Create(const std::string& path, int) {
  ASSIGN_OR_RETURN(NodePtr node, OpenNode(path, /*create=*/true, /*truncate=*/true));
  return std::make_unique<OpenFile>(this, path, std::move(node));
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> FaultDisk::OpenForRead(const std::string& path) {
  ASSIGN_OR_RETURN(NodePtr node, OpenNode(path, /*create=*/false, /*truncate=*/false));
  return std::make_unique<ReadingFile>(this, path, std::move(node));
}

absl::StatusOr<std::unique_ptr<FaultDisk::Handle>> FaultDisk::OpenHandle(const std::string& path, bool create) {
  ASSIGN_OR_RETURN(NodePtr node, OpenNode(path, create, /*truncate=*/false));
  return std::make_unique<OpenFile>(this, path, std::move(node));
}

absl::StatusOr<std::string> FaultDisk::ReadFile(const std::string& path, int64_t max_bytes) {
  ASSIGN_OR_RETURN(const NodePtr node, OpenNode(path, /*create=*/false, /*truncate=*/false));
  std::string content;
  RETURN_IF_ERROR(Perform(Call::kRead, path, "read", [&] { content = node->data; }));
  if (static_cast<int64_t>(content.size()) > max_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(path, " is larger than the ", max_bytes, " bytes allowed"));
  }
  return content;
}

absl::Status FaultDisk::WriteFileAtomically(const std::string& path, absl::string_view content, int mode) {
  const std::string aside = path + ".tmp-1";
  const auto write = [&]() -> absl::Status {
    ASSIGN_OR_RETURN(std::unique_ptr<WritableFile> file, Create(aside, mode));
    RETURN_IF_ERROR(
        file->Append(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(content.data()), content.size())));
    RETURN_IF_ERROR(file->Sync());
    RETURN_IF_ERROR(file->Close());
    return Rename(aside, path);
  };
  absl::Status status = write();
  if (!status.ok()) Remove(aside).IgnoreError();
  return status;
}

absl::Status FaultDisk::Rename(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckOn(from));
  const NodePtr node = Find(from);
  std::string from_name, to_name;
  Node* const from_folder = FindFolder(from, &from_name);
  Node* const to_folder = FindFolder(to, &to_name);
  if (node == nullptr || to_folder == nullptr) return NotThere(node == nullptr ? from : ParentOf(to));
  RETURN_IF_ERROR(Perform(Call::kRename, from, "rename", [&] {
    if (from_folder == to_folder) return to_folder->SetName(to_name, node, from_name);
    to_folder->SetName(to_name, node);
    from_folder->SetName(from_name, nullptr);
  }));
  RETURN_IF_ERROR(SyncFolderOf(to));
  return from_folder == to_folder ? absl::OkStatus() : SyncFolderOf(from);
}

absl::Status FaultDisk::Remove(const std::string& path) {
  RETURN_IF_ERROR(CheckOn(path));
  if (Find(path) == nullptr) return NotThere(path);
  return Perform(Call::kRemove, path, "remove", [&] {
    std::string name;
    FindFolder(path, &name)->SetName(name, nullptr);
  });
}

absl::Status FaultDisk::RemoveTree(const std::string& path) {
  const NodePtr node = Find(path);
  if (node == nullptr) return CheckOn(path);
  if (node->folder) {
    std::vector<std::string> names;
    for (const auto& [name, child] : node->names) names.push_back(name);
    for (const std::string& name : names) RETURN_IF_ERROR(RemoveTree(JoinPath(path, name)));
  }
  return Remove(path);
}

absl::Status FaultDisk::MakeDirs(const std::string& path, int mode) {
  RETURN_IF_ERROR(CheckOn(path));
  if (const NodePtr node = Find(path); node != nullptr) {
    if (!node->folder) return absl::AlreadyExistsError(absl::StrCat(path, " is a file"));
    return path == "/" ? absl::OkStatus() : SyncFolderOf(path);
  }
  RETURN_IF_ERROR(MakeDirs(ParentOf(path), mode));
  RETURN_IF_ERROR(Perform(Call::kMakeDir, path, "make the folder", [&] {
    std::string name;
    auto made = std::make_shared<Node>();
    made->folder = true;
    FindFolder(path, &name)->SetName(name, std::move(made));
  }));
  return SyncFolderOf(path);
}

absl::Status FaultDisk::Truncate(const std::string& path, int64_t size_bytes) {
  ASSIGN_OR_RETURN(const NodePtr node, OpenNode(path, /*create=*/false, /*truncate=*/false));
  return TruncateNode(node.get(), path, size_bytes);
}

bool FaultDisk::Exists(const std::string& path) { return !off_ && Find(path) != nullptr; }

absl::StatusOr<int64_t> FaultDisk::FileSize(const std::string& path) {
  RETURN_IF_ERROR(CheckOn(path));
  const NodePtr node = Find(path);
  if (node == nullptr) return NotThere(path);
  return static_cast<int64_t>(node->data.size());
}

absl::StatusOr<std::vector<std::string>> FaultDisk::List(const std::string& dir) {
  RETURN_IF_ERROR(CheckOn(dir));
  const NodePtr node = Find(dir);
  if (node == nullptr || !node->folder) return NotThere(dir);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->names) names.push_back(name);
  return names;
}

absl::StatusOr<int64_t> FaultDisk::FreeBytes(const std::string&) { return free_bytes; }

absl::StatusOr<std::unique_ptr<FileSystem::Lock>> FaultDisk::LockFile(const std::string&) {
  return std::make_unique<Lock>();
}

}  // namespace causeway
