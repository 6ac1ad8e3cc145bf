#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "daemon/store/fetch/web.h"
#include "daemon/store/manifest.h"

namespace rumbo {

// A repository of a Hugging Face hub at `endpoint` ("https://huggingface.co"): its files with sizes, hashes
// and addresses.
absl::StatusOr<RemoteModel> ResolveHub(const WebOptions& options, const UrlPolicy& policy,
                                       const std::string& endpoint, const std::string& repository,
                                       const std::string& revision);

// A model of an OCI registry at `endpoint`. `bearer` is set where the registry gave a token without a name
// and password; it goes with the blobs' requests to that registry.
absl::StatusOr<RemoteModel> ResolveRegistry(const WebOptions& options, const UrlPolicy& policy,
                                            const std::string& endpoint, const std::string& repository,
                                            const std::string& tag, std::string* bearer);

// Names of repositories with GGUF files that match `query`, most downloaded first.
struct HubHit {
  std::string repository;
  uint64_t downloads = 0;
  std::string licence;
};
absl::StatusOr<std::vector<HubHit>> SearchHub(const WebOptions& options, const UrlPolicy& policy,
                                              const std::string& endpoint, const std::string& query,
                                              int limit);

// `Bearer realm="...",service="...",scope="..."` as the address to ask for a token without credentials.
// kPermissionDenied where the realm is not on https or against the policy; kInvalidArgument for anything
// else.
absl::StatusOr<Url> TokenAddress(const UrlPolicy& policy, const Url& registry, std::string_view challenge);

// Each path segment of `path`, percent-escaped.
std::string EscapePath(std::string_view path);

}  // namespace rumbo
