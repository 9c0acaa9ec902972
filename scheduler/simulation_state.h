// What the simulator (simulator.cc) keeps of a job under way. Nobody else includes this.
#ifndef CAUSEWAY_SCHEDULER_SIMULATION_STATE_H_
#define CAUSEWAY_SCHEDULER_SIMULATION_STATE_H_

#include <cstdint>
#include <tuple>
#include <vector>

#include "scheduler/simulated_job.h"
#include "scheduler/site_step.h"

namespace causeway::scheduler::internal {

// Whole-model and data transfers are told from a fragment's by their tag.
inline constexpr int kModel = -1;
inline constexpr int kData = -2;

// A fragment on its way between a participant and the coordinator.
struct Exchange {
  enum class State {
    kIdle,     // To be sent when its step comes.
    kSending,  // The site averages, or re-forms; then the push begins.
    kPushing,
    kWaiting,  // Contributed, or sits the round out; for the commit.
    kPulling,
    kPulled,  // To be merged when its step comes.
  };
  State state = State::kIdle;
  int64_t round = 0;    // The next to be sent.
  int64_t due = 0;      // Before this step what was sent last must be merged.
  int64_t attempt = 0;  // Tells this sending from ones that were broken off.
  int pending = 0;      // Transfers under way.
  int64_t steps = 0;    // That were done for it.
  double samples = 0;   // What was trained on in them,
  double planned = 0;   // and would have been in all of the round's.
};

// A lock-step site, or a worker alone.
struct Participant {
  std::vector<int> workers;  // All of them.
  int site = 0;
  int64_t epoch_steps = 0;
  int present = 0;  // Workers that are not absent.
  bool planned = true;
  bool started = false;

  StepMembers members;       // Those that train now.
  std::vector<int> joining;  // Those that wait for the next round of it to begin.
  StepLink link;
  bool in_step = false;
  bool waiting = false;             // For a transfer or a commit.
  bool repeat = false;              // Its round was dropped: from the model again.
  int64_t stamp = 0;                // Tells its step from ones that were broken off.
  int64_t step = 0;                 // Finished ones.
  int64_t position = 0;             // Finished ones, counted in those that the rounds have.
  Exchange model;                   // The whole model, before the first step.
  std::vector<Exchange> exchanges;  // [fragments]
};

// The open round of a fragment.
struct Book {
  int64_t round = 0;
  bool last_committed = true;  // The round before this one was committed, not dropped.
  double opened_s = 0;
  double deadline_s = kNever;
  double replan_s = kNever;
  double planned = 0;  // Samples.
  double samples = 0;
  double towards_quorum = 0;  // What the contributors had planned.
  int contributors = 0;
  int missing = 0;       // Participants that are there and not in.
  bool empty = false;    // There are participants, and none of them has a step to do in it.
  std::vector<bool> in;  // [participants]
  bool closing = false;  // Decided; the all-reduce runs.
};

struct Event {
  enum class Type { kStop, kReturn, kStepDone, kBeginPush, kBeginPull, kDecide, kCommit };
  double time_s = 0;
  int64_t sequence = 0;
  Type type = Type::kDecide;
  int index = 0;  // Of the worker or participant.
  int fragment = 0;
  int64_t stamp = 0;

  bool operator>(const Event& other) const {
    return std::tie(time_s, sequence) > std::tie(other.time_s, other.sequence);
  }
};

}  // namespace causeway::scheduler::internal

#endif  // CAUSEWAY_SCHEDULER_SIMULATION_STATE_H_
