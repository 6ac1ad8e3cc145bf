#pragma once

#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "daemon/core/types.h"

namespace rumbo {

// The latest requests that ended, without a word of what was asked or answered. Threading: one thread.
// Memory: `limit` records.
class RequestLog {
 public:
  explicit RequestLog(size_t limit) : limit_(limit) {}

  void Add(RequestRecord record) {
    record.sequence = ++sequence_;
    records_.push_back(std::move(record));
    if (records_.size() > limit_) records_.pop_front();
  }

  // Those with a higher sequence than `after`, oldest first.
  std::vector<RequestRecord> After(uint64_t after) const {
    std::vector<RequestRecord> out;
    for (const RequestRecord& record : records_) {
      if (record.sequence > after) out.push_back(record);
    }
    return out;
  }

 private:
  const size_t limit_;
  std::deque<RequestRecord> records_;
  uint64_t sequence_ = 0;
};

}  // namespace rumbo
