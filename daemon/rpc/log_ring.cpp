#include "daemon/rpc/log_ring.h"

#include <vector>

namespace rumbo {

std::shared_ptr<void> LogRing::Watch(size_t last, const std::string& filter,
                                     std::function<void(const std::string&)> on_line, bool follow) {
  std::lock_guard lock(mutex_);  // no line comes between the past and the new ones
  std::vector<const std::string*> shown;
  for (auto line = lines_.rbegin(); line != lines_.rend() && shown.size() < last; ++line) {
    if (filter.empty() || line->find(filter) != std::string::npos) shown.push_back(&*line);
  }
  for (auto line = shown.rbegin(); line != shown.rend(); ++line) on_line(**line);
  if (!follow) return nullptr;
  std::lock_guard watching(watchers_->mutex);
  const uint64_t number = watchers_->next++;
  watchers_->all[number] = std::make_shared<std::function<void(const std::string&)>>(std::move(on_line));
  return std::shared_ptr<void>(nullptr, [watchers = watchers_, number](void*) {
    std::shared_ptr<std::function<void(const std::string&)>> last_use;
    std::lock_guard unwatching(watchers->mutex);
    const auto it = watchers->all.find(number);
    if (it == watchers->all.end()) return;
    last_use = std::move(it->second);
    watchers->all.erase(it);
  });
}

void LogRing::sink_it_(const spdlog::details::log_msg& message) {
  spdlog::memory_buf_t text;
  formatter_->format(message, text);
  std::string line(text.data(), text.size());
  while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
  std::vector<std::shared_ptr<std::function<void(const std::string&)>>> watchers;
  {
    std::lock_guard lock(watchers_->mutex);
    for (const auto& [number, watcher] : watchers_->all) watchers.push_back(watcher);
  }
  for (const auto& watcher : watchers) (*watcher)(line);
  lines_.push_back(std::move(line));
  if (lines_.size() > kLines) lines_.pop_front();
}

}  // namespace rumbo
