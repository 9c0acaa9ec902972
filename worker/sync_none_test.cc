#include "worker/sync_none.h"

#include <gtest/gtest.h>

#include "tests/fakes/status_matchers.h"

namespace causeway::worker {
namespace {

TEST(SyncNoneTest, AnswersEveryEventAtOnce) {
  std::unique_ptr<SiteSync> sync = MakeSyncNone();
  sync->OnGradient(1);
  EXPECT_THAT(sync->OnBackwardEnd(), IsOk());
  EXPECT_THAT(sync->OnStepEnd(0), IsOk());
  EXPECT_THAT(sync->OnRoundEnd(), IsOk());
}

}  // namespace
}  // namespace causeway::worker
