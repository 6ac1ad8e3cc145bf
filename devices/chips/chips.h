#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "devices/api/topology.h"

// What is known about chips by their ids: the data of chips.yaml, compiled in.
namespace rumbo {

struct Chip {
  std::string id;  // "amd-radeon-ai-pro-r9700"
  DeviceKind kind = DeviceKind::kGpu;
  std::string vendor;
  std::string name;
  std::vector<std::string> pci;        // "1002:7551"; empty: not to be recognised by id
  std::vector<std::string> revisions;  // "c0"; empty: any
  std::string gfx_target;
  MemoryKind memory_kind = MemoryKind::kUnknown;
  std::optional<int> compute_units;
  std::vector<std::string> number_formats;
  // Peaks and nominal figures; each with its source.
  Sourced<double> bandwidth_bytes_s, fp16_flops, bf16_flops, fp8_flops, int8_ops, fp32_flops;
  Sourced<double> power_watts, link_bytes_s;
};

class ChipTable {
 public:
  // Errors: kInvalidArgument where the text is not YAML, a field has the wrong type or an id comes twice.
  static absl::StatusOr<ChipTable> Parse(std::string_view yaml);

  // The table compiled into this program. Parsed once; thread-safe.
  static const ChipTable& BuiltIn();

  // By PCI id, best match first: an entry that names the revision, then, where the revision is unknown, one
  // of the runtime's `name`, then one for all. nullptr: unknown.
  const Chip* FindPci(std::string_view pci_id, std::string_view revision, std::string_view name = "") const;
  const Chip* FindId(std::string_view id) const;
  const std::vector<Chip>& chips() const { return chips_; }

 private:
  std::vector<Chip> chips_;
};

// Copies the chip's figures into `device` where those are still unknown; `origin` ("table", "profile x")
// goes before each source.
void FillFrom(const Chip& chip, std::string_view origin, Device& device);

}  // namespace rumbo
