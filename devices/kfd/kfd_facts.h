#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "devices/sys/root.h"

namespace rumbo {

// One GPU node of the KFD topology; on a partitioned card one per partition.
struct KfdNode {
  int index = 0;
  std::string address;     // from domain and location_id; "" where both are absent
  std::string name;        // "ip discovery", "gfx1151" ...; "" unknown
  std::string gfx_target;  // "gfx1151"; "" on kernels that do not say
  std::optional<uint32_t> vendor, device;
  std::optional<int> render_minor;
  std::optional<int> compute_units;      // simd_count / simd_per_cu
  std::optional<Bytes> vram_bank_bytes;  // banks of type 1 and 2, else local_mem_size where not 0
  std::string unique_id;                 // equal for all partitions of one card; "" meaningless
  bool says_address = false;             // location_id present
  bool cwsr_size = false;                // kernels with the gfx1151 context-save fix list it
  bool xgmi = false;                     // hive_id not 0
};

struct KfdFacts {
  bool present = false;                // the topology folder exists
  NodeAccess node;                     // /dev/kfd
  std::vector<KfdNode> gpus;           // in KFD order, which is HIP's
  std::optional<Bytes> system_bytes;   // main memory: banks of the CPU nodes
  std::vector<std::string> malformed;  // "node 3: gfx_target_version"
};

}  // namespace rumbo
