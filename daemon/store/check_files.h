#pragma once

#include <string>
#include <vector>

#include "daemon/store/check.h"

namespace rumbo {

// The preflight of a stored model, or, where request.files is empty, of the path request.name. Runs the
// confined helpers of `bin_dir` on the files; reads none itself. Blocking, seconds at most.
std::vector<CheckItem> CheckModelFiles(const std::string& bin_dir, CheckRequest request);

// Renders `text` with a made-up conversation in a confined process with a second of CPU and 1 GiB.
TemplateReport RenderTemplate(const std::string& bin_dir, const std::string& text);

}  // namespace rumbo
