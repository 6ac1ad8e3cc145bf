// Any bytes as what a hub or a registry answers: names stay relative, digests are digests, variants can be
// listed.
#include "daemon/store/manifest.h"

#include <cstdlib>

#include "daemon/store/reference.h"

namespace {

void Use(const absl::StatusOr<rumbo::RemoteModel>& model) {
  using namespace rumbo;
  if (!model.ok()) return;
  for (const RemoteFile& file : model->files) {
    if (!CheckRemotePath(file.path).ok()) std::abort();
    if (!file.sha256.empty() && !IsSha256(file.sha256)) std::abort();
  }
  const auto back = RemoteModelFromJson(RemoteModelToJson(*model));
  if (!back.ok() || back->files != model->files) std::abort();
  for (const RemoteVariant& variant : VariantsOf(*model)) {
    if (variant.files.empty() || variant.id.empty()) std::abort();
  }
  (void)SelectVariants(*model, "", "q4_k_m");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  Use(rumbo::ParseHubModel(text));
  Use(rumbo::ParseOciManifest(text));
  Use(rumbo::RemoteModelFromJson(text));
  return 0;
}
