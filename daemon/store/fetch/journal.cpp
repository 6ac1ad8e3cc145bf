#include "daemon/store/fetch/journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>

#include "base/os/files.h"
#include "base/status.h"

namespace rumbo {
namespace {

constexpr size_t kMaxJournal = 64 << 20;
constexpr char kHead[] = "rumbo-download 1";

uint32_t Crc32(std::string_view data) {
  static const std::array<uint32_t, 256> kTable = [] {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
      uint32_t c = i;
      for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xEDB88320u ^ (c >> 1) : c >> 1;
      table[i] = c;
    }
    return table;
  }();
  uint32_t crc = 0xFFFFFFFFu;
  for (const char byte : data) crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xff] ^ (crc >> 8);
  return crc ^ 0xFFFFFFFFu;
}

std::string Line(const std::string& text) {
  char sum[16];
  std::snprintf(sum, sizeof sum, " %08x\n", Crc32(text));
  return text + sum;
}

// The text of a line whose checksum holds.
std::optional<std::string_view> Checked(std::string_view line) {
  if (line.size() < 10 || line[line.size() - 9] != ' ') return std::nullopt;
  const std::string_view text = line.substr(0, line.size() - 9), digits = line.substr(line.size() - 8);
  uint32_t sum = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), sum, 16);
  if (error != std::errc() || end != digits.data() + digits.size() || sum != Crc32(text)) return std::nullopt;
  return text;
}

std::vector<std::string_view> Words(std::string_view text, char separator) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(separator, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

bool Number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size();
}

std::string RangeLine(uint64_t begin, uint64_t end) {
  return Line("r " + std::to_string(begin) + " " + std::to_string(end));
}

}  // namespace

void RangeSet::Add(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  auto it = ranges_.upper_bound(begin);
  if (it != ranges_.begin() && std::prev(it)->second >= begin) {
    --it;
    begin = it->first;
  }
  while (it != ranges_.end() && it->first <= end) {
    end = std::max(end, it->second);
    total_ -= it->second - it->first;
    it = ranges_.erase(it);
  }
  ranges_[begin] = end;
  total_ += end - begin;
}

uint64_t RangeSet::ContiguousFrom(uint64_t from) const {
  auto it = ranges_.upper_bound(from);
  if (it == ranges_.begin()) return from;
  --it;
  return it->second > from ? it->second : from;
}

std::vector<std::pair<uint64_t, uint64_t>> RangeSet::Gaps(uint64_t size) const {
  std::vector<std::pair<uint64_t, uint64_t>> gaps;
  uint64_t at = 0;
  for (const auto& [begin, end] : ranges_) {
    if (begin > at) gaps.emplace_back(at, std::min(begin, size));
    at = std::max(at, end);
    if (at >= size) return gaps;
  }
  if (at < size) gaps.emplace_back(at, size);
  return gaps;
}

std::optional<Journal::Content> Journal::Read(const std::string& path) {
  const auto data = ReadFile(path, kMaxJournal);
  if (!data.ok()) return std::nullopt;
  Content out;
  bool head = false;
  std::string_view rest = *data;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    if (end == rest.npos) break;
    const auto text = Checked(rest.substr(0, end));
    rest = rest.substr(end + 1);
    if (!text) break;
    if (!head) {
      const auto words = Words(*text, '\t');
      if (words.size() != 4 || words[0] != kHead || !Number(words[1], out.identity.size)) return std::nullopt;
      out.identity.sha256 = std::string(words[2]);
      out.identity.etag = std::string(words[3]);
      head = true;
      continue;
    }
    const auto words = Words(*text, ' ');
    uint64_t from = 0, to = 0;
    if (words.size() != 3 || words[0] != "r" || !Number(words[1], from) || !Number(words[2], to) ||
        from >= to || to > out.identity.size) {
      break;
    }
    out.durable.Add(from, to);
  }
  if (!head) return std::nullopt;
  return out;
}

absl::StatusOr<Journal> Journal::Begin(const std::string& path, const DownloadIdentity& identity,
                                       const RangeSet& durable) {
  std::string etag = identity.etag;
  for (const char c : etag) {
    if (c < ' ' || c == 127) etag.clear();
  }
  std::string text =
      Line(std::string(kHead) + "\t" + std::to_string(identity.size) + "\t" + identity.sha256 + "\t" + etag);
  for (const auto& [begin, end] : durable.ranges()) text += RangeLine(begin, end);
  RUMBO_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
  if (!fd.valid()) return ErrnoStatus(errno, "open the journal of a download");
  Journal journal(std::move(fd));
  journal.written_ = durable.ranges();
  return journal;
}

absl::Status Journal::Append(const RangeSet& durable) {
  std::string text;
  for (const auto& [begin, end] : durable.ranges()) {
    const auto it = written_.find(begin);
    if (it != written_.end() && it->second == end) continue;
    text += RangeLine(begin, end);
  }
  if (text.empty()) return absl::OkStatus();
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = ::write(fd_.get(), text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write the journal of a download");
    at += static_cast<size_t>(n);
  }
  if (::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "sync the journal of a download");
  written_ = durable.ranges();
  return absl::OkStatus();
}

}  // namespace rumbo
