#ifndef CAUSEWAY_BACKUP_CHECKPOINT_H_
#define CAUSEWAY_BACKUP_CHECKPOINT_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "dataplane/layout.h"

namespace causeway::backup {

// SHA-256 (32 raw bytes) of the tensors of a checkpoint in the order of `layout`, packed: what the journal has beside each version. The file
// has them in another order. Takes memory for one block.
// Errors: DataLoss (no such file of this layout), those of reading.
absl::StatusOr<std::string> PackedSha256(FileSystem* files, const std::string& path, const dataplane::Layout& layout);

}  // namespace causeway::backup

#endif  // CAUSEWAY_BACKUP_CHECKPOINT_H_
