// Any text as a reference, a remote path and a model's name: what is taken stays inside its folder and reads
// back.
#include "daemon/store/reference.h"

#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace rumbo;
  const std::string text(reinterpret_cast<const char*>(data), size);
  if (const auto parsed = ParseReference(text); parsed.ok()) {
    const std::string again = FormatReference(*parsed);
    const auto second = ParseReference(again);
    if (!second.ok() || FormatReference(*second) != again) std::abort();
    if (!CheckModelName(NameFor(*parsed)).ok()) std::abort();
    for (const std::string& part :
         {parsed->repository, parsed->revision, parsed->tag, parsed->quantization}) {
      if (("/" + part + "/").find("/../") != std::string::npos || part.find('\0') != std::string::npos)
        std::abort();
    }
  }
  if (CheckRemotePath(text).ok()) {
    if (text.empty() || text[0] == '/' || ("/" + text + "/").find("/../") != std::string::npos ||
        text.find_first_of(std::string("\\:\0", 3)) != std::string::npos) {
      std::abort();
    }
  }
  if (CheckModelName(text).ok() && text.find("..") != std::string::npos) std::abort();
  return 0;
}
