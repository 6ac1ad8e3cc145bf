/* Stand-ins for vendor libraries, one file for all: built as libvulkan.so.1, libamdhip64.so.6, libhiprtc.so.7
 * and libnvidia-ml.so.1. FAKE_VULKAN, FAKE_HIP and FAKE_NVML say how each behaves: "crash", "hang", "noise".
 */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void behave(const char* variable) {
  const char* how = getenv(variable);
  if (how == NULL) return;
  if (strcmp(how, "crash") == 0) abort();
  if (strcmp(how, "noise") == 0) {
    printf("WARNING: chatter on stdout\n");
    fflush(stdout);
  }
  while (strcmp(how, "hang") == 0) pause();
}

/* Vulkan: a loader that finds no driver. */
static int create_instance(const void* info, const void* allocator, void** instance) {
  (void)info;
  (void)allocator;
  (void)instance;
  return -9; /* VK_ERROR_INCOMPATIBLE_DRIVER */
}
void* vkGetInstanceProcAddr(void* instance, const char* name) {
  (void)instance;
  behave("FAKE_VULKAN");
  return strcmp(name, "vkCreateInstance") == 0 ? (void*)create_instance : NULL;
}

/* HIP: one card at 03:00.0. */
int hipInit(unsigned flags) {
  (void)flags;
  behave("FAKE_HIP");
  if (getenv("HSA_OVERRIDE_GFX_VERSION") != NULL || getenv("HIP_VISIBLE_DEVICES") != NULL) abort();
  return 0;
}
int hipGetDeviceCount(int* n) {
  *n = 1;
  return 0;
}
int hipDeviceGetPCIBusId(char* text, int size, int device) {
  (void)device;
  return snprintf(text, size, "0000:03:00.0") < 0;
}
int hipDeviceGetName(char* text, int size, int device) {
  (void)device;
  return snprintf(text, size, "Fake Radeon") < 0;
}
int hipDeviceTotalMem(size_t* total, int device) {
  (void)device;
  *total = (size_t)34208743424u;
  return 0;
}
int hipSetDevice(int device) {
  (void)device;
  return 0;
}
/* Free above total, as published for a UMA device. */
int hipMemGetInfo(size_t* free, size_t* total) {
  *free = (size_t)40000000000u;
  *total = (size_t)34208743424u;
  return 0;
}
int hipRuntimeGetVersion(int* v) {
  *v = 60342134;
  return 0;
}
int hipMalloc(void** p, size_t n) {
  *p = malloc(n);
  return *p == NULL;
}
int hipFree(void* p) {
  free(p);
  return 0;
}
int hipMemset(void* p, int v, size_t n) {
  memset(p, v, n);
  return 0;
}
/* A copy that lies: only its last byte arrives, unless FAKE_HIP is "broken". */
int hipMemcpyDtoDAsync(void* to, void* from, size_t n, void* stream) {
  const char* how = getenv("FAKE_HIP");
  (void)stream;
  usleep(100);
  if (how != NULL && strcmp(how, "broken") == 0) return 0;
  ((char*)to)[n - 1] = ((char*)from)[n - 1];
  return 0;
}
int hipMemcpyDtoH(void* to, void* from, size_t n) {
  memcpy(to, from, n);
  return 0;
}
int hipMemcpyHtoD(void* to, void* from, size_t n) {
  memcpy(to, from, n);
  return 0;
}
int hipDeviceSynchronize(void) { return 0; }
/* The compiler takes a source with our kernel in it; "nocompile" takes none. */
int hiprtcCreateProgram(void** p, const char* source, const char* name, int n, const char** headers,
                        const char** names) {
  static int program;
  (void)name;
  (void)n;
  (void)headers;
  (void)names;
  *p = &program;
  return strstr(source, "void rumbo_matmul(") == NULL;
}
int hiprtcCompileProgram(void* p, int n, const char** options) {
  const char* how = getenv("FAKE_HIP");
  (void)p;
  (void)n;
  (void)options;
  return how != NULL && strcmp(how, "nocompile") == 0;
}
int hiprtcGetCodeSize(void* p, size_t* size) {
  (void)p;
  *size = 4;
  return 0;
}
int hiprtcGetCode(void* p, char* code) {
  (void)p;
  memcpy(code, "\177ELF", 4);
  return 0;
}
int hiprtcDestroyProgram(void** p) {
  *p = NULL;
  return 0;
}
int hipModuleLoadData(void** module, const void* code) {
  static int m;
  *module = &m;
  return memcmp(code, "\177ELF", 4) != 0;
}
int hipModuleGetFunction(void** f, void* module, const char* name) {
  *f = module;
  return strcmp(name, "rumbo_matmul") != 0;
}
/* The product of 1s and 0.5s, in 100 us; "wrong" forgets one element. */
int hipModuleLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                          unsigned bz, unsigned shared, void* stream, void** parameters, void** extra) {
  const char* how = getenv("FAKE_HIP");
  float* c = *(float**)parameters[2];
  const unsigned n = *(unsigned*)parameters[3];
  (void)f;
  (void)gz;
  (void)bz;
  (void)shared;
  (void)stream;
  (void)extra;
  if (gx * bx * 4 != n || gy * by * 4 != n) return 1;
  usleep(100);
  c[0] = c[(size_t)n * n / 2] = c[(size_t)n * n - 1] = 0.5f * (float)n;
  if (how != NULL && strcmp(how, "wrong") == 0) c[(size_t)n * n - 1] = 0;
  return 0;
}
const char* hipGetErrorString(int e) {
  (void)e;
  return "fake error";
}

/* NVML: one H200 at 83:00.0 whose memory query is answered by the old call only. */
int nvmlInit_v2(void) {
  behave("FAKE_NVML");
  return 0;
}
const char* nvmlErrorString(int e) {
  (void)e;
  return "fake error";
}
int nvmlSystemGetDriverVersion(char* text, unsigned size) { return snprintf(text, size, "590.48.01") < 0; }
int nvmlSystemGetCudaDriverVersion_v2(int* v) {
  *v = 13010;
  return 0;
}
int nvmlDeviceGetCount_v2(unsigned* n) {
  *n = 1;
  return 0;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void** h) {
  static int device;
  (void)i;
  *h = &device;
  return 0;
}
int nvmlDeviceGetName(void* h, char* text, unsigned size) {
  (void)h;
  return snprintf(text, size, "NVIDIA H200") < 0;
}
int nvmlDeviceGetUUID(void* h, char* text, unsigned size) {
  (void)h;
  return snprintf(text, size, "GPU-0") < 0;
}
struct pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char bus_id[32];
};
int nvmlDeviceGetPciInfo_v3(void* h, struct pci* p) {
  (void)h;
  memset(p, 0, sizeof *p);
  strcpy(p->bus_id, "00000000:83:00.0");
  return 0;
}
struct memory {
  unsigned long long total, free, used;
};
int nvmlDeviceGetMemoryInfo(void* h, struct memory* m) {
  (void)h;
  m->total = 150754820096ull, m->free = 150000000000ull, m->used = 754820096ull;
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void* h, void* m) {
  (void)h;
  (void)m;
  return 3;
}
int nvmlDeviceGetCudaComputeCapability(void* h, int* major, int* minor) {
  (void)h;
  *major = 9, *minor = 0;
  return 0;
}
