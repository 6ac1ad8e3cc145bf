#include "engines/llamacpp/core/embed_queue.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/status.h"

namespace rumbo {
namespace {

absl::Status Cancelled() {
  return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "cancelled by the caller");
}

void Normalize(std::vector<float>* vector) {
  double sum = 0;
  for (const float value : *vector) sum += double{value} * value;
  const auto factor = static_cast<float>(sum > 0 ? 1 / std::sqrt(sum) : 0);
  for (float& value : *vector) value *= factor;
}

bool Finite(const std::vector<float>& vector) {
  return std::all_of(vector.begin(), vector.end(), [](float value) { return std::isfinite(value); });
}

}  // namespace

std::optional<Pooling> PoolingByName(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "cls") return Pooling::kCls;
  if (name == "last") return Pooling::kLast;
  if (name == "rank") return Pooling::kRank;
  return std::nullopt;
}

EmbedQueue::~EmbedQueue() {
  while (!runs_.empty()) EndRun(runs_.begin(), Cancelled());
}

void EmbedQueue::Submit(EmbedJob job) {
  for (const auto& input : job.inputs) {
    RUMBO_CHECK(!input.empty() && input.size() <= port_->traits().input_tokens);
  }
  Run run;
  run.vectors.resize(job.inputs.size());
  run.job = std::move(job);
  runs_.push_back(std::move(run));
  if (runs_.back().job.inputs.empty()) EndRun(std::prev(runs_.end()), std::vector<std::vector<float>>());
}

void EmbedQueue::Cancel(uint64_t id) {
  const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return r.job.id == id; });
  if (run != runs_.end()) EndRun(run, Cancelled());
}

void EmbedQueue::EndRun(std::list<Run>::iterator run,
                        absl::StatusOr<std::vector<std::vector<float>>> result) {
  if (carry_ && carry_->run == run) {
    carry_.reset();
    port_->Clear();
  }
  const auto done = std::move(run->job.done);
  runs_.erase(run);
  done(std::move(result));
}

bool EmbedQueue::Step() {
  batch_.clear();
  parts_.clear();
  Fill();
  if (batch_.empty()) return false;
  if (!port_->Compute(batch_)) {
    port_->Clear();
    carry_.reset();
    // Each job once, though several of its inputs may be in the batch.
    std::vector<uint64_t> ids;
    for (const Part& part : parts_) ids.push_back(part.run->job.id);
    for (const uint64_t id : ids) {
      const auto run = std::find_if(runs_.begin(), runs_.end(), [&](const Run& r) { return r.job.id == id; });
      if (run != runs_.end()) EndRun(run, Internal("the model could not be computed"));
    }
    return !runs_.empty();
  }
  tokens_.fetch_add(batch_.size(), std::memory_order_relaxed);
  std::vector<std::list<Run>::iterator> broken, complete;
  for (const Part& part : parts_) {
    if (!Take(part)) broken.push_back(part.run);
  }
  if (!carry_) port_->Clear();
  for (const auto run : broken) {
    if (std::find(complete.begin(), complete.end(), run) != complete.end()) continue;
    complete.push_back(run);
    EndRun(run, Internal("the model gave values that are no numbers"));
  }
  for (auto run = runs_.begin(); run != runs_.end();) {
    const auto next = std::next(run);
    if (run->finished == run->job.inputs.size()) EndRun(run, std::move(run->vectors));
    run = next;
  }
  return !runs_.empty();
}

// Inputs of all jobs in turn, one each, as long as there is room. An input that is longer than a batch goes
// alone, over several.
void EmbedQueue::Fill() {
  const EmbedTraits& traits = port_->traits();
  if (carry_) {
    Part part = *carry_;
    const auto size = static_cast<uint32_t>(part.run->job.inputs[part.input].size());
    part.begin += part.count;
    part.count = std::min(traits.step_tokens, size - part.begin);
    part.first = 0;
    Add(part);
    return;
  }
  bool added = true;
  while (added && !carry_) {
    added = false;
    for (auto run = runs_.begin(); run != runs_.end() && !carry_; ++run) added |= AddNext(run);
  }
  // Who came first was served first: the others begin the next batch.
  if (runs_.size() > 1 && !carry_) runs_.splice(runs_.end(), runs_, runs_.begin());
}

bool EmbedQueue::AddNext(std::list<Run>::iterator run) {
  const EmbedTraits& traits = port_->traits();
  if (run->taken == run->job.inputs.size() || parts_.size() >= traits.sequences) return false;
  const auto size = static_cast<uint32_t>(run->job.inputs[run->taken].size());
  const bool is_long = size > traits.step_tokens;
  if (is_long ? !batch_.empty() : batch_.size() + size > traits.step_tokens) return false;
  Part part;
  part.run = run;
  part.input = run->taken++;
  part.count = std::min(size, traits.step_tokens);
  part.first = batch_.size();
  part.sequence = static_cast<SequenceId>(parts_.size());
  Add(part);
  return true;
}

void EmbedQueue::Add(Part part) {
  const std::vector<TokenId>& input = part.run->job.inputs[part.input];
  for (uint32_t i = 0; i < part.count; ++i) {
    const uint32_t at = part.begin + i;
    batch_.push_back({input[at], static_cast<int32_t>(at), part.sequence, true});
  }
  carry_.reset();
  if (part.begin + part.count < input.size()) carry_ = part;
  parts_.push_back(part);
}

// Adds the part's rows up; with its last token the vector is complete. False where values are no numbers.
bool EmbedQueue::Take(const Part& part) {
  const EmbedTraits& traits = port_->traits();
  const EmbedJob& job = part.run->job;
  const size_t size = job.inputs[part.input].size();
  const bool last = part.begin + part.count == size;
  if (job.pooling == Pooling::kRank) {
    if (!last) return true;
    const float* row = port_->InputRow(part.sequence);
    if (row == nullptr) return false;
    Complete(part, std::vector<float>(row, row + traits.width));
    return Finite(part.run->vectors[part.input]);
  }
  if (part.begin == 0) {
    sum_.assign(traits.width, 0);
    const float* row = port_->TokenRow(part.first);
    if (row == nullptr) return false;
    first_row_.assign(row, row + traits.width);
  }
  if (job.pooling == Pooling::kMean) {
    for (uint32_t i = 0; i < part.count; ++i) {
      const float* row = port_->TokenRow(part.first + i);
      if (row == nullptr) return false;
      for (uint32_t k = 0; k < traits.width; ++k) sum_[k] += row[k];
    }
  }
  if (!last) return true;
  std::vector<float> vector = first_row_;
  if (job.pooling == Pooling::kLast) {
    const float* row = port_->TokenRow(part.first + part.count - 1);
    if (row == nullptr) return false;
    vector.assign(row, row + traits.width);
  } else if (job.pooling == Pooling::kMean) {
    for (uint32_t k = 0; k < traits.width; ++k)
      vector[k] = static_cast<float>(sum_[k] / static_cast<double>(size));
  }
  if (!Finite(vector)) return false;
  if (job.normalize) Normalize(&vector);
  Complete(part, std::move(vector));
  return true;
}

void EmbedQueue::Complete(const Part& part, std::vector<float> vector) {
  part.run->vectors[part.input] = std::move(vector);
  ++part.run->finished;
}

}  // namespace rumbo
