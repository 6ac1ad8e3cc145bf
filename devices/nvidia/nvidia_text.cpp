#include "devices/nvidia/nvidia_text.h"

#include <algorithm>
#include <charconv>
#include <functional>

#include "devices/pci/pci_probe.h"

namespace rumbo {
namespace {

constexpr size_t kMaxGpus = 1024;
constexpr size_t kMaxDepth = 32;

// Both long formats as a walk over (path of snake_case names, value); a group has an empty value.
using Path = std::vector<std::string>;
using Sink = std::function<void(const Path&, std::string_view)>;

std::string Snake(std::string_view name) {
  std::string out = Lower(name);
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

// Just enough XML for nvidia-smi: elements, one attribute ("id"), no entities, no CDATA.
void WalkXml(std::string_view text, const Sink& sink) {
  Path path;
  size_t at = 0;
  while ((at = text.find('<', at)) != std::string_view::npos) {
    const size_t end = text.find('>', at);
    if (end == std::string_view::npos) return;
    std::string_view tag = text.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.empty() || tag.front() == '?' || tag.front() == '!') continue;
    if (tag.front() == '/') {
      if (!path.empty()) path.pop_back();
      continue;
    }
    const bool closed = tag.ends_with('/');
    if (closed) tag.remove_suffix(1);
    const size_t blank = std::min(tag.find(' '), tag.size());
    if (path.size() == kMaxDepth) return;
    path.emplace_back(tag.substr(0, blank));
    std::string_view value = Trim(text.substr(at, std::min(text.find('<', at), text.size()) - at));
    if (const size_t id = tag.find("id=\""); value.empty() && id != std::string_view::npos) {
      const std::string_view rest = tag.substr(id + 4);
      value = rest.substr(0, rest.find('"'));
    }
    sink(path, value);
    if (closed) path.pop_back();
  }
}

// "    Key name      : value" with four blanks per level; a group has no colon. "GPU 0000:..." opens a GPU.
void WalkQuery(std::string_view text, const Sink& sink) {
  Path path;
  for (std::string_view line : Lines(text)) {
    const size_t indent = line.find_first_not_of(' ');
    if (indent == std::string_view::npos) continue;
    const size_t depth = std::min(indent / 4, kMaxDepth);
    const size_t colon = line.find(" : ");
    const std::string_view key = Trim(line.substr(0, colon));
    path.resize(std::min(path.size(), depth));
    if (depth == 0 && key.starts_with("GPU ") && colon == std::string_view::npos) {
      path = {"gpu"};
      sink(path, key.substr(4));
      continue;
    }
    path.push_back(Snake(key));
    sink(path, colon == std::string_view::npos ? std::string_view() : Trim(line.substr(colon + 3)));
  }
}

bool NotThere(std::string_view value) {
  return value == "N/A" || value == "[N/A]" || value == "Not Supported" || value == "[Not Supported]";
}

std::optional<Bytes> Mebibytes(std::string_view value) {
  const auto words = Words(value);
  if (words.size() != 2 || words[1] != "MiB") return std::nullopt;
  const auto n = ParseU64(words[0]);
  return n ? CheckedMul(*n, kMiB) : std::nullopt;
}

std::optional<double> Watts(std::string_view value) {
  const auto words = Words(value);
  double watts = 0;
  if (words.size() != 2 || words[1] != "W") return std::nullopt;
  const auto [end, error] = std::from_chars(words[0].data(), words[0].data() + words[0].size(), watts);
  if (error != std::errc() || !(watts > 0) || watts > 1e5) return std::nullopt;
  return watts;
}

std::optional<int> LeadingInt(std::string_view value) {
  size_t digits = 0;
  while (digits < value.size() && value[digits] >= '0' && value[digits] <= '9') ++digits;
  const auto n = ParseU64(value.substr(0, digits));
  return n && *n < 100000 ? std::optional(static_cast<int>(*n)) : std::nullopt;
}

// Gives names and values of either format to the facts.
class Collector {
 public:
  explicit Collector(NvidiaFacts& out) : out_(out) {}

  void operator()(const Path& path, std::string_view value) {
    const std::string& key = path.back();
    const std::string parent = path.size() > 1 ? path[path.size() - 2] : "";
    if (key == "driver_version") return Set(out_.driver_version, value);
    if (key == "cuda_version") return Set(out_.cuda_version, value);
    if (key == "gpu" && path.size() <= 2 && !PciAddress(value).empty() && out_.gpus.size() < kMaxGpus) {
      out_.gpus.emplace_back().address = PciAddress(value);
      return;
    }
    if (out_.gpus.empty()) return;
    if (key == "mig_device") {
      if (out_.gpus.back().mig.size() < 64) out_.gpus.back().mig.emplace_back();
    } else if (std::find(path.begin(), path.end(), "mig_device") != path.end()) {
      Mig(parent, key, value);
    } else if (parent == "fb_memory_usage") {
      Memory(key, value);
    } else {
      Gpu(parent, key, value);
    }
  }

 private:
  static void Set(std::string& out, std::string_view value) {
    if (!NotThere(value)) out = value.substr(0, 200);
  }

  void Mig(const std::string& parent, const std::string& key, std::string_view value) {
    if (out_.gpus.back().mig.empty()) return;
    MigInstance& mig = out_.gpus.back().mig.back();
    if (key == "gpu_instance_id") mig.gpu_instance = LeadingInt(value).value_or(-1);
    if (key == "compute_instance_id") mig.compute_instance = LeadingInt(value).value_or(-1);
    if (key == "uuid" || key == "mig_uuid") Set(mig.uuid, value);
    if (parent != "fb_memory_usage") return;
    if (key == "total") mig.total = Mebibytes(value);
    if (key == "used") mig.used = Mebibytes(value);
  }

  void Memory(const std::string& key, std::string_view value) {
    NvidiaGpu& gpu = out_.gpus.back();
    if (key == "total") {
      gpu.total = Mebibytes(value);
      gpu.memory_not_supported = NotThere(value);
    }
    if (key == "used") gpu.used = Mebibytes(value);
    if (key == "free") gpu.free = Mebibytes(value);
    if (key == "reserved") gpu.reserved = Mebibytes(value);
  }

  void Gpu(const std::string& parent, const std::string& key, std::string_view value) {
    NvidiaGpu& gpu = out_.gpus.back();
    if (key == "product_name") Set(gpu.name, value);
    if (key == "uuid" || key == "gpu_uuid") Set(gpu.uuid, value);
    if (parent == "bar1_memory_usage" && key == "total") gpu.bar1_total = Mebibytes(value);
    if (key == "current_mig" || (parent == "mig_mode" && key == "current")) {
      if (!NotThere(value)) gpu.mig_enabled = value == "Enabled";
    }
    if (key == "current_ecc" || (parent == "ecc_mode" && key == "current")) {
      if (!NotThere(value)) gpu.ecc = value == "Enabled";
    }
    if (key == "default_power_limit") gpu.power_limit_w = Watts(value);
    if (key == "gpu_util" || (parent == "utilization" && key == "gpu"))
      gpu.utilization_percent = LeadingInt(value);
    if (key == "max_link_gen" || (parent == "pcie_generation" && key == "max"))
      gpu.pcie_generation = LeadingInt(value);
    if (key == "max_link_width" || (parent == "link_width" && key == "max"))
      gpu.pcie_width = LeadingInt(value);
  }

  NvidiaFacts& out_;
};

std::vector<std::string_view> Cells(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    const size_t bar = std::min(line.find('|'), line.size());
    if (const auto cell = Trim(line.substr(0, bar)); !cell.empty()) out.push_back(cell);
    line.remove_prefix(std::min(bar + 1, line.size()));
  }
  return out;
}

// The default table: "|  0  NVIDIA H200  On | 00000000:83:00.0 Off | 0 |", then a line with memory.
void ReadTable(std::string_view text, NvidiaFacts& out) {
  bool memory_next = false;
  for (std::string_view line : Lines(text)) {
    const auto cells = Cells(line);
    if (const size_t at = line.find("Driver Version: "); at != std::string_view::npos) {
      out.driver_version = Words(line.substr(at + 16)).empty() ? "" : Words(line.substr(at + 16))[0];
    }
    if (cells.size() < 3) {
      memory_next = false;
      continue;
    }
    if (memory_next) {  // "0MiB / 143771MiB"
      memory_next = false;
      const std::string_view cell = cells[1];
      const auto slash = cell.find('/');
      const auto size = [](std::string_view s) {
        s = Trim(s);
        if (!s.ends_with("MiB")) return std::optional<Bytes>();
        const auto n = ParseU64(s.substr(0, s.size() - 3));
        return n ? CheckedMul(*n, kMiB) : std::optional<Bytes>();
      };
      NvidiaGpu& gpu = out.gpus.back();
      gpu.memory_not_supported = NotThere(cell);
      if (slash == std::string_view::npos) continue;
      gpu.used = size(cell.substr(0, slash));
      gpu.total = size(cell.substr(slash + 1));
      continue;
    }
    const auto first = Words(cells[0]);
    const auto second = Words(cells[1]);
    if (first.size() < 3 || second.empty() || !ParseU64(first[0])) continue;
    const std::string address = PciAddress(second[0]);
    if (address.empty() || out.gpus.size() == kMaxGpus) continue;
    NvidiaGpu& gpu = out.gpus.emplace_back();
    gpu.address = address;
    for (size_t i = 1; i + 1 < first.size(); ++i) gpu.name += (i > 1 ? " " : "") + std::string(first[i]);
    memory_next = true;
  }
}

}  // namespace

NvidiaFacts ParseNvidiaSmi(std::string_view text) {
  NvidiaFacts out;
  if (text.find("<nvidia_smi_log") != std::string_view::npos)
    WalkXml(text, Collector(out));
  else if (text.find("NVSMI LOG") != std::string_view::npos)
    WalkQuery(text, Collector(out));
  else
    ReadTable(text, out);
  for (NvidiaGpu& gpu : out.gpus) {
    if (gpu.total && gpu.free && *gpu.free > *gpu.total) gpu.free = gpu.total;
    if (!gpu.free && gpu.total && gpu.used) gpu.free = SaturatingSub(*gpu.total, *gpu.used);
  }
  if (!out.gpus.empty()) out.source = "nvidia-smi";
  return out;
}

NvidiaFacts ReadNvidiaProc(const Root& root) {
  NvidiaFacts out;
  out.driver_version = root.Read("/sys/module/nvidia/version").text.substr(0, 64);
  for (const std::string& name : root.List("/proc/driver/nvidia/gpus")) {
    NvidiaGpu gpu;
    gpu.address = PciAddress(name);
    if (gpu.address.empty() || out.gpus.size() == kMaxGpus) continue;
    const FileText text = root.Read("/proc/driver/nvidia/gpus/" + name + "/information");
    for (std::string_view line : Lines(text.text)) {  // "Model: \t NVIDIA GeForce RTX 3090"
      const size_t colon = line.find(':');
      if (colon == std::string_view::npos) continue;
      const std::string_view key = line.substr(0, colon);
      const std::string_view value = Trim(line.substr(colon + 1)).substr(0, 200);
      if (key == "Model") gpu.name = value;
      if (key == "GPU UUID" && value.find('?') == std::string_view::npos) gpu.uuid = value;
      if (key == "GPU Firmware" && out.driver_version.empty() && value != "N/A") out.driver_version = value;
    }
    out.gpus.push_back(std::move(gpu));
  }
  if (!out.gpus.empty()) out.source = "proc";
  return out;
}

}  // namespace rumbo
