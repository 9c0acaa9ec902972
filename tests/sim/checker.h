#ifndef CAUSEWAY_TESTS_SIM_CHECKER_H_
#define CAUSEWAY_TESTS_SIM_CHECKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "dataplane/layout.h"
#include "proto/bulk.pb.h"
#include "proto/journal.pb.h"
#include "proto/membership.pb.h"
#include "server/coordinator.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/fault_vfs.h"
#include "tests/sim/network.h"

namespace causeway::sim {

// Watches a fleet from outside and knows what must never happen (docs/contributing.md has the list). It believes no program: whatever the
// coordinator announces is looked for in what a crash at that moment would leave of its disk.
class Checker : public Observer {
 public:
  struct Options {
    std::string job;
    std::string dir;  // The coordinator's, on `disk`: "/coordinator".
    int64_t train_samples = 0;
    dataplane::Layout layout;
    std::map<std::string, std::string> sites;  // By worker.
    // Not owned.
    FaultDisk* disk = nullptr;
    FaultVfs* vfs = nullptr;
  };
  explicit Checker(Options options);

  // The first thing that must not happen; empty: nothing has.
  const std::string& failure() const { return failure_; }
  void Fail(absl::string_view what);

  // ---- Events
  void OnRegistered(const std::string& worker, const v1::RegisterResponse& response) override;
  void OnAssignment(const std::string& worker, const v1::Assignment& assignment) override;
  void OnFrame(const std::string& worker, int64_t stream, bool from_worker, const v1::Frame& frame) override;
  void OnSubmitted();
  // A coordinator has recovered; and later, whenever something may have changed.
  void OnCoordinator(const server::Coordinator& coordinator, bool started);

  // The job has ended: all that was committed is on the disk, and it is what its contributions make.
  void CheckEnd(int64_t rounds);
  int64_t rounds() const { return static_cast<int64_t>(commits_.size()) - 1; }
  // Of the committed rounds, those whose bits were compared; of the others a version was pruned before anybody looked.
  int64_t verified() const { return verified_; }
  int64_t contributions() const { return static_cast<int64_t>(counted_.size()); }

 private:
  using Attempt = std::pair<int64_t, int64_t>;  // (round, attempt)
  // What one worker pushes for one attempt.
  struct Part {
    v1::PushRequest request;
    std::string bytes;         // As far as they were seen.
    std::vector<bool> seen;    // By byte.
    int64_t acknowledged = 0;  // Durable, as the coordinator has said.
    std::string PathOf(const std::string& dir, const std::string& worker) const;
  };
  using PartKey = std::tuple<int64_t, int64_t, std::string, std::string>;  // round, attempt, worker, SHA-256
  static PartKey KeyOf(const std::string& worker, const v1::PushRequest& request);

  // What is durable.
  struct Facts {
    int64_t incarnation = 0;
    std::map<std::string, int64_t> generations;
    bool job = false;
    int64_t state = 0;
    std::map<int64_t, std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>> plans;
    std::set<PartKey> contributions;
    std::map<int64_t, std::string> commits;  // Version -> SHA-256
  };

  // Whether `known` holds of what is durable now. It is asked twice at most: of what was durable when it was looked at last, and of now.
  bool Durable(const std::function<bool()>& known);
  void LoadFacts();
  void CheckPlan(int64_t number);
  void CheckCommit(FaultDisk* disk, int64_t version, const std::string& record);
  void CheckMean(int64_t round, const std::string& packed, const std::vector<const PartKey*>& chosen);
  void CheckPushAnswer(const std::string& worker, Part* part, const v1::Frame& frame);
  static std::vector<std::pair<int64_t, int64_t>> RangesOf(
      const google::protobuf::RepeatedPtrField<v1::SampleRange>& ranges);

  const Options options_;
  std::string failure_;
  Facts facts_;
  int64_t loaded_at_ = -1;  // FaultDisk::syncs.

  // Everything that was ever durable or announced.
  std::map<int64_t, std::string> commits_;  // Version -> SHA-256
  std::map<int64_t, std::string> models_;   // Version -> packed bytes
  std::map<Attempt, v1::StoredRound> opened_;
  std::map<int64_t, std::map<std::string, std::vector<std::pair<int64_t, int64_t>>>> plans_;
  std::map<std::string, int64_t> generations_;  // Site -> the newest announced.
  int64_t coordinator_incarnation_ = 0;
  int64_t life_ = 0;  // The incarnation of the coordinator that started last.
  Attempt newest_attempt_{-1, -1};
  int64_t newest_version_ = -1;
  std::map<PartKey, Part> parts_;
  std::map<int64_t, std::pair<std::string, PartKey>> pushes_;  // Stream -> worker, part.
  std::set<PartKey> counted_;                                  // Whose senders were told so.
  int64_t verified_ = 0;
  std::set<PartKey> merged_;  // That the models are made of.
};

}  // namespace causeway::sim

#endif  // CAUSEWAY_TESTS_SIM_CHECKER_H_
