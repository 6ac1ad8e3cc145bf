#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "daemon/core/types.h"

namespace rumbo {

// Who goes next among the requests that wait for one instance: by priority class, older requests rising a
// class every `ageing`; within a class by fair share of the clients (start-time fair queueing on the work
// each one got), and within a client by age.
//
// Threading: the core's executor. Pure: time comes in as an argument. Push O(1), Pop O(clients).
class AdmissionQueue {
 public:
  explicit AdmissionQueue(std::chrono::milliseconds ageing = std::chrono::seconds(10)) : ageing_(ageing) {}

  struct Item {
    std::string id;
    std::string client;
    Priority priority = Priority::kNormal;
    TimePoint enqueued{};
    double cost = 1;  // expected work, any unit that is the same for all
  };

  void Push(Item item);
  // Puts back what Pop gave: its client did not get that work. It stands where its time of arrival puts it.
  void PutBack(Item item);
  // The next request; nullopt where none waits. `hold_batch`: batch requests stay where they are.
  std::optional<Item> Pop(TimePoint now, bool hold_batch = false);
  // True where it was there.
  bool Remove(const std::string& id);
  std::vector<std::string> RemoveAll();

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

 private:
  static constexpr int kClasses = 3;
  struct Client {
    std::array<std::deque<Item>, kClasses> queues;
    double served = 0;  // virtual time up to which it had its share
    bool idle() const { return queues[0].empty() && queues[1].empty() && queues[2].empty(); }
  };

  const std::chrono::milliseconds ageing_;
  std::map<std::string, Client> clients_;
  double virtual_time_ = 0;
  size_t size_ = 0;
};

}  // namespace rumbo
