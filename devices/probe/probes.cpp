#include "devices/accel/accel_probe.h"
#include "devices/amdgpu/amdgpu_probe.h"
#include "devices/cpu/host_probe.h"
#include "devices/drm/drm_probe.h"
#include "devices/kfd/kfd_probe.h"
#include "devices/pci/pci_probe.h"
#include "devices/probe/probe.h"
#include "devices/tools/tool_probe.h"

namespace rumbo {
namespace {

using Functions = std::vector<PciFunction>;

class PciProbeImpl final : public Probe {
 public:
  std::string_view name() const override { return "pci"; }
  Apply Read(const Root& root, const Functions&) const override {
    return [found = ReadPci(root)](Facts& facts) { facts.pci = found; };
  }
};

class HostProbe final : public Probe {
 public:
  std::string_view name() const override { return "host"; }
  Apply Read(const Root& root, const Functions&) const override {
    return [host = ReadHost(root), has_dev = root.Exists("/dev")](Facts& facts) {
      facts.host = host;
      facts.has_dev = has_dev;
    };
  }
};

class AmdgpuProbe final : public Probe {
 public:
  std::string_view name() const override { return "amdgpu"; }
  Apply Read(const Root& root, const Functions& functions) const override {
    return [found = ReadAmdgpu(root, functions)](Facts& facts) { facts.amdgpu = found; };
  }
};

class KfdProbe final : public Probe {
 public:
  std::string_view name() const override { return "kfd"; }
  Apply Read(const Root& root, const Functions&) const override {
    return [found = ReadKfd(root)](Facts& facts) { facts.kfd = found; };
  }
};

class DrmProbe final : public Probe {
 public:
  std::string_view name() const override { return "drm"; }
  Apply Read(const Root& root, const Functions& functions) const override {
    return [found = ReadDrm(root, functions)](Facts& facts) { facts.drm = found; };
  }
};

class AccelProbe final : public Probe {
 public:
  std::string_view name() const override { return "accel"; }
  Apply Read(const Root& root, const Functions& functions) const override {
    return [found = ReadNpus(root, functions)](Facts& facts) { facts.npus = found; };
  }
};

class ToolProbe final : public Probe {
 public:
  std::string_view name() const override { return "tools"; }
  Apply Read(const Root& root, const Functions&) const override {
    return [found = ReadTools(root)](Facts& facts) { MergeTools(found, facts); };
  }
};

}  // namespace

const Probe& PciProbe() {
  static const PciProbeImpl* probe = new PciProbeImpl();
  return *probe;
}

const std::vector<const Probe*>& EnrichingProbes() {
  static const auto* probes =
      new std::vector<const Probe*>{new HostProbe(),  new AmdgpuProbe(), new KfdProbe(), new DrmProbe(),
                                    new AccelProbe(), new ToolProbe()};  // last: it fills gaps
  return *probes;
}

}  // namespace rumbo
