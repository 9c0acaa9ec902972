#ifndef CAUSEWAY_TESTS_SIM_WORLD_H_
#define CAUSEWAY_TESTS_SIM_WORLD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/metrics.h"
#include "tests/fakes/fault_file.h"
#include "tests/fakes/fault_vfs.h"
#include "tests/sim/checker.h"
#include "tests/sim/network.h"
#include "tests/sim/scheduler.h"

namespace causeway::sim {

// The training and test set, on the real disk as well, since paths below the data root are resolved there.
struct DataFiles {
  std::string root;
  std::map<std::string, std::string> files;  // Path -> content.
  int64_t train_samples = 0;
  int64_t test_samples = 0;
};

// One fleet's life: a coordinator and some workers, one job from its submission to its end, and whatever goes wrong meanwhile. All of it
// follows from the seed.
class World {
 public:
  struct Options {
    uint64_t seed = 0;
    // Not owned.
    const DataFiles* data = nullptr;
    FaultVfs* vfs = nullptr;
  };
  explicit World(const Options& options);
  ~World();

  struct Result {
    std::string failure;  // Empty: all is as it must be.
    int64_t steps = 0;
    int64_t crashes = 0;
    int64_t rounds = 0;
    int64_t verified = 0;  // Of the rounds, those whose bits were compared.
    double seconds = 0;    // Simulated.
    uint64_t trace = 0;    // A digest of the run: equal for equal seeds.
  };
  Result Run();

 private:
  struct Faults;
  struct Machine;
  struct CoordinatorLife;
  struct WorkerLife;

  void StartCoordinator();
  void StartWorker(Machine* machine);
  void Submit();
  void Crash(Machine* machine);
  void Restart(Machine* machine);
  void ScheduleTrouble();
  void MakeTrouble();
  void Heal();
  void KeepRunning();
  void EndLife(Machine* machine, absl::Duration silence);
  FaultDisk::Fate Decide(Machine* machine, FaultDisk::Call call);
  Network::Fate OnSend(Process* process);
  bool CrashPointReached(Machine* machine);
  void ArmCrashPoint(Machine* machine);
  Machine* MachineOf(const Process* process);

  const Options options_;
  Scheduler scheduler_;
  std::vector<std::unique_ptr<Process>> processes_;  // All that ever were.
  std::unique_ptr<Faults> faults_;
  std::unique_ptr<Checker> checker_;
  std::unique_ptr<Network> network_;
  std::vector<std::unique_ptr<Machine>> machines_;  // The coordinator's first.
  std::string yaml_;
  int64_t rounds_ = 0;
  bool submitted_ = false;
  int64_t crashes_ = 0;
};

}  // namespace causeway::sim

#endif  // CAUSEWAY_TESTS_SIM_WORLD_H_
