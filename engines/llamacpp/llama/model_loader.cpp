#include "engines/llamacpp/llama/model_loader.h"

#include <dlfcn.h>
#include <link.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/llama/llama_log.h"
#include "engines/llamacpp/llama/settings_check.h"
#include "engines/llamacpp/llama/tensor_placement.h"
#include "engines/llamacpp/llama/tokenizer.h"
#include "engines/llamacpp/llama/vector_mode.h"
#include "llama.h"

// libllama exports this but ships it in no public header: memory taken per buffer type. Equal in every pack.
struct llama_memory_breakdown_data {
  size_t model = 0;
  size_t context = 0;
  size_t compute = 0;
};
LLAMA_API std::map<ggml_backend_buffer_type_t, llama_memory_breakdown_data> llama_get_memory_breakdown(
    const struct llama_context* ctx);

namespace rumbo {
namespace {

absl::Status CheckFile(const std::string& path) {
  struct stat info {};
  if (stat(path.c_str(), &info) != 0) {
    if (errno == EACCES) {
      return Error(absl::StatusCode::kPermissionDenied, Reason::kFileNotReadable,
                   "the model file is not readable");
    }
    return Error(absl::StatusCode::kNotFound, Reason::kFileNotFound, "the model file does not exist",
                 "Import the model again.");
  }
  if (!S_ISREG(info.st_mode)) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kNotAFile,
                 "the model path is no regular file");
  }
  if (access(path.c_str(), R_OK) != 0) {
    return Error(absl::StatusCode::kPermissionDenied, Reason::kFileNotReadable,
                 "the model file is not readable");
  }
  return absl::OkStatus();
}

// libllama's last lines, without the user's paths.
std::string CleanLog(const LoadSpec& spec) {
  std::string lines = TakeLogLines();
  for (const std::string& file : spec.files) {
    for (size_t at = lines.find(file); at != std::string::npos; at = lines.find(file, at)) {
      lines.replace(at, file.size(), "the model file");
    }
  }
  while (!lines.empty() && lines.back() == '\n') lines.pop_back();
  std::replace(lines.begin(), lines.end(), '\n', ' ');
  return SanitizeUtf8(lines);
}

absl::Status LoadError(const LoadSpec& spec, const char* what) {
  const std::string lines = CleanLog(spec);
  const auto has = [&](const char* words) { return lines.find(words) != std::string::npos; };
  const std::string message = std::string(what) + (lines.empty() ? "" : ": " + lines);
  if (has("unknown model architecture")) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kUnsupportedArchitecture, message,
                 "A newer llama.cpp pack or another engine may know it.");
  }
  if (has("failed to allocate") || has("unable to allocate") || has("out of memory") ||
      has("OutOfDeviceMemory")) {
    return Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit, message,
                 "Ask for less context or fewer sessions, or unload another model.");
  }
  return Error(absl::StatusCode::kFailedPrecondition, Reason::kModelInvalid, message,
               "Check the file: `rumbo check`.");
}

ggml_type TypeByName(const std::string& name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const char* known = ggml_type_name(static_cast<ggml_type>(i));
    if (known != nullptr && name == known) return static_cast<ggml_type>(i);
  }
  return GGML_TYPE_F16;  // the name was checked against a list of known ones
}

uint32_t UsableCpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
}

// Loads the backends of packs that bring them as plug-ins, once.
void LoadBackends() {
  static const bool once = [] {
    if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
      ggml_backend_load_all_from_path(LibraryDir().c_str());
    }
    llama_backend_init();
    return true;
  }();
  (void)once;
}

// "zen4" of the plug-in libggml-cpu-zen4.so; "native" where the CPU backend is linked in.
std::string CpuVariant() {
  std::string variant = "native";
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        const std::string_view name = info->dlpi_name;
        constexpr std::string_view kPrefix = "libggml-cpu-";
        const size_t at = name.rfind(kPrefix);
        const size_t end = name.rfind(".so");
        if (at != std::string_view::npos && end != std::string_view::npos && end > at) {
          *static_cast<std::string*>(out) = name.substr(at + kPrefix.size(), end - at - kPrefix.size());
        }
        return 0;
      },
      &variant);
  return variant;
}

// ggml's name of the device: our environment shows the chosen devices alone (GGML_VK_VISIBLE_DEVICES and its
// like), in the order of the selectors, and ggml counts what it sees.
const char* DeviceFamily(const LoadSpec& spec) {
  return spec.backend == "vulkan" ? "Vulkan" : spec.backend == "hip" ? "ROCm" : "CUDA";
}
std::string DeviceName(const LoadSpec& spec, size_t position) {
  return DeviceFamily(spec) + std::to_string(position);
}

absl::Status ChooseDevices(const LoadSpec& spec, std::vector<ggml_backend_dev_t>* devices) {
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
    return Error(absl::StatusCode::kFailedPrecondition, Reason::kBackendUnavailable,
                 "no CPU backend of llama.cpp could be loaded",
                 "Run `./dev setup` again, or use another pack.");
  }
  if (!spec.backend.empty() && spec.backend != "cpu") {
    for (size_t i = 0; i < spec.device_selectors.size(); ++i) {
      const std::string& selector = spec.device_selectors[i];
      ggml_backend_dev_t device = ggml_backend_dev_by_name(selector.c_str());
      if (device == nullptr && selector.rfind(DeviceFamily(spec), 0) != 0) {
        device = ggml_backend_dev_by_name(DeviceName(spec, i).c_str());
      }
      if (device == nullptr) {
        return Error(absl::StatusCode::kFailedPrecondition, Reason::kDeviceNotUsable,
                     "llama.cpp sees no device " + selector + " of backend " + spec.backend,
                     "`rumbo devices` shows what each backend reaches.");
      }
      devices->push_back(device);
    }
    if (devices->empty()) return InvalidArgument("device_selectors is empty, but backend is " + spec.backend);
  }
  devices->push_back(nullptr);  // ends the list; alone it means: the CPU only
  return absl::OkStatus();
}

struct ProgressState {
  const LoadProgressFn* progress;
  bool cancelled = false;
};

bool OnProgress(float fraction, void* data) {
  auto* state = static_cast<ProgressState*>(data);
  // Weights are 90 % of the way; the context is the rest.
  if (!(*state->progress)(0.9 * fraction, "weights")) state->cancelled = true;
  return !state->cancelled;
}

llama_context_params ContextParams(const LoadedModel& loaded) {
  const EngineSettings& s = loaded.settings;
  const uint32_t sequences = loaded.sequences;
  llama_context_params params = llama_context_default_params();
  params.n_seq_max = sequences;
  // Rows are pooled by whoever asks; only scores come from a head in the model.
  params.embeddings = loaded.embeds;
  if (loaded.embeds)
    params.pooling_type = loaded.pooling == "rank" ? LLAMA_POOLING_TYPE_RANK : LLAMA_POOLING_TYPE_NONE;
  // Without a common pool libllama divides n_ctx evenly and each sequence gets its part.
  params.n_ctx = *s.kv_unified ? *s.context_total : *s.context_per_session * sequences;
  params.n_batch = *s.batch;
  params.n_ubatch = *s.ubatch;
  // Logits for so many tokens of a step and no more: the compute buffer is planned for that.
  if (const auto outputs = ExtraNumber(s, "outputs", 0, 1, 65536); outputs.ok())
    params.n_outputs_max = *outputs;
  params.n_threads = static_cast<int32_t>(*s.threads);
  params.n_threads_batch = static_cast<int32_t>(*s.threads_batch);
  params.type_k = TypeByName(s.kv_type_k);
  params.type_v = TypeByName(s.kv_type_v);
  params.flash_attn_type = s.flash_attention == "on"    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                           : s.flash_attention == "off" ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                        : LLAMA_FLASH_ATTN_TYPE_AUTO;
  params.swa_full = *s.swa_full;
  params.kv_unified = *s.kv_unified;
  params.no_perf = true;
  params.offload_kqv = true;
  // So far back guesses can be taken out of a recurrent state.
  const bool recurrent = llama_model_is_recurrent(loaded.model) || llama_model_is_hybrid(loaded.model);
  if (recurrent) params.n_rs_seq = *s.draft_tokens;
  return params;
}

std::string PoolName(ggml_backend_buffer_type_t type) {
  if (ggml_backend_buft_is_host(type)) return "host";
  ggml_backend_dev_t device = ggml_backend_buft_get_device(type);
  if (device == nullptr || ggml_backend_dev_type(device) == GGML_BACKEND_DEVICE_TYPE_CPU) return "host";
  return ggml_backend_dev_name(device);
}

void ReportMemory(const LoadSpec& spec, LoadedModel* loaded) {
  const bool recurrent = llama_model_is_recurrent(loaded->model);
  std::map<std::pair<std::string, std::string>, Bytes> sums;
  for (const auto& [type, bytes] : llama_get_memory_breakdown(loaded->context)) {
    std::string pool = PoolName(type);
    for (size_t i = 0; i < spec.device_selectors.size(); ++i) {
      if (pool == DeviceName(spec, i)) pool = spec.device_selectors[i];
    }
    sums[{pool, "weights"}] += bytes.model;
    sums[{pool, recurrent ? "recurrent_state" : "kv_cache"}] += bytes.context;
    sums[{pool, "compute"}] += bytes.compute;
  }
  for (const auto& [key, bytes] : sums) {
    if (bytes > 0) loaded->memory.push_back({key.first, key.second, bytes, "libllama"});
  }
}

void AttachThreads(LoadedModel* loaded) {
  const EngineSettings& s = loaded->settings;
  ggml_backend_reg_t reg =
      ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
  auto* make = reinterpret_cast<decltype(ggml_threadpool_new)*>(
      ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_new"));
  if (make == nullptr) return;
  ggml_threadpool_params params = ggml_threadpool_params_default(static_cast<int>(*s.threads));
  params.poll = *s.poll;
  if (*s.threads_batch != *s.threads) {
    ggml_threadpool_params batch = ggml_threadpool_params_default(static_cast<int>(*s.threads_batch));
    batch.poll = *s.poll;
    loaded->threadpool_batch = make(&batch);
    params.paused = true;
  }
  loaded->threadpool = make(&params);
  llama_attach_threadpool(loaded->context, loaded->threadpool, loaded->threadpool_batch);
}

// The context is null where libllama could not make it.
absl::Status InitContext(LoadedModel* loaded) {
  const EngineSettings& s = loaded->settings;
  RUMBO_ASSIGN_OR_RETURN(const uint32_t prefix_sequences, ExtraNumber(s, "prefix_sequences", 0, 0, 255));
  const uint32_t wanted = loaded->embeds ? VectorSequences(loaded->model, s) : *s.sessions + prefix_sequences;
  loaded->sequences = std::min<uint32_t>(wanted, static_cast<uint32_t>(llama_max_parallel_sequences()));
  if (loaded->context != nullptr) llama_free(loaded->context);
  loaded->context = llama_init_from_model(loaded->model, ContextParams(*loaded));
  return absl::OkStatus();
}

absl::Status MakeContext(const LoadSpec& spec, LoadedModel* loaded) {
  const int trained = llama_model_n_ctx_train(loaded->model);
  const ModelLimits limits{.context_trained = static_cast<uint32_t>(std::max(0, trained)),
                           .usable_cpus = UsableCpus()};
  RUMBO_ASSIGN_OR_RETURN(loaded->settings, CompleteSettings(spec.settings, limits));
  EngineSettings& s = loaded->settings;
  RUMBO_ASSIGN_OR_RETURN(const VectorMode mode, VectorModeOf(loaded->model, s));
  loaded->embeds = mode.on;
  loaded->pooling = mode.pooling;
  const bool ubatch_given = spec.settings.ubatch.has_value();
  if (mode.on) AdjustForVectors(false, ubatch_given, &s);
  RUMBO_RETURN_IF_ERROR(InitContext(loaded));
  // Encoders have no memory: they can do nothing but vectors, and see every input whole.
  if (loaded->context != nullptr && llama_get_memory(loaded->context) == nullptr) {
    const uint32_t computed = *s.ubatch;
    const bool was_on = loaded->embeds;
    loaded->embeds = true;
    AdjustForVectors(true, ubatch_given, &s);
    if (!was_on || computed != *s.ubatch) RUMBO_RETURN_IF_ERROR(InitContext(loaded));
  }
  if (loaded->context == nullptr) {
    absl::Status status = LoadError(spec, "the context could not be made");
    if (ReasonOf(status) == Reason::kModelInvalid) {
      return Error(absl::StatusCode::kResourceExhausted, Reason::kDoesNotFit, MessageOf(status),
                   "Ask for less context or fewer sessions.");
    }
    return status;
  }
  s.batch = llama_n_batch(loaded->context);
  s.ubatch = llama_n_ubatch(loaded->context);
  if (!s.gpu_layers)
    s.gpu_layers = spec.backend.empty() || spec.backend == "cpu" ? 0 : llama_model_n_layer(loaded->model) + 1;
  return absl::OkStatus();
}

}  // namespace

std::vector<MemoryItem> DraftMemory(const llama_context* context, bool with_weights) {
  std::map<std::string, Bytes> sums;
  for (const auto& [type, bytes] : llama_get_memory_breakdown(context)) {
    sums[PoolName(type)] += bytes.context + bytes.compute + (with_weights ? bytes.model : 0);
  }
  std::vector<MemoryItem> items;
  for (const auto& [pool, bytes] : sums) items.push_back({pool, "draft", bytes, "libllama"});
  return items;
}

LoadedModel::~LoadedModel() {
  if (context != nullptr) llama_free(context);
  if (threadpool != nullptr) {
    ggml_backend_reg_t reg =
        ggml_backend_dev_backend_reg(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU));
    auto* drop = reinterpret_cast<decltype(ggml_threadpool_free)*>(
        ggml_backend_reg_get_proc_address(reg, "ggml_threadpool_free"));
    if (drop != nullptr) {
      drop(threadpool);
      if (threadpool_batch != nullptr) drop(threadpool_batch);
    }
  }
  if (model != nullptr) llama_model_free(model);
}

void WarmUp(LoadedModel& loaded) {
  if (!llama_model_has_decoder(loaded.model)) return;
  llama_token token = llama_vocab_bos(llama_model_get_vocab(loaded.model));
  if (token < 0) token = 0;
  llama_decode(loaded.context, llama_batch_get_one(&token, 1));
  llama_memory_clear(llama_get_memory(loaded.context), false);
  llama_synchronize(loaded.context);
}

std::string LibraryDir() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<void*>(&llama_backend_init), &info) == 0 || info.dli_fname == nullptr)
    return ".";
  const std::string path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const LoadSpec& spec, const LoadProgressFn& progress) {
  if (spec.files.empty()) return InvalidArgument("files is empty");
  for (const std::string& file : spec.files) RUMBO_RETURN_IF_ERROR(CheckFile(file));
  RUMBO_RETURN_IF_ERROR(CompleteSettings(spec.settings, {}).status());
  const absl::Status cancelled =
      Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the load was cancelled");
  if (!progress(0, "open")) return cancelled;
  LoadBackends();
  std::vector<ggml_backend_dev_t> devices;
  RUMBO_RETURN_IF_ERROR(ChooseDevices(spec, &devices));

  ProgressState state{&progress};
  llama_model_params params = llama_model_default_params();
  params.devices = devices.data();
  params.n_gpu_layers = spec.settings.gpu_layers ? static_cast<int32_t>(*spec.settings.gpu_layers) : -1;
  if (devices.size() == 1) params.n_gpu_layers = 0;
  if (spec.settings.mmap)
    params.load_mode = *spec.settings.mmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
  RUMBO_ASSIGN_OR_RETURN(const TensorPlacement placement,
                         TensorPlacement::Make(spec.settings, devices.size() - 1));
  placement.Apply(&params);
  params.load_mtp = spec.settings.draft_tokens.value_or(0) > 0 && !spec.drafted_by_other;
  params.progress_callback = OnProgress;
  params.progress_callback_user_data = &state;

  auto loaded = std::make_unique<LoadedModel>();
  TakeLogLines();
  if (spec.files.size() == 1) {
    loaded->model = llama_model_load_from_file(spec.files.front().c_str(), params);
  } else {
    std::vector<const char*> paths;
    for (const std::string& file : spec.files) paths.push_back(file.c_str());
    loaded->model = llama_model_load_from_splits(paths.data(), paths.size(), params);
  }
  if (state.cancelled) return cancelled;
  if (loaded->model == nullptr) return LoadError(spec, "the model could not be loaded");
  if (!progress(0.9, "context")) return cancelled;
  RUMBO_RETURN_IF_ERROR(MakeContext(spec, loaded.get()));
  AttachThreads(loaded.get());
  ReportMemory(spec, loaded.get());
  loaded->end_of_text = EndOfTextTokens(*loaded);
  loaded->backend_variant = CpuVariant();
  loaded->engine_version = std::string("llama.cpp ") + llama_version() + " (" RUMBO_PACK ")";
  return loaded;
}

}  // namespace rumbo
