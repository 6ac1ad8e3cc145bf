#pragma once

#include <memory>

#include "daemon/core/ports.h"
#include "devices/sys/root.h"

namespace rumbo {

// Battery and mains from /sys/class/power_supply, heat from /sys/class/hwmon, below `root`. Peripherals'
// batteries (a mouse) do not count, nor do sensors without a critical value or with one that cannot be.
std::unique_ptr<PowerSource> NewPowerSource(Root root = Root("/"));

}  // namespace rumbo
