#pragma once

#include "rumbo/client.h"

namespace rumbo::cli {

struct LocalReport {
  std::vector<Finding> findings;  // worst first
  std::string json;               // the same as one document, keys as the daemon's
};

// What can be told while no daemon runs: rumbo-probe, beside this program, looks at the machine, and the
// first thing said is that there is no daemon. Blocking, 20 seconds at most. A probe that fails is a finding.
LocalReport DoctorWithoutDaemon();

}  // namespace rumbo::cli
