/* Stand-ins for vendor libraries, one file for all three: built as libvulkan.so.1, libamdhip64.so.6 and
 * libnvidia-ml.so.1. FAKE_VULKAN, FAKE_HIP and FAKE_NVML say how each behaves: "crash", "hang", "noise". */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void behave(const char* variable) {
  const char* how = getenv(variable);
  if (how == NULL) return;
  if (strcmp(how, "crash") == 0) abort();
  if (strcmp(how, "noise") == 0) { printf("WARNING: chatter on stdout\n"); fflush(stdout); }
  while (strcmp(how, "hang") == 0) pause();
}

/* Vulkan: a loader that finds no driver. */
static int create_instance(const void* info, const void* allocator, void** instance) {
  (void)info; (void)allocator; (void)instance;
  return -9; /* VK_ERROR_INCOMPATIBLE_DRIVER */
}
void* vkGetInstanceProcAddr(void* instance, const char* name) {
  (void)instance;
  behave("FAKE_VULKAN");
  return strcmp(name, "vkCreateInstance") == 0 ? (void*)create_instance : NULL;
}

/* HIP: one card at 03:00.0. */
int hipInit(unsigned flags) { (void)flags; behave("FAKE_HIP"); return 0; }
int hipGetDeviceCount(int* n) { *n = 1; return 0; }
int hipDeviceGetPCIBusId(char* text, int size, int device) { (void)device; return snprintf(text, size, "0000:03:00.0") < 0; }
int hipDeviceGetName(char* text, int size, int device) { (void)device; return snprintf(text, size, "Fake Radeon") < 0; }
int hipDeviceTotalMem(size_t* total, int device) { (void)device; *total = (size_t)34208743424u; return 0; }
int hipSetDevice(int device) { (void)device; return 0; }
/* Free above total, as published for a UMA device. */
int hipMemGetInfo(size_t* free, size_t* total) { *free = (size_t)40000000000u; *total = (size_t)34208743424u; return 0; }
int hipRuntimeGetVersion(int* v) { *v = 60342134; return 0; }
int hipMalloc(void** p, size_t n) { *p = malloc(n); return *p == NULL; }
int hipFree(void* p) { free(p); return 0; }
int hipMemset(void* p, int v, size_t n) { memset(p, v, n); return 0; }
/* A copy that lies: only its last byte arrives, unless FAKE_HIP is "broken". */
int hipMemcpyDtoDAsync(void* to, void* from, size_t n, void* stream) {
  const char* how = getenv("FAKE_HIP");
  (void)stream;
  usleep(100);
  if (how != NULL && strcmp(how, "broken") == 0) return 0;
  ((char*)to)[n - 1] = ((char*)from)[n - 1];
  return 0;
}
int hipMemcpyDtoH(void* to, void* from, size_t n) { memcpy(to, from, n); return 0; }
int hipDeviceSynchronize(void) { return 0; }
const char* hipGetErrorString(int e) { (void)e; return "fake error"; }

/* NVML: one H200 at 83:00.0 whose memory query is answered by the old call only. */
int nvmlInit_v2(void) { behave("FAKE_NVML"); return 0; }
const char* nvmlErrorString(int e) { (void)e; return "fake error"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return snprintf(text, size, "590.48.01") < 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* v) { *v = 13010; return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** h) { static int device; (void)i; *h = &device; return 0; }
int nvmlDeviceGetName(void* h, char* text, unsigned size) { (void)h; return snprintf(text, size, "NVIDIA H200") < 0; }
int nvmlDeviceGetUUID(void* h, char* text, unsigned size) { (void)h; return snprintf(text, size, "GPU-0") < 0; }
struct pci { char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32]; };
int nvmlDeviceGetPciInfo_v3(void* h, struct pci* p) {
  (void)h;
  memset(p, 0, sizeof *p);
  strcpy(p->bus_id, "00000000:83:00.0");
  return 0;
}
struct memory { unsigned long long total, free, used; };
int nvmlDeviceGetMemoryInfo(void* h, struct memory* m) {
  (void)h;
  m->total = 150754820096ull, m->free = 150000000000ull, m->used = 754820096ull;
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void* h, void* m) { (void)h; (void)m; return 3; }
int nvmlDeviceGetCudaComputeCapability(void* h, int* major, int* minor) { (void)h; *major = 9, *minor = 0; return 0; }
