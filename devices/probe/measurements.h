#pragma once

#include <string>
#include <vector>

#include "devices/api/topology.h"
#include "devices/vendors/vendor_facts.h"

namespace rumbo {

// Runs the timing kernels in children (`self` --vendor vulkan-measure, hip-measure), a minute each at most. A
// child that fails leaves a finding; a runtime that is not there leaves nothing.
std::vector<DeviceMeasurement> MeasureGpus(const std::string& self, std::vector<Finding>& findings);

// "gpu-measured.json" in `cache_dir`; empty where it is missing or broken, and nothing without a `cache_dir`.
std::vector<DeviceMeasurement> LoadMeasurements(const std::string& cache_dir);
bool StoreMeasurements(const std::string& cache_dir, const std::vector<DeviceMeasurement>& measured);

}  // namespace rumbo
