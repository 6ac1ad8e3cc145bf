#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "devices/api/topology.h"
#include "devices/sys/root.h"

// What changes from second to second on a machine whose topology is known: free memory, load, and whether the
// devices are still there. For the daemon to call at a low rate.
namespace rumbo {

struct PoolReading {
  std::string id;
  std::optional<Bytes> free_bytes;
};

struct LimitReading {
  std::string id;
  std::optional<Bytes> used_bytes;
};

struct DeviceReading {
  std::string id;
  std::optional<double> busy;  // 0 to 1, of this moment
  std::optional<double> power_watts;
  std::optional<double> temperature_c;
  bool suspended = false;  // asleep and left so; its last numbers stand
  bool lost = false;       // was there when the topology was made and is gone, or has no driver any more
  std::string lost_reason;
};

struct LiveReading {
  std::vector<PoolReading> pools;  // those this reader can tell; others keep what the topology says
  std::vector<LimitReading> limits;
  // GPUs and NPUs; the CPU too where there is one, from the second reading on.
  std::vector<DeviceReading> devices;
  // Changes when a GPU or NPU appears, disappears, or its driver is loaded anew: time to probe again.
  std::string signature;
};

// What LiveReading::signature says of `root` at this moment. Taken before a probe it tells whether something
// changed while that ran.
std::string MachineSignature(const Root& root);

// Reads sysfs and procfs only: no vendor library, no device node. A suspended card is not woken: reading its
// load would, so only its power state is read. NVIDIA and Intel cards show no memory in sysfs, so their pools
// are missing here; run rumbo-probe again where those matter.
//
// Threading: one thread at a time. Blocks as long as the kernel takes (about 0.2 ms on a machine with one
// card).
class LiveReader {
 public:
  explicit LiveReader(const Topology& topology, Root root = Root("/"));

  LiveReading Read();

 private:
  struct Watched {
    std::string id;
    std::string dir;     // sysfs folder of the function; "" where the tree has none
    std::string driver;  // when the topology was made
    std::string temperature_file;
    std::string power_file;  // hwmon, microwatts
    std::string vram_pool;   // the pool whose use mem_info_vram_used tells; "" none
    std::optional<Bytes> vram_total;
    std::string gtt_limit;  // the limit whose use mem_info_gtt_used tells; "" none
    bool npu = false;
    std::optional<uint64_t> npu_busy_us;  // intel_vpu, at the last reading
    std::optional<std::int64_t> npu_read_at_us;
  };

  void Watch(const Device& device, const Topology& topology);
  void ReadSystem(LiveReading& out) const;
  void ReadCpu(LiveReading& out);
  void ReadDevice(Watched& watched, LiveReading& out) const;

  Root root_;
  std::map<std::string, std::string> dirs_;  // PciFunction key -> folder, as of construction
  std::vector<Watched> watched_;
  std::optional<Bytes> system_total_;
  std::string cpu_;                        // id of the one CPU; "" where there are none or several
  uint64_t cpu_busy_ = 0, cpu_total_ = 0;  // ticks of /proc/stat at the last reading
  bool has_cgroup_limit_ = false;
};

// Puts a reading's numbers into a topology made before it. A lost device becomes not present, not usable.
void ApplyLive(const LiveReading& reading, Topology& topology);

}  // namespace rumbo
