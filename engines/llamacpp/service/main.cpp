#include "engines/llamacpp/llama/llama_log.h"
#include "engines/llamacpp/llama/model_loader.h"
#include "engines/llamacpp/service/worker_service.h"
#include "engines/worker_kit/confine.h"
#include "engines/worker_kit/serve.h"

// rumbo-llamacpp: runs one model with llama.cpp for the daemon that started it.
int main() {
  const int fd = rumbo::InheritedSocket();
  if (fd < 0) return 2;
  if (!rumbo::ConfineSelf({rumbo::LibraryDir()})) return 3;
  rumbo::InstallLog();
  rumbo::WorkerService service;
  rumbo::ServeUntilEof(&service, fd);
}
