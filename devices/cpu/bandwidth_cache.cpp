#include <boost/json.hpp>
#include <cmath>

#include "base/os/files.h"
#include "devices/cpu/bandwidth.h"

namespace rumbo {
namespace {

namespace json = boost::json;

std::string CachePath(const std::string& dir) { return dir + "/cpu-bandwidth.json"; }

// Faster than any machine's memory, or slower than a floppy: the file is not ours.
bool Plausible(double bytes_per_s) { return bytes_per_s > 1e6 && bytes_per_s < 1e14; }

}  // namespace

std::optional<BandwidthMeasurement> LoadBandwidth(const std::string& cache_dir, const std::string& cpu,
                                                  int threads) {
  if (cache_dir.empty()) return std::nullopt;
  const auto text = ReadFile(CachePath(cache_dir), 4096);
  if (!text.ok()) return std::nullopt;
  json::error_code error;
  const json::value value = json::parse(*text, error);
  const json::object* object = error ? nullptr : value.if_object();
  if (object == nullptr) return std::nullopt;
  const json::value* made_on = object->if_contains("cpu");
  const json::value* made_with = object->if_contains("threads");
  const json::value* rate = object->if_contains("read_bytes_s");
  const json::value* buffer = object->if_contains("buffer_bytes");
  if (made_on == nullptr || made_with == nullptr || rate == nullptr || buffer == nullptr) return std::nullopt;
  if (!made_on->is_string() || std::string_view(made_on->get_string()) != cpu) return std::nullopt;
  if (!made_with->is_int64() || made_with->get_int64() != threads) return std::nullopt;
  if (!rate->is_int64() || !Plausible(static_cast<double>(rate->get_int64()))) return std::nullopt;
  if (!buffer->is_int64() || buffer->get_int64() < 0) return std::nullopt;
  return BandwidthMeasurement{static_cast<double>(rate->get_int64()), threads,
                              static_cast<Bytes>(buffer->get_int64()), cpu};
}

bool StoreBandwidth(const std::string& cache_dir, const BandwidthMeasurement& measurement) {
  if (cache_dir.empty() || !Plausible(measurement.bytes_per_s)) return false;
  const json::object object{{"cpu", measurement.cpu},
                            {"threads", measurement.threads},
                            {"read_bytes_s", std::llround(measurement.bytes_per_s)},
                            {"buffer_bytes", static_cast<int64_t>(measurement.buffer_bytes)}};
  if (!MakeDirectories(cache_dir).ok()) return false;
  return WriteFileAtomically(CachePath(cache_dir), json::serialize(object)).ok();
}

}  // namespace rumbo
