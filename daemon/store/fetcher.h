#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/library.h"
#include "daemon/store/manifest.h"

namespace rumbo {

struct FetchProgress {
  uint64_t done = 0;
  std::optional<uint64_t> total;
  double bytes_per_s = 0;
  std::string step;
};

struct FetchedBlob {
  std::string sha256;
  uint64_t bytes = 0;
  uint64_t resumed = 0;
};

// Runs rumbo-fetch, one process per call, and speaks its lines. Blocking; any thread. `*stop` true asks it to
// keep what it has and end (kCancelled); it is killed where it does not within five seconds.
// Errors: what rumbo-fetch reports; kNotAllowedByPolicy where the daemon is offline.
class Fetcher {
 public:
  Fetcher(std::string bin_dir, FetchSettings settings, std::string folder);

  absl::StatusOr<RemoteModel> Hub(const std::string& repository, const std::string& revision,
                                  const std::atomic<bool>& stop) const;
  // `host` "" the configured registry. `bearer` as rumbo-fetch's "registry" gives it.
  absl::StatusOr<RemoteModel> Registry(const std::string& host, const std::string& repository,
                                       const std::string& tag, std::string* bearer,
                                       const std::atomic<bool>& stop) const;
  // `named` further hosts that the user named for this download.
  absl::StatusOr<FetchedBlob> Blob(const RemoteFile& file, const std::string& key, const std::string& bearer,
                                   const std::vector<std::string>& named, const std::atomic<bool>& stop,
                                   const std::function<void(const FetchProgress&)>& progress) const;
  // The first `bytes` of a file as a file of its full length, for rumbo-inspect.
  absl::Status Head(const RemoteFile& file, const std::string& name, uint64_t bytes,
                    const std::string& bearer, const std::vector<std::string>& named,
                    const std::atomic<bool>& stop) const;
  absl::StatusOr<std::vector<SearchHit>> Search(const std::string& query,
                                                const std::atomic<bool>& stop) const;

 private:
  struct Call;
  absl::StatusOr<std::string> Run(const std::string& request, const std::atomic<bool>& stop,
                                  const std::function<void(const FetchProgress&)>& progress) const;
  std::string RequestFor(const RemoteFile& file, const std::string& out, const std::string& bearer,
                         const std::vector<std::string>& named, std::optional<uint64_t> only_first) const;

  const std::string bin_dir_;
  const FetchSettings settings_;
  const std::string folder_;
};

}  // namespace rumbo
