#include <unistd.h>

#include "engines/fake/fake_service.h"
#include "engines/worker_kit/confine.h"
#include "engines/worker_kit/serve.h"

// rumbo-fake: an engine without a model, for tests, demos and latency measurements.
int main() {
  const int fd = rumbo::InheritedSocket();
  if (fd < 0) return 2;
  if (!rumbo::ConfineSelf({})) return 3;
  rumbo::FakeService service(dup(fd));
  rumbo::ServeUntilEof(&service, fd);
}
