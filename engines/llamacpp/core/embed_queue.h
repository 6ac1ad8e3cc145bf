#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engines/llamacpp/core/model_port.h"

namespace rumbo {

// How the rows of an input's tokens become one vector. kRank: the model itself gives one score per input.
enum class Pooling { kMean, kCls, kLast, kRank };

// "mean", "cls", "last", "rank"; nullopt for anything else.
std::optional<Pooling> PoolingByName(std::string_view name);

// What a model loaded for vectors can do. Constant after load.
struct EmbedTraits {
  uint32_t step_tokens = 0;   // most tokens of one Compute
  uint32_t sequences = 1;     // most inputs of one Compute
  uint32_t input_tokens = 0;  // most tokens of one input
  uint32_t width = 0;         // values of a row; of a score row where `ranks`
  bool ranks = false;         // rows are per input, not per token
};

// The seam to libllama. Not thread-safe: one thread calls everything here.
class EmbedPort {
 public:
  virtual ~EmbedPort() = default;
  virtual const EmbedTraits& traits() const = 0;
  // Computes tokens of different inputs (sequences); positions of one go on where the Compute before ended.
  virtual bool Compute(std::span<const BatchToken> batch) = 0;
  // Rows of the last Compute: `width` floats, valid until the next. Null where there is none.
  virtual const float* TokenRow(size_t batch_index) = 0;
  virtual const float* InputRow(SequenceId sequence) = 0;
  // Forgets all sequences.
  virtual void Clear() = 0;
};

struct EmbedJob {
  uint64_t id = 0;
  std::vector<std::vector<TokenId>> inputs;  // none is empty or longer than EmbedTraits::input_tokens
  Pooling pooling = Pooling::kMean;
  bool normalize = true;  // unit length; ignored for kRank
  // Exactly once: one vector per input, in order.
  std::function<void(absl::StatusOr<std::vector<std::vector<float>>>)> done;
};

// Computes vectors of many callers side by side: every step takes inputs of the waiting jobs in turn until
// the batch is full, so that a short call never waits for a whole long one.
//
// Threading: the decode loop's thread only, but for tokens(). Ownership: borrows the port.
class EmbedQueue {
 public:
  explicit EmbedQueue(EmbedPort* port) : port_(port) {}
  ~EmbedQueue();

  void Submit(EmbedJob job);
  // The job ends with kCancelled. Unknown ids are ignored.
  void Cancel(uint64_t id);
  // Computes one batch. False where nothing is left to do.
  bool Step();

  // Tokens computed so far. Any thread.
  uint64_t tokens() const { return tokens_.load(std::memory_order_relaxed); }

 private:
  struct Run {
    EmbedJob job;
    size_t taken = 0;     // inputs whose computing began
    size_t finished = 0;  // inputs whose vector is there
    std::vector<std::vector<float>> vectors;
  };
  // An input in a batch, or on its way through several.
  struct Part {
    std::list<Run>::iterator run;
    size_t input = 0;
    uint32_t begin = 0;  // first token of this batch
    uint32_t count = 0;
    size_t first = 0;  // its index in the batch
    SequenceId sequence = 0;
  };

  void Fill();
  bool AddNext(std::list<Run>::iterator run);
  void Add(Part part);
  bool Take(const Part& part);
  void Complete(const Part& part, std::vector<float> vector);
  void EndRun(std::list<Run>::iterator run, absl::StatusOr<std::vector<std::vector<float>>> result);

  EmbedPort* const port_;
  std::list<Run> runs_;
  std::optional<Part> carry_;  // a long input that is not complete
  std::vector<double> sum_;    // of its rows
  std::vector<float> first_row_;
  std::vector<Part> parts_;
  std::vector<BatchToken> batch_;
  std::atomic<uint64_t> tokens_{0};
};

}  // namespace rumbo
