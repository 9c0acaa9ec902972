#ifndef CAUSEWAY_TESTS_FAKES_FAULT_VFS_H_
#define CAUSEWAY_TESTS_FAKES_FAULT_VFS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "base/random.h"
#include "tests/fakes/fault_file.h"

struct sqlite3_file;
struct sqlite3_vfs;

namespace causeway {

// SQLite's files on FaultDisks. While it lives it is the VFS that every database of this process is opened with; one at a time, on one
// thread, and one connection to each database.
class FaultVfs {
 public:
  FaultVfs();
  ~FaultVfs();
  FaultVfs(const FaultVfs&) = delete;
  FaultVfs& operator=(const FaultVfs&) = delete;

  // Paths below `folder` ("/a") are on `disk`, which outlives every database opened there; null: on none.
  void Mount(const std::string& folder, FaultDisk* disk);

 private:
  struct File;
  FaultDisk* DiskOf(const std::string& path) const;

  const std::unique_ptr<sqlite3_vfs> vfs_;
  std::map<std::string, FaultDisk*> disks_;
  Random random_;
};

}  // namespace causeway

#endif  // CAUSEWAY_TESTS_FAKES_FAULT_VFS_H_
