#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "daemon/core/calibration.h"
#include "daemon/core/types.h"

// What daemon/core needs from the outside world, each implemented elsewhere and faked in tests. All are
// asynchronous: calls return at once; callbacks may come on any thread, and core posts itself back to its
// executor.
namespace rumbo {

// Keeps models on disk. Implemented by daemon/store.
class ModelStore {
 public:
  virtual ~ModelStore() = default;
  virtual void List(Callback<std::vector<StoredModel>> done) = 0;
  // Hashes, copies, inspects and indexes a file. Nothing is left behind where it fails or `*cancelled` turns
  // true.
  virtual void Import(ImportSpec spec, std::shared_ptr<std::atomic<bool>> cancelled,
                      std::function<void(const StepProgress&)> progress, Callback<StoredModel> done) = 0;
  // Bytes freed.
  virtual void Delete(std::string name, Callback<Bytes> done) = 0;
  virtual void SetPinned(std::string name, bool pinned, Callback<bool> done) = 0;
};

// Reads a model file that is not in the store. Implemented by running rumbo-inspect.
class ModelInspector {
 public:
  virtual ~ModelInspector() = default;
  virtual void Inspect(std::string path, Callback<ModelDescriptor> done) = 0;
};

// The machine. Implemented by running rumbo-probe and by the cheap live reader.
class TopologySource {
 public:
  virtual ~TopologySource() = default;
  // A full probe.
  virtual void Probe(Callback<Topology> done) = 0;
  // Puts free and used figures of now into `topology`, the result of the last Probe; a device that is gone
  // becomes not present. Milliseconds at most, no vendor code. Blocking, on the core's executor. True where a
  // device came, went or changed its driver since that probe: time for a new one.
  virtual bool RefreshMemory(Topology& topology) = 0;
  // What the last RefreshMemory saw the devices do.
  virtual std::vector<DeviceLoad> Loads() { return {}; }
  // Bytes of `pool` that the process tree of `pid` really holds (not file-backed pages); nullopt where
  // unknown.
  virtual std::optional<Bytes> ProcessBytes(int64_t pid, const MemoryPool& pool) = 0;
  // A hardware profile. kNotFound (kProfileNotFound) with the nearest name.
  virtual absl::StatusOr<Topology> Profile(const std::string& name) = 0;
  virtual std::vector<std::string> ProfileNames() = 0;
};

// Keeps what was measured between runs of the daemon. Implemented by daemon/store.
class MeasurementLog {
 public:
  virtual ~MeasurementLog() = default;
  // Never blocks; written soon, in batches.
  virtual void Add(Measurement measurement) = 0;
};

// What all daemons of this machine have promised and not yet taken, so that none promises it twice.
class PromiseBoard {
 public:
  virtual ~PromiseBoard() = default;
  // Publishes ours and returns the sums of the others', by pool id. Milliseconds at most; blocking, on the
  // core's executor. Between Enter and Leave no other daemon is inside, so that what was read still holds
  // when it is written; where one hangs in there, we go on without.
  virtual void Enter() = 0;
  virtual std::map<std::string, Bytes> Exchange(const std::map<std::string, Bytes>& ours) = 0;
  virtual void Leave() = 0;
};

// Battery, mains and heat. Milliseconds at most; blocking, on the core's executor.
class PowerSource {
 public:
  virtual ~PowerSource() = default;
  virtual PowerState Read() = 0;
};

// What must be known again after the daemon was killed: who held leases. Asynchronous, in order.
class LeaseJournal {
 public:
  virtual ~LeaseJournal() = default;
  virtual void Save(std::vector<LeaseSpec> leases) = 0;
  virtual void Load(Callback<std::vector<LeaseSpec>> done) = 0;
};

// Wall time, for people and files only.
class WallClock {
 public:
  virtual ~WallClock() = default;
  virtual int64_t UnixSeconds() const = 0;
};

}  // namespace rumbo
