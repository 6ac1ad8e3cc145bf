#include "devices/api/topology.h"

#include "base/check.h"

namespace rumbo {

const char* Word(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kGpu:
      return "gpu";
    case DeviceKind::kNpu:
      return "npu";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

const char* Word(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kHost:
      return "host";
    case MemoryKind::kDiscrete:
      return "discrete";
    case MemoryKind::kUnified:
      return "unified";
    case MemoryKind::kUnknown:
      return "unknown";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

const char* Word(PoolKind kind) {
  switch (kind) {
    case PoolKind::kSystem:
      return "system";
    case PoolKind::kVram:
      return "vram";
    case PoolKind::kCarveout:
      return "carveout";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

const char* Word(LimitKind kind) {
  switch (kind) {
    case LimitKind::kGtt:
      return "gtt";
    case LimitKind::kTtm:
      return "ttm";
    case LimitKind::kKfd:
      return "kfd";
    case LimitKind::kCgroup:
      return "cgroup";
    case LimitKind::kReserve:
      return "reserve";
    case LimitKind::kOther:
      return "other";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

const char* Word(Severity severity) {
  switch (severity) {
    case Severity::kInfo:
      return "info";
    case Severity::kWarning:
      return "warning";
    case Severity::kBroken:
      return "broken";
  }
  RUMBO_CHECK(false);
  return "";  // never: but some sanitizers hide that the line above does not return
}

}  // namespace rumbo
