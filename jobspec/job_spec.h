#ifndef CAUSEWAY_JOBSPEC_JOB_SPEC_H_
#define CAUSEWAY_JOBSPEC_JOB_SPEC_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "proto/job.pb.h"
#include "proto/plan.pb.h"

namespace causeway::jobspec {

// Reads a job.yaml (docs/reference.md lists every key). All defaults are filled in, so the result needs no further interpretation; an
// end of which nothing is set, a data path that leaves the data root, or a key without effect in this version do not get through.
// `test` inherits the normalization of `train`.
// Errors: InvalidArgument, one line per error: "job.yaml:7: batch.max: found ...; allowed: ...".
absl::StatusOr<v1::JobSpec> ParseJobYaml(absl::string_view text, absl::string_view file_name);

// How many samples all workers together train on until the first of the lengths in `end` is reached; 0: it has none, only a
// target. `dataset_samples` >= 1 are those of the training set, an epoch.
int64_t SamplesToTrain(const v1::JobSpec& spec, int64_t dataset_samples);

// Reads a pinned plan: the `allocation` half of schema causeway.plan/1, in JSON or YAML. Sets `pinned`, `method` and `objective` (if given),
// `samples` (the sum), and of each worker name, samples and batch_size, ascending by name; what the file predicts is not taken over.
// Errors: InvalidArgument, as above.
absl::StatusOr<v1::Plan> ParsePinnedPlan(absl::string_view text, absl::string_view file_name);

}  // namespace causeway::jobspec

#endif  // CAUSEWAY_JOBSPEC_JOB_SPEC_H_
