#pragma once

namespace rumbo {

// From now on each path that this process may not open is named on stderr, once: "rumbo-sandbox denied
// /path", at most 64 of them. For that this library stands before libc's open, openat, fopen and opendir, so
// that libraries that fail without a word (drivers, loaders) are covered. Not under sanitizers, which stand
// there themselves.
void ReportDeniedPaths();

}  // namespace rumbo
