#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "devices/assemble/facts.h"
#include "devices/sys/root.h"

namespace rumbo {

// One reader of /sys, /proc or /dev. Implementations never throw, never write, never block on purpose, and
// read malformed trees without harm: missing is unknown. Contract suite:
// tests/contract/probe_contract_test.cpp.
//
// Threading: stateless; probes run side by side.
class Probe {
 public:
  // Adds what was read to the facts. Separate from reading, so that a probe that came too late adds nothing.
  using Apply = std::function<void(Facts&)>;

  virtual ~Probe() = default;
  virtual std::string_view name() const = 0;
  // `functions` is what the PCI probe found (empty for the PCI probe itself).
  virtual Apply Read(const Root& root, const std::vector<PciFunction>& functions) const = 0;
};

// First the PCI probe, then those that enrich what it found; all live for the whole program.
const Probe& PciProbe();
const std::vector<const Probe*>& EnrichingProbes();

}  // namespace rumbo
