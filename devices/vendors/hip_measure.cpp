#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "devices/vendors/hip_loader.h"
#include "devices/vendors/vendors.h"

namespace rumbo {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kCopyBytes = 256 * kMiB;
constexpr unsigned char kPattern = 0x5a;
constexpr unsigned kSide = 1024;  // of the matrices; a multiple of 64
constexpr double kBudgetSeconds = 0.15;

// shaders/matmul.comp in HIP's language, compiled on the machine by hiprtc for the current device.
constexpr const char* kMatmulSource = R"(
extern "C" __global__ void rumbo_matmul(const float* a, const float* b, float* c, unsigned n) {
  __shared__ float tile_a[64][16];
  __shared__ float tile_b[16][64];
  const unsigned lx = threadIdx.x, ly = threadIdx.y, lane = ly * 16 + lx;
  const unsigned row = blockIdx.y * 64, column = blockIdx.x * 64;
  float sum[4][4] = {};
  for (unsigned k = 0; k < n; k += 16) {
    for (unsigned i = lane; i < 1024; i += 256) {
      tile_a[i / 16][i % 16] = a[(row + i / 16) * n + k + i % 16];
      tile_b[i / 64][i % 64] = b[(k + i / 64) * n + column + i % 64];
    }
    __syncthreads();
    for (unsigned s = 0; s < 16; ++s)
      for (unsigned i = 0; i < 4; ++i)
        for (unsigned j = 0; j < 4; ++j) sum[i][j] += tile_a[ly * 4 + i][s] * tile_b[s][lx * 4 + j];
    __syncthreads();
  }
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned j = 0; j < 4; ++j) c[(row + ly * 4 + i) * n + column + lx * 4 + j] = sum[i][j];
}
)";

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Device memory, given back at the end.
class Buffer {
 public:
  Buffer(const HipApi& api, size_t bytes) : api_(api) {
    if (api.allocate(&at_, bytes) != 0) at_ = nullptr;
  }
  ~Buffer() {
    if (at_ != nullptr) api_.release(at_);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* get() const { return at_; }

 private:
  const HipApi& api_;
  void* at_ = nullptr;
};

// Bytes per second, read plus written: the best of ten batches of ten copies. nullopt and `error` on failure.
std::optional<double> TimeCopy(const HipApi& api, std::string& error) {
  const Buffer from(api, kCopyBytes), to(api, kCopyBytes);
  if (from.get() == nullptr || to.get() == nullptr || api.set_bytes(from.get(), kPattern, kCopyBytes) != 0) {
    error = "no room for two buffers of " + FormatBytes(kCopyBytes);
    return std::nullopt;
  }
  double best = 0;
  for (int batch = 0; batch < 11; ++batch) {
    const auto start = Clock::now();
    for (int i = 0; i < 10; ++i) {
      if (api.copy_on_device(to.get(), from.get(), kCopyBytes, nullptr) != 0)
        error = "hipMemcpyDtoDAsync failed";
    }
    if (api.synchronize() != 0) error = "hipDeviceSynchronize failed";
    const double seconds = SecondsSince(start);
    if (!error.empty()) return std::nullopt;
    if (batch > 0 && seconds > 0) best = std::max(best, 2.0 * kCopyBytes * 10 / seconds);
  }
  unsigned char last = 0;
  if (api.copy_to_host(&last, static_cast<char*>(to.get()) + kCopyBytes - 1, 1) != 0 || last != kPattern) {
    error = "the copy's result is wrong";
    return std::nullopt;
  }
  return std::round(best);
}

// The run-time compiler and what launches its output; a library of its own since ROCm 5.
struct Hiprtc {
  int (*create)(void**, const char*, const char*, int, const char**, const char**);
  int (*compile)(void*, int, const char**);
  int (*code_size)(void*, size_t*);
  int (*code)(void*, char*);
  int (*destroy)(void**);
  int (*load)(void**, const void*);
  int (*function)(void**, void*, const char*);
  int (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                void**);
  int (*copy_to_device)(void*, void*, size_t);

  // False where this HIP has no compiler.
  bool Find(const Library& hip) {
    static const Library own(
        {"libhiprtc.so.7", "libhiprtc.so.6", "libhiprtc.so.5", "libhiprtc.so", "/opt/rocm/lib/libhiprtc.so"});
    const Library& rtc = own.ok() ? own : hip;
    return rtc.Load(create, "hiprtcCreateProgram") && rtc.Load(compile, "hiprtcCompileProgram") &&
           rtc.Load(code_size, "hiprtcGetCodeSize") && rtc.Load(code, "hiprtcGetCode") &&
           rtc.Load(destroy, "hiprtcDestroyProgram") && hip.Load(load, "hipModuleLoadData") &&
           hip.Load(function, "hipModuleGetFunction") && hip.Load(launch, "hipModuleLaunchKernel") &&
           hip.Load(copy_to_device, "hipMemcpyHtoD");
  }

  // The kernel for the current device; null and `error` where it does not compile.
  void* Compile(std::string& error) const {
    void* program = nullptr;
    if (create(&program, kMatmulSource, "rumbo_matmul.hip", 0, nullptr, nullptr) != 0) {
      error = "hiprtc makes no program";
      return nullptr;
    }
    const char* options[] = {"-O3"};
    size_t size = 0;
    std::string binary;
    if (compile(program, 1, options) == 0 && code_size(program, &size) == 0 && size > 0 && size < 64 * kMiB) {
      binary.resize(size);
      if (code(program, binary.data()) != 0) binary.clear();
    }
    destroy(&program);
    void *module = nullptr, *kernel = nullptr;
    if (binary.empty())
      error = "hiprtc does not compile the matrix kernel for this device";
    else if (load(&module, binary.data()) != 0 || function(&kernel, module, "rumbo_matmul") != 0)
      error = "HIP does not load the compiled matrix kernel";
    return error.empty() ? kernel : nullptr;
  }
};

// Operations per second of a plain FP32 matrix product; nullopt and `error` on failure, nullopt alone where
// there is no compiler.
std::optional<double> TimeMatmul(const Library& library, const HipApi& api, std::string& error) {
  Hiprtc rtc{};
  if (!rtc.Find(library)) return std::nullopt;
  void* kernel = rtc.Compile(error);
  if (kernel == nullptr) return std::nullopt;
  constexpr size_t kFloats = size_t{kSide} * kSide;
  const Buffer a(api, kFloats * 4), b(api, kFloats * 4), c(api, kFloats * 4);
  std::vector<float> ones(kFloats, 1.0f), halves(kFloats, 0.5f);
  if (a.get() == nullptr || b.get() == nullptr || c.get() == nullptr ||
      rtc.copy_to_device(a.get(), ones.data(), kFloats * 4) != 0 ||
      rtc.copy_to_device(b.get(), halves.data(), kFloats * 4) != 0) {
    error = "no room for the matrices";
    return std::nullopt;
  }
  void *pa = a.get(), *pb = b.get(), *pc = c.get();
  unsigned n = kSide;
  void* parameters[] = {&pa, &pb, &pc, &n};
  const auto seconds_of = [&](int repeats) -> double {
    const auto start = Clock::now();
    for (int i = 0; i < repeats; ++i) {
      if (rtc.launch(kernel, n / 64, n / 64, 1, 16, 16, 1, 0, nullptr, parameters, nullptr) != 0) return -1;
    }
    return api.synchronize() == 0 ? SecondsSince(start) : -1;
  };
  double best = seconds_of(1);
  if (best > 0) best = seconds_of(1);
  const int repeats = best > 0 ? static_cast<int>(std::clamp(kBudgetSeconds / 5 / best, 1.0, 200.0)) : 0;
  for (double spent = 0; best > 0 && spent < kBudgetSeconds;) {
    const double seconds = seconds_of(repeats);
    if (seconds <= 0) best = -1;
    if (best > 0) best = std::min(best, seconds / repeats);
    spent += std::max(seconds, 1e-6);
  }
  if (best <= 0) {
    error = "the matrix kernel does not run";
    return std::nullopt;
  }
  for (const size_t at : {size_t{0}, kFloats / 2, kFloats - 1}) {
    float got = 0;
    if (api.copy_to_host(&got, static_cast<float*>(c.get()) + at, 4) != 0 || got != 0.5f * kSide) {
      error = "the matrix kernel's result is wrong";
      return std::nullopt;
    }
  }
  return std::round(2.0 * kSide * kSide * kSide / best);
}

}  // namespace

Measurements MeasureHip() {
  Hip hip;
  Measurements out;
  out.error = hip.error;
  HipApi& api = hip.api;
  if (out.error.empty() &&
      (!hip.library.Load(api.allocate, "hipMalloc") || !hip.library.Load(api.release, "hipFree") ||
       !hip.library.Load(api.set_bytes, "hipMemset") ||
       !hip.library.Load(api.copy_on_device, "hipMemcpyDtoDAsync") ||
       !hip.library.Load(api.copy_to_host, "hipMemcpyDtoH") ||
       !hip.library.Load(api.synchronize, "hipDeviceSynchronize"))) {
    out.error = hip.library.name() + " lacks a symbol that every HIP has";
  }
  for (int i = 0; out.error.empty() && i < hip.count; ++i) {
    DeviceMeasurement m;
    m.backend = "hip";
    m.key = hip.Address(i);
    m.driver_info = hip.version;
    if (api.set_device(i) != 0) {
      m.error = "hipSetDevice failed";
    } else {
      m.copy_bytes_s = TimeCopy(api, m.error);
      if (m.copy_bytes_s) m.buffer_bytes = kCopyBytes;
      if (m.error.empty()) m.matmul_flops = TimeMatmul(hip.library, api, m.error);
    }
    out.devices.push_back(std::move(m));
  }
  return out;
}

}  // namespace rumbo
