#ifndef CAUSEWAY_WORKER_SAMPLE_SOURCE_H_
#define CAUSEWAY_WORKER_SAMPLE_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace causeway::worker {

// Where the records of one dataset come from: the chunk cache, or a fake. Not thread-safe: one thread at a time.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  // Fills `out`, of the dataset's record size, with the record of `sample`, counted in the dataset's permuted order.
  // May block on the disk, never on the network.
  // Errors: NotFound (not in the cache), DataLoss, InvalidArgument (`out` has another size), Internal.
  virtual absl::Status ReadRecord(int64_t sample, absl::Span<uint8_t> out) = 0;
};

}  // namespace causeway::worker

#endif  // CAUSEWAY_WORKER_SAMPLE_SOURCE_H_
