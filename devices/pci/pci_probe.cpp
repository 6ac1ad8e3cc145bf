#include "devices/pci/pci_probe.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace rumbo {
namespace {

constexpr uint32_t kAmdGraphics = 0x1002;
constexpr uint32_t kAmd = 0x1022;
constexpr uint32_t kNvidia = 0x10de;
constexpr uint32_t kIntel = 0x8086;

bool Among(uint32_t value, std::initializer_list<uint32_t> set) {
  return std::find(set.begin(), set.end(), value) != set.end();
}

// Drawn by a hypervisor or a management controller: a DRM card that computes nothing.
bool IsVirtualDisplay(uint32_t vendor, uint32_t device) {
  return (vendor == 0x1af4 && device == 0x1050) || (vendor == 0x1b36 && device == 0x0100) ||
         (vendor == 0x15ad && device == 0x0405) || (vendor == 0x1234 && device == 0x1111) ||
         (vendor == 0x80ee && device == 0xbeef) || (vendor == 0x1013 && device == 0x00b8) ||
         (vendor == 0x1414 && device == 0x5353) || vendor == 0x1a03 || vendor == 0x102b;
}

// AMD's class 1180 also holds the sensor hub, so ids decide; the last six are announced parts.
bool IsAmdNpu(uint32_t vendor, uint32_t device) {
  return vendor == kAmd && Among(device, {0x1502, 0x17f0, 0x17f1, 0x17f2, 0x17f3, 0x1b0a, 0x1b0b, 0x1b0c});
}

bool IsIntelNpu(uint32_t vendor, uint32_t device, const std::string& driver) {
  return vendor == kIntel && (driver == "intel_vpu" || Among(device, {0x7d1d, 0xad1d, 0x643e, 0xb03e}));
}

// nullopt: nothing that computes or draws.
std::optional<PciKind> KindOf(const PciFunction& f) {
  const uint32_t vendor = f.vendor.value_or(0);
  const uint32_t device = f.device.value_or(0);
  if (IsAmdNpu(vendor, device) || f.driver == "amdxdna") return PciKind::kNpu;
  if (IsIntelNpu(vendor, device, f.driver)) return PciKind::kNpu;
  const uint32_t base = f.device_class.value_or(0) >> 16;
  if (base == 0x03) return IsVirtualDisplay(vendor, device) ? PciKind::kVirtualDisplay : PciKind::kGpu;
  if (base == 0x12 && Among(vendor, {kAmdGraphics, kNvidia, kIntel})) return PciKind::kGpu;
  return std::nullopt;
}

std::optional<uint32_t> Hex32(std::string_view text) {
  const auto n = ParseHex(text);
  return n && *n <= 0xffffffffu ? std::optional(static_cast<uint32_t>(*n)) : std::nullopt;
}

// "KEY=value" of a uevent file; "" where absent.
std::string_view Uevent(std::string_view text, std::string_view key) {
  for (std::string_view line : Lines(text)) {
    if (line.size() > key.size() && line.starts_with(key) && line[key.size()] == '=') {
      return Trim(line.substr(key.size() + 1));
    }
  }
  return {};
}

// Archived trees lose links and files, so each fact has two places.
void ReadIdentity(const Root& root, PciFunction& f) {
  const FileText uevent = root.Read(f.dir + "/uevent");
  f.vendor = Hex32(root.Read(f.dir + "/vendor").text);
  f.device = Hex32(root.Read(f.dir + "/device").text);
  f.revision = Hex32(root.Read(f.dir + "/revision").text);
  f.device_class = Hex32(root.Read(f.dir + "/class").text);
  const std::string_view id = Uevent(uevent.text, "PCI_ID");  // "1002:150E"
  if (const size_t colon = id.find(':'); colon != std::string_view::npos) {
    if (!f.vendor) f.vendor = Hex32(id.substr(0, colon));
    if (!f.device) f.device = Hex32(id.substr(colon + 1));
  }
  if (!f.device_class) f.device_class = Hex32(Uevent(uevent.text, "PCI_CLASS"));
  f.driver = root.LinkName(f.dir + "/driver");
  if (f.driver.empty()) f.driver = Uevent(uevent.text, "DRIVER").substr(0, 64);
  if (f.address.empty()) f.address = PciAddress(Uevent(uevent.text, "PCI_SLOT_NAME"));
  if (f.address.empty()) f.address = PciAddress(root.LinkName(f.dir));
}

void ReadState(const Root& root, PciFunction& f) {
  const auto node = ParseI64(root.Read(f.dir + "/numa_node").text);
  if (node && *node >= 0 && *node < 4096) f.numa_node = static_cast<int>(*node);
  f.virtual_function = root.Exists(f.dir + "/physfn");
  f.iommu_group = root.Exists(f.dir + "/iommu_group");
  f.runtime_status = root.Read(f.dir + "/power/runtime_status").text;
}

// The slowest link from the function up to the root port. Speeds are each port's best, because idle links
// slow down to save power; widths are the negotiated ones. An Intel card shows 2.5 GT/s x1 behind its own
// switch whatever the slot runs at, so those entries are left out.
void ReadLink(const Root& root, PciFunction& f) {
  std::string dir = f.dir;
  for (int level = 0; level < 16; ++level, dir += "/..") {
    const std::string max_speed = root.Read(dir + "/max_link_speed").text;
    const std::string now_speed = root.Read(dir + "/current_link_speed").text;
    std::string width = root.Read(dir + "/current_link_width").text;
    if (width.empty()) width = root.Read(dir + "/max_link_width").text;
    if (width.empty() && max_speed.empty() && now_speed.empty()) break;
    const std::string& speed = max_speed.empty() ? now_speed : max_speed;
    if (f.vendor == kIntel && speed.starts_with("2.5") && width == "1") continue;
    const auto rate = LinkRate(speed, width);
    if (!rate || (f.link_bytes_s && *rate >= *f.link_bytes_s)) continue;
    f.link_bytes_s = rate;
    f.link_source = fmt::format("sysfs {} link: {} x{}", level == 0 ? "card" : "bridge", speed, width);
    if (max_speed.empty()) f.link_source += " (current; may be slowed by power saving)";
  }
}

// "card1" or "renderD128", not "card1-DP-1".
bool NumberAfter(std::string_view name, std::string_view prefix, int& number) {
  if (!name.starts_with(prefix)) return false;
  const auto n = ParseU64(name.substr(prefix.size()));
  if (!n || *n > 1000000) return false;
  number = static_cast<int>(*n);
  return true;
}

class Enumerator {
 public:
  explicit Enumerator(const Root& root) : root_(root) {}

  void Bus() {
    for (const std::string& name : root_.List("/sys/bus/pci/devices")) {
      PciFunction f;
      f.address = PciAddress(name);
      f.dir = "/sys/bus/pci/devices/" + name;
      if (!f.address.empty()) Add(std::move(f));
    }
  }

  void Cards() {
    for (const std::string& name : root_.List("/sys/class/drm")) {
      int number = 0;
      if (NumberAfter(name, "card", number))
        Card(name);
      else if (NumberAfter(name, "renderD", number))
        Render(name, number);
    }
  }

  // NPUs of trees without a PCI bus.
  void Accel() {
    for (const std::string& name : root_.List("/sys/class/accel")) {
      PciFunction f;
      f.dir = "/sys/class/accel/" + name + "/device";
      ReadIdentity(root_, f);
      if (!f.address.empty() && found_.contains(f.address)) continue;
      if (f.address.empty()) f.key = name;
      if (KindOf(f) == PciKind::kNpu) Add(std::move(f));
    }
  }

  std::vector<PciFunction> Take() {
    std::vector<PciFunction> out;
    for (auto& [key, f] : found_) {
      if (f.render_minor) f.render_node = root_.Access(fmt::format("/dev/dri/renderD{}", *f.render_minor));
      out.push_back(std::move(f));
    }
    return out;
  }

 private:
  PciFunction* Add(PciFunction f) {
    // Most functions of a machine are bridges and controllers: two reads decide.
    f.device_class = Hex32(root_.Read(f.dir + "/class").text);
    if (f.device_class && !Among(*f.device_class >> 16, {0x03, 0x11, 0x12})) return nullptr;
    ReadIdentity(root_, f);
    const auto kind = KindOf(f);
    if (!kind) return nullptr;
    f.kind = *kind;
    if (f.key.empty()) f.key = f.address;
    ReadState(root_, f);
    ReadLink(root_, f);
    const std::string key = f.key;
    return &found_.emplace(key, std::move(f)).first->second;
  }

  void Card(const std::string& name) {
    const std::string dir = "/sys/class/drm/" + name + "/device";
    PciFunction f;
    f.dir = dir;
    ReadIdentity(root_, f);
    if (const auto it = found_.find(f.address); !f.address.empty() && it != found_.end()) {
      if (it->second.card.empty()) it->second.card = name;
      return;
    }
    if (!f.vendor) return;  // a platform or virtual card: no PCI device behind it
    f.key = f.address.empty() ? name : f.address;
    f.card = name;
    // A card whose class the tree lost still drives a display or computes.
    if (!f.device_class) f.device_class = 0x030000;
    f.kind = KindOf(f).value_or(PciKind::kGpu);
    ReadState(root_, f);
    ReadLink(root_, f);
    const std::string key = f.key;
    found_.emplace(key, std::move(f));
  }

  void Render(const std::string& name, int minor) {
    PciFunction f;
    f.dir = "/sys/class/drm/" + name + "/device";
    ReadIdentity(root_, f);
    if (f.address.empty()) return;  // a compute partition's platform device
    if (const auto it = found_.find(f.address); it != found_.end()) it->second.render_minor = minor;
  }

  const Root& root_;
  std::map<std::string, PciFunction> found_;
};

}  // namespace

std::string PciAddress(std::string_view text) {
  text = Trim(text);
  const size_t dot = text.rfind('.');
  const size_t colon = text.rfind(':');
  if (dot == std::string_view::npos || colon == std::string_view::npos || colon > dot) return "";
  const size_t first = text.rfind(':', colon - 1);
  const bool with_domain = colon > 0 && first != std::string_view::npos;
  const std::string_view bus_text =
      with_domain ? text.substr(first + 1, colon - first - 1) : text.substr(0, colon);
  const auto domain = with_domain ? ParseHex(text.substr(0, first)) : std::optional<uint64_t>(0);
  const auto bus = ParseHex(bus_text);
  const auto slot = ParseHex(text.substr(colon + 1, dot - colon - 1));
  const auto function = ParseHex(text.substr(dot + 1));
  if (!domain || !bus || !slot || !function) return "";
  if (*domain > 0xffffffff || *bus > 0xff || *slot > 0x1f || *function > 7) return "";
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", *domain, *bus, *slot, *function);
}

std::optional<double> LinkRate(std::string_view speed, std::string_view width) {
  // GT/s -> bytes/s of one lane after line coding (8b/10b, 128b/130b, PAM4 with flits).
  static constexpr std::pair<std::string_view, double> kLanes[] = {
      {"2.5", 250e6}, {"5.0", 500e6}, {"8.0", 984.6e6}, {"16.0", 1969e6}, {"32.0", 3938e6}, {"64.0", 7563e6}};
  const auto words = Words(speed);
  const auto lanes = ParseU64(width);
  if (words.size() < 2 || words[1] != "GT/s" || !lanes || *lanes == 0 || *lanes > 32) return std::nullopt;
  for (const auto& [name, rate] : kLanes) {
    if (words[0] == name || words[0] == name.substr(0, name.find('.'))) {
      if (name == "2.5" && words[0] != name) continue;
      return rate * static_cast<double>(*lanes);
    }
  }
  return std::nullopt;
}

std::string PciId(const PciFunction& f) {
  if (!f.vendor || !f.device) return "";
  return fmt::format("{:04x}:{:04x}", *f.vendor, *f.device);
}

std::vector<PciFunction> ReadPci(const Root& root) {
  Enumerator enumerator(root);
  enumerator.Bus();
  enumerator.Cards();
  enumerator.Accel();
  return enumerator.Take();
}

}  // namespace rumbo
