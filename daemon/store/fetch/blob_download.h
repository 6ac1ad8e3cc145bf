#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/fetch/web.h"

namespace rumbo {

struct BlobRequest {
  std::vector<Url> urls;          // the same content; the next is tried where one fails
  std::string out;                // path of the file, which is made or gone on with; beside it out.journal
  std::optional<uint64_t> bytes;  // as the hub says; another length is refused
  std::string sha256;             // "" unknown: whatever comes is taken
  std::string git_sha1;           // checked where there is no sha256
  std::string bearer;             // for the first URL's origin
  std::optional<uint64_t> only_first;  // nothing but so many bytes, not journalled, file extended to its size
};

struct BlobProgress {
  uint64_t done = 0;
  std::optional<uint64_t> total;
  double bytes_per_s = 0;  // over the last seconds
  std::string step;        // "download", "verify"
};

struct BlobResult {
  std::string sha256;
  uint64_t bytes = 0;
  uint64_t resumed = 0;  // bytes that were there from an earlier try
};

// Downloads one file: several ranges at once where the server can, hashed as it comes, what is durable
// written down in the journal at least every second, so that a death at any moment loses a second's work. At
// the end the file is synced and has the right hash, or it is not there.
//
// Blocking; three threads of its own while it runs. `progress` comes on one of them, a few times a second.
// `*stop` true ends it with kCancelled, everything kept.
// Errors: kDownloadFailed, kNotAllowedByPolicy, kDiskFull (kept, goes on later), kHashMismatch (file
// removed).
absl::StatusOr<BlobResult> DownloadBlob(const WebOptions& options, UrlPolicy policy,
                                        const BlobRequest& request, const std::atomic<bool>& stop,
                                        const std::function<void(const BlobProgress&)>& progress);

}  // namespace rumbo
