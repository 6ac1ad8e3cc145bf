#pragma once

#include <string>

#include "base/os/sandbox.h"
#include "engines/api/catalog.h"
#include "engines/api/engine.h"

namespace rumbo {

// Folders that the sandbox words {home}, {cache} and {drivers} stand for; "" where there is none, and the
// path that names it is then left out.
struct SandboxFolders {
  std::string home;
  std::string cache;    // of the instance
  std::string drivers;  // where GPU drivers may keep compiled shaders
};

// What a worker of `engine` may do with `spec`: the catalog's `sandbox` words of the engine, with those of
// the backend ("vulkan.jit") in their place or, for lists of paths, beside them; and the files of the model.
//   network: none       loopback is for process engines
//   exec: denied        allowed
//   jit: none           allowed: may make code at run time
//   read, write, devices   paths, divided by blanks
// Errors: kInvalidArgument for a word or key that is none of these: the worker must not start.
absl::StatusOr<SandboxOptions> WorkerSandbox(const CatalogEngine& engine, const LaunchSpec& spec,
                                             const SandboxFolders& folders);

}  // namespace rumbo
