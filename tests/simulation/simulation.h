#pragma once

#include <cstdint>
#include <string>

namespace rumbo::simulation {

struct Result {
  std::string violation;  // "" where every invariant held
  std::string trace;      // the last steps before it
  uint64_t steps = 0;
  uint64_t requests = 0;
  uint64_t launches = 0;
};

// One schedule: the core with fake engines under a virtual clock; clients that submit, cancel, load, unload
// and pin; and engines that load slowly, fail, crash, fall silent and recover, all at random from `seed` and
// nothing else. The same seed gives the same schedule. After the faults stop, everything must come to its
// end, and every model must serve.
//
// Checked after every step:
//   - a request ends once, nothing comes after its end, its tokens come in order and none twice
//   - a cancelled request has ended, and none outlives its deadline
//   - the processes that live never take more than the memory there is, nor more requests than sessions
//   - nobody pinned and nobody at work is evicted; nobody leased unless its holders knew 5 s before
//   - what a lease hears makes sense: granted once, asked to yield what it has, given back what it lost
//   - no error is of the kind "internal"
Result RunSchedule(uint64_t seed);

}  // namespace rumbo::simulation
