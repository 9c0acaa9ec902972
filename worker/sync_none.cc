#include "worker/sync_none.h"

namespace causeway::worker {
namespace {

class SyncNone : public SiteSync {
 public:
  void OnGradient(int layer) override {}
  absl::Status OnBackwardEnd() override { return absl::OkStatus(); }
  absl::Status OnStepEnd(int64_t step) override { return absl::OkStatus(); }
  absl::Status OnRoundEnd() override { return absl::OkStatus(); }
};

}  // namespace

std::unique_ptr<SiteSync> MakeSyncNone() { return std::make_unique<SyncNone>(); }

}  // namespace causeway::worker
