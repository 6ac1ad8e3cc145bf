#include "daemon/core/admission.h"

#include <algorithm>

namespace rumbo {

void AdmissionQueue::Push(Item item) {
  Client& client = clients_[item.client];
  // A client that comes back does not bring credit for the time it was away.
  if (client.idle()) client.served = std::max(client.served, virtual_time_);
  client.queues[static_cast<int>(item.priority)].push_back(std::move(item));
  ++size_;
}

void AdmissionQueue::PutBack(Item item) {
  Client& client = clients_[item.client];
  client.served -= item.cost;
  auto& queue = client.queues[static_cast<int>(item.priority)];
  const auto place = std::find_if(queue.begin(), queue.end(),
                                  [&](const Item& other) { return other.enqueued > item.enqueued; });
  queue.insert(place, std::move(item));
  ++size_;
}

std::optional<AdmissionQueue::Item> AdmissionQueue::Pop(TimePoint now, bool hold_batch) {
  Client* best = nullptr;
  std::deque<Item>* best_queue = nullptr;
  int64_t best_class = 0;
  const auto better = [&](const Client& client, const std::deque<Item>& queue, int64_t effective) {
    if (best == nullptr) return true;
    if (effective != best_class) return effective < best_class;
    if (&client != best) return client.served < best->served;
    return queue.front().enqueued < best_queue->front().enqueued;
  };
  for (auto& [name, client] : clients_) {
    for (int c = 0; c < kClasses; ++c) {
      std::deque<Item>& queue = client.queues[c];
      if (queue.empty() || (hold_batch && c == static_cast<int>(Priority::kBatch))) continue;
      const int64_t steps = (now - queue.front().enqueued) / ageing_;
      const int64_t effective = std::max<int64_t>(c - steps, 0);
      if (!better(client, queue, effective)) continue;
      best = &client;
      best_queue = &queue;
      best_class = effective;
    }
  }
  if (best == nullptr) return std::nullopt;
  Item item = std::move(best_queue->front());
  best_queue->pop_front();
  --size_;
  virtual_time_ = std::max(virtual_time_, best->served);
  best->served += item.cost;
  // Names of clients that are gone must not pile up; one that was ahead keeps its place until time caught up.
  if (clients_.size() > 1024) {
    std::erase_if(clients_, [&](const auto& entry) {
      return entry.second.idle() && entry.second.served <= virtual_time_;
    });
  }
  return item;
}

bool AdmissionQueue::Remove(const std::string& id) {
  for (auto& [name, client] : clients_) {
    for (auto& queue : client.queues) {
      const auto it =
          std::find_if(queue.begin(), queue.end(), [&](const Item& item) { return item.id == id; });
      if (it == queue.end()) continue;
      queue.erase(it);
      --size_;
      return true;
    }
  }
  return false;
}

std::vector<std::string> AdmissionQueue::RemoveAll() {
  std::vector<std::string> ids;
  for (auto& [name, client] : clients_) {
    for (auto& queue : client.queues) {
      for (Item& item : queue) ids.push_back(std::move(item.id));
      queue.clear();
    }
  }
  size_ = 0;
  return ids;
}

}  // namespace rumbo
