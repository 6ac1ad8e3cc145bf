#include "daemon/store/fetch/blob_download.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include "base/os/files.h"
#include "base/os/unique_fd.h"
#include "base/status.h"
#include "daemon/store/fetch/journal.h"
#include "daemon/store/reasons.h"

namespace rumbo {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t kChunk = 16 << 20;       // bytes of one ranged request
constexpr uint64_t kSyncEvery = 256 << 20;  // bytes between two syncs, or options.sync_ms
constexpr milliseconds kReportInterval{200};

absl::Status Failed(const std::string& message,
                    std::string_view next = "`rumbo pull` goes on where it stopped.") {
  return Error(absl::StatusCode::kUnavailable, kDownloadFailed, message, next);
}

absl::Status Refused(const std::string& message) {
  return Error(absl::StatusCode::kFailedPrecondition, kDownloadFailed, message,
               "The server does not keep to HTTP; take the model from another place.");
}

class Digest {
 public:
  explicit Digest(const EVP_MD* kind) : context_(EVP_MD_CTX_new()) {
    EVP_DigestInit_ex(context_, kind, nullptr);
  }
  ~Digest() { EVP_MD_CTX_free(context_); }
  Digest(const Digest&) = delete;
  void Update(const void* data, size_t size) { EVP_DigestUpdate(context_, data, size); }
  std::string Hex() {
    unsigned char bytes[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_, bytes, &size);
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    for (unsigned i = 0; i < size; ++i) {
      out += kDigits[bytes[i] >> 4];
      out += kDigits[bytes[i] & 15];
    }
    return out;
  }

 private:
  EVP_MD_CTX* const context_;
};

absl::Status WriteAt(int fd, const char* data, size_t size, uint64_t at) {
  while (size > 0) {
    const ssize_t n = ::pwrite(fd, data, size, static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write the download");
    data += n;
    at += static_cast<uint64_t>(n);
    size -= static_cast<size_t>(n);
  }
  return absl::OkStatus();
}

class Download {
 public:
  Download(const WebOptions& options, UrlPolicy policy, const BlobRequest& request,
           const std::atomic<bool>& stop, const std::function<void(const BlobProgress&)>& progress)
      : options_(options), policy_(std::move(policy)), request_(request), stop_(stop), progress_(progress) {}

  absl::StatusOr<BlobResult> Run() {
    RUMBO_RETURN_IF_ERROR(Open());
    hasher_ = std::thread([this] { Hash(); });
    syncer_ = std::thread([this] { Sync(); });
    absl::Status status = Transfer();
    const bool complete = status.ok();
    {
      std::lock_guard lock(mutex_);
      transfer_over_ = true;
      complete_ = complete;
      changed_.notify_all();
    }
    hasher_.join();
    syncer_.join();
    if (!complete) {
      const absl::Status kept = request_.only_first ? absl::OkStatus() : MakeDurable();
      return kept.ok() || !absl::IsUnavailable(status) ? status : kept;
    }
    return Finish();
  }

 private:
  struct Piece {
    uint64_t begin, end;
  };
  // One connection, at work on one piece.
  struct Lane {
    explicit Lane(const WebOptions& options, const UrlPolicy& policy) : handle(options, policy) {}
    WebHandle handle;
    Piece piece{};
    uint64_t at = 0;  // next byte
    bool busy = false;
    bool whole = false;  // the server sends everything from the start
    std::vector<std::string> seen;
    absl::Status failed;  // ours: what made the transfer end early
  };

  std::string JournalPath() const { return request_.out + ".journal"; }

  absl::Status Open() {
    if (request_.urls.empty()) return Internal("a download without an address");
    fd_.reset(::open(request_.out.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd_.valid()) return ErrnoStatus(errno, "open the file of the download");
    struct stat info;
    if (::fstat(fd_.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return Internal("the download's file is none");
    size_ = request_.bytes;
    if (request_.only_first) {
      if (::ftruncate(fd_.get(), 0) != 0) return ErrnoStatus(errno, "truncate");
      return absl::OkStatus();
    }
    const auto journal = Journal::Read(JournalPath());
    const bool same = journal && journal->identity.sha256 == request_.sha256 &&
                      (!request_.bytes || journal->identity.size == *request_.bytes) &&
                      static_cast<uint64_t>(info.st_size) >= LastByte(journal->durable);
    if (same) {
      have_ = durable_ = journal->durable;
      etag_ = journal->identity.etag;
      size_ = journal->identity.size;
      resumed_ = have_.total();
      RUMBO_ASSIGN_OR_RETURN(journal_, Journal::Begin(JournalPath(), journal->identity, durable_));
    } else {
      if (::ftruncate(fd_.get(), 0) != 0) return ErrnoStatus(errno, "truncate");
    }
    return absl::OkStatus();
  }

  static uint64_t LastByte(const RangeSet& set) {
    return set.ranges().empty() ? 0 : set.ranges().rbegin()->second;
  }

  // ---- The transfer: this thread ----

  absl::Status Transfer() {
    absl::Status last = absl::OkStatus();
    int failures = 0;
    size_t mirror = 0;
    for (;;) {
      if (Complete()) return absl::OkStatus();
      const uint64_t before = Done();
      url_ = request_.urls[mirror % request_.urls.size()];
      last = policy_.CheckHop(std::nullopt, *url_);
      if (last.ok()) last = Round();
      if (stop_) return Error(absl::StatusCode::kCancelled, Reason::kCancelled, "the download was stopped");
      if (last.ok()) continue;
      if (absl::IsResourceExhausted(last) || ReasonOf(last) == Reason::kInternal) return last;
      ++mirror;
      const bool transient = absl::IsUnavailable(last);
      // What one mirror refuses the next may have; a single server is not asked again for what it refused.
      if (!transient && mirror >= request_.urls.size()) return last;
      failures = Done() > before ? 0 : failures + 1;
      if (failures >= std::max<int>(options_.attempts, static_cast<int>(request_.urls.size()))) return last;
      Pause(std::min<int64_t>(int64_t{options_.retry_ms} << std::min(failures, 10), 8000));
    }
  }

  void Pause(int64_t ms) {
    const auto end = Clock::now() + milliseconds(ms);
    while (!stop_ && Clock::now() < end) std::this_thread::sleep_for(milliseconds(10));
  }

  uint64_t Done() {
    std::lock_guard lock(mutex_);
    return have_.total();
  }

  uint64_t Wanted() const { return std::min(*size_, request_.only_first.value_or(*size_)); }

  bool Complete() {
    std::lock_guard lock(mutex_);
    return size_ && have_.ContiguousFrom(0) >= Wanted() && (Wanted() > 0 || asked_);
  }

  // Everything that is missing, from the one server, until done or something fails.
  absl::Status Round() {
    std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> multi(curl_multi_init(), curl_multi_cleanup);
    std::vector<std::unique_ptr<Lane>> lanes;
    final_url_ = *url_;
    ranged_ = false;
    absl::Status failed = RunLanes(multi.get(), lanes);
    for (auto& lane : lanes) {
      if (lane->busy) curl_multi_remove_handle(multi.get(), lane->handle.easy());
    }
    return failed;
  }

  absl::Status RunLanes(CURLM* multi, std::vector<std::unique_ptr<Lane>>& lanes) {
    std::deque<Piece> todo = Missing();
    for (;;) {
      if (stop_) return absl::OkStatus();
      // One lane alone finds out what the server can do; then more.
      const size_t limit = ranged_ ? static_cast<size_t>(std::max(options_.connections, 1)) : 1;
      RUMBO_RETURN_IF_ERROR(Fill(multi, lanes, todo, limit));
      if (std::none_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->busy; }))
        return Complete() ? absl::OkStatus() : Failed("the server sent less than it has");
      int running = 0;
      curl_multi_perform(multi, &running);
      RUMBO_RETURN_IF_ERROR(Collect(multi, lanes));
      RUMBO_RETURN_IF_ERROR(SyncFailure());
      // The first answer told the length, or that all of it comes: the rest is planned only now.
      if (const auto from = std::exchange(rest_from_, std::nullopt)) {
        todo.clear();
        if (size_ && *from < Wanted()) AddPieces(*from, Wanted(), todo);
      }
      ReportNow();
      if (running > 0) curl_multi_poll(multi, nullptr, 0, 50, nullptr);
    }
  }

  void ReportNow() {
    if (Clock::now() < next_report_) return;
    next_report_ = Clock::now() + kReportInterval;
    Report("download");
  }

  // Whether more came by now than the rate allows.
  bool Ahead() {
    if (options_.rate == 0) return false;
    const double seconds = std::chrono::duration<double>(Clock::now() - started_).count();
    std::lock_guard lock(mutex_);
    return static_cast<double>(received_) > seconds * static_cast<double>(options_.rate) + (256 << 10);
  }

  absl::Status SyncFailure() {
    std::lock_guard lock(mutex_);
    return sync_status_;
  }

  static void AddPieces(uint64_t begin, uint64_t end, std::deque<Piece>& out) {
    for (uint64_t at = begin; at < end; at += kChunk) out.push_back({at, std::min(at + kChunk, end)});
  }

  std::deque<Piece> Missing() {
    std::lock_guard lock(mutex_);
    std::deque<Piece> out;
    if (!size_) return {{0, kChunk}};
    for (const auto& [begin, end] : have_.Gaps(Wanted())) AddPieces(begin, end, out);
    if (out.empty() && !asked_) out.push_back({0, kChunk});
    return out;
  }

  absl::Status Fill(CURLM* multi, std::vector<std::unique_ptr<Lane>>& lanes, std::deque<Piece>& todo,
                    size_t limit) {
    while (!todo.empty()) {
      size_t busy = 0;
      Lane* free = nullptr;
      for (auto& lane : lanes) {
        busy += lane->busy;
        if (!lane->busy) free = lane.get();
      }
      if (busy >= limit) break;
      if (free == nullptr) free = lanes.emplace_back(std::make_unique<Lane>(options_, policy_)).get();
      free->piece = todo.front();
      free->seen = {final_url_.text()};
      todo.pop_front();
      Start(multi, *free, final_url_);
    }
    const auto busy = static_cast<uint64_t>(
        std::count_if(lanes.begin(), lanes.end(), [](const auto& lane) { return lane->busy; }));
    for (auto& lane : lanes) {
      if (options_.rate > 0 && lane->busy) lane->handle.SetRate(std::max<uint64_t>(options_.rate / busy, 1));
    }
    return absl::OkStatus();
  }

  void Start(CURLM* multi, Lane& lane, const Url& url) {
    lane.at = lane.piece.begin;
    lane.busy = true;
    lane.whole = false;
    lane.failed = absl::OkStatus();
    const std::string range = std::to_string(lane.piece.begin) + "-" + std::to_string(lane.piece.end - 1);
    std::string if_range = have_etag_from_this_server_ || resumed_ > 0 ? etag_ : "";
    if (if_range.compare(0, 2, "W/") == 0) if_range.clear();
    const std::string bearer = url.origin() == request_.urls[0].origin() ? request_.bearer : "";
    lane.handle.Prepare(
        url, range, if_range, bearer, [this, &lane](const WebAnswer& answer) { return OnHead(lane, answer); },
        [this, &lane](const char* data, size_t size) { return OnData(lane, data, size); });
    curl_multi_add_handle(multi, lane.handle.easy());
  }

  // Whether the answer is what was asked for; false ends the transfer with lane.failed.
  bool OnHead(Lane& lane, const WebAnswer& answer) {
    if (answer.status == 206) {
      lane.failed = OnPartial(lane, answer);
      return lane.failed.ok();
    }
    if (answer.status == 200) {
      // No ranges, or the content is another by now: from the start, and nothing of before is kept.
      if (ranged_) {
        lane.failed = Failed(answer.url.authority() + " stopped sending ranges");
        ranged_ = false;
        return false;
      }
      lane.failed = BeginWhole(lane, answer);
      return lane.failed.ok();
    }
    return true;  // a redirect's or an error's text: OnData drops it
  }

  absl::Status OnPartial(Lane& lane, const WebAnswer& answer) {
    const auto range = ParseContentRange(answer.content_range);
    if (!range) return Refused(answer.url.authority() + " sends a range and does not say which");
    if (size_ && range->total != *size_) {
      if (request_.bytes && *size_ == *request_.bytes) {
        return Refused(answer.url.authority() + " has " + std::to_string(range->total) + " bytes where " +
                       std::to_string(*size_) + " were promised");
      }
      return Restart(answer.url.authority() + " has another file by now");
    }
    if (range->begin != lane.piece.begin || range->end > lane.piece.end)
      return Refused(answer.url.authority() + " sends another range than was asked for");
    const std::string etag = answer.etag;
    if (!etag.empty() && !etag_.empty() && etag != etag_) {
      // Known by its hash, a file may come from several servers, each with its own tags.
      if (request_.sha256.empty() && request_.git_sha1.empty())
        return Restart(answer.url.authority() + " has another file by now");
    }
    lane.piece.end = range->end;
    if (!size_) rest_from_ = range->end;
    RUMBO_RETURN_IF_ERROR(Learn(range->total, etag));
    ranged_ = true;
    return absl::OkStatus();
  }

  absl::Status Restart(const std::string& why) {
    RUMBO_RETURN_IF_ERROR(Forget());
    return Failed(why + "; the download starts anew");
  }

  absl::Status BeginWhole(Lane& lane, const WebAnswer& answer) {
    if (request_.bytes && answer.content_length && *answer.content_length != *request_.bytes) {
      return Refused(answer.url.authority() + " has " + std::to_string(*answer.content_length) +
                     " bytes where " + std::to_string(*request_.bytes) + " were promised");
    }
    RUMBO_RETURN_IF_ERROR(Forget());
    lane.whole = true;
    rest_from_ = UINT64_MAX;
    lane.piece = {0, answer.content_length.value_or(request_.bytes.value_or(0))};
    lane.at = 0;
    if (!answer.content_length && !request_.bytes) {
      asked_ = true;
      etag_ = answer.etag;
      return absl::OkStatus();  // the length is known at the end; nothing can be resumed
    }
    return Learn(lane.piece.end, answer.etag);
  }

  // The length and tag of what comes; the journal begins with them.
  absl::Status Learn(uint64_t size, const std::string& etag) {
    asked_ = true;
    have_etag_from_this_server_ = true;
    if (!etag.empty()) etag_ = etag;
    std::lock_guard lock(mutex_);
    size_ = size;
    if (journal_ || request_.only_first) return absl::OkStatus();
    auto journal = Journal::Begin(JournalPath(), {size, request_.sha256, etag_}, durable_);
    if (!journal.ok()) return journal.status();
    journal_ = std::move(*journal);
    return absl::OkStatus();
  }

  // Back to nothing.
  absl::Status Forget() {
    std::lock_guard lock(mutex_);
    have_.Clear();
    durable_.Clear();
    journal_.reset();
    resumed_ = 0;
    ++generation_;  // the hasher starts over
    if (!request_.bytes) size_.reset();
    etag_.clear();
    ::unlink(JournalPath().c_str());
    if (::ftruncate(fd_.get(), 0) != 0) return ErrnoStatus(errno, "truncate");
    return absl::OkStatus();
  }

  bool OnData(Lane& lane, const char* data, size_t size) {
    const long status = lane.handle.answer().status;
    if (status != 200 && status != 206) return true;
    if (stop_) return false;
    if (lane.piece.end != 0 && size > lane.piece.end - lane.at) {
      if (lane.whole || lane.at >= lane.piece.end) {
        lane.failed = Refused("the server sends more than it announced");
        return false;
      }
      size = lane.piece.end - lane.at;
    }
    if (request_.only_first && lane.at >= *request_.only_first) return false;
    if (lane.failed = WriteAt(fd_.get(), data, size, lane.at); !lane.failed.ok()) return false;
    {
      std::lock_guard lock(mutex_);
      have_.Add(lane.at, lane.at + size);
      fresh_ += size;
      received_ += size;
      if (++wakes_ % 16 == 0) changed_.notify_all();
    }
    lane.at += size;
    // libcurl lets each transfer begin with a burst of megabytes; this holds all of them together.
    while (!stop_ && Ahead()) {
      std::this_thread::sleep_for(milliseconds(5));
      ReportNow();
    }
    return true;
  }

  // Ended transfers: good, cut, redirected, refused.
  absl::Status Collect(CURLM* multi, std::vector<std::unique_ptr<Lane>>& lanes) {
    int left = 0;
    absl::Status failed;
    while (CURLMsg* message = curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      for (auto& lane : lanes) {
        if (lane->handle.easy() != message->easy_handle) continue;
        curl_multi_remove_handle(multi, lane->handle.easy());
        lane->busy = false;
        const absl::Status ended = Ended(multi, *lane, code);
        if (failed.ok() && !ended.ok()) failed = ended;
      }
    }
    return failed;
  }

  absl::Status Ended(CURLM* multi, Lane& lane, CURLcode code) {
    WebAnswer answer = lane.handle.answer();
    curl_easy_getinfo(lane.handle.easy(), CURLINFO_RESPONSE_CODE, &answer.status);
    if (!lane.failed.ok()) return lane.failed;
    if (request_.only_first && code == CURLE_WRITE_ERROR && lane.at >= *request_.only_first)
      return absl::OkStatus();
    const absl::Status outcome = lane.handle.Outcome(code);
    if (!outcome.ok()) return outcome;
    if (answer.status >= 300 && answer.status < 400) {
      RUMBO_ASSIGN_OR_RETURN(const Url next, FollowRedirect(policy_, answer, lane.seen));
      final_url_ = next;
      Start(multi, lane, next);
      return absl::OkStatus();
    }
    if (answer.status == 416) {
      // It has less than we asked for: what we hold is of another file.
      if (resumed_ > 0 || ranged_) return Restart(answer.url.authority() + " has another file by now");
      if (request_.bytes.value_or(0) == 0) return EmptyFile(answer);
      return Refused(answer.url.authority() + " has no such range");
    }
    RUMBO_RETURN_IF_ERROR(StatusOfHttp(answer));
    if (lane.whole || answer.status == 200) {
      if (answer.status == 200 && !lane.whole)
        RUMBO_RETURN_IF_ERROR(BeginWhole(lane, answer));  // no body at all
      if (lane.piece.end == 0) RUMBO_RETURN_IF_ERROR(Learn(lane.at, answer.etag));
      if (lane.at < lane.piece.end) return Failed(answer.url.authority() + " closed before the end");
      return absl::OkStatus();
    }
    if (lane.at < lane.piece.end) return Failed(answer.url.authority() + " closed before the end");
    return absl::OkStatus();
  }

  absl::Status EmptyFile(const WebAnswer& answer) { return Learn(0, answer.etag); }

  // ---- The hash: one thread, behind the transfer ----

  void Hash() {
    std::vector<char> buffer(1 << 20);
    std::unique_lock lock(mutex_);
    while (true) {
      const uint64_t generation = generation_;
      auto sha256 = std::make_unique<Digest>(EVP_sha256());
      uint64_t at = 0;
      while (generation == generation_) {
        const uint64_t end = have_.ContiguousFrom(at);
        if (at == end) {
          if (transfer_over_) {
            hash_ = complete_ ? sha256->Hex() : "";
            return;
          }
          changed_.wait_for(lock, milliseconds(20));
          continue;
        }
        const size_t wish = std::min<uint64_t>(end - at, buffer.size());
        lock.unlock();
        const ssize_t n = ::pread(fd_.get(), buffer.data(), wish, static_cast<off_t>(at));
        if (n > 0) sha256->Update(buffer.data(), static_cast<size_t>(n));
        lock.lock();
        if (n <= 0) {
          if (generation != generation_) break;
          sync_status_ =
              n < 0 ? ErrnoStatus(errno, "read the download") : Internal("the download's file shrank");
          hash_.clear();
          return;
        }
        at += static_cast<uint64_t>(n);
        hashed_ = at;
      }
    }
  }

  // ---- The journal: one thread ----

  void Sync() {
    std::unique_lock lock(mutex_);
    auto due = Clock::now() + milliseconds(options_.sync_ms);
    while (!transfer_over_) {
      changed_.wait_for(lock, milliseconds(100));
      if (transfer_over_ || !journal_ || fresh_ == 0 || (fresh_ < kSyncEvery && Clock::now() < due)) continue;
      lock.unlock();
      const absl::Status synced = MakeDurable();
      lock.lock();
      due = Clock::now() + milliseconds(options_.sync_ms);
      if (!synced.ok()) {
        sync_status_ = synced;
        return;
      }
    }
  }

  // Syncs the file, then says so in the journal. A sync that failed is never tried again: what the kernel
  // dropped by then is not known.
  absl::Status MakeDurable() {
    std::lock_guard one(sync_mutex_);
    RangeSet now;
    uint64_t generation;
    {
      std::lock_guard lock(mutex_);
      if (!journal_) return absl::OkStatus();
      now = have_;
      generation = generation_;
      fresh_ = 0;
    }
    if (::fdatasync(fd_.get()) != 0) return ErrnoStatus(errno, "sync the download");
    std::lock_guard lock(mutex_);
    if (generation != generation_ || !journal_) return absl::OkStatus();
    RUMBO_RETURN_IF_ERROR(journal_->Append(now));
    durable_ = now;
    return absl::OkStatus();
  }

  // ---- The end ----

  absl::StatusOr<BlobResult> Finish() {
    RUMBO_RETURN_IF_ERROR(SyncFailure());
    if (request_.only_first) {
      if (::ftruncate(fd_.get(), static_cast<off_t>(*size_)) != 0)
        return ErrnoStatus(errno, "extend the file");
      return BlobResult{"", *size_, 0};
    }
    Report("verify");
    bool right = request_.sha256.empty() || request_.sha256 == hash_;
    std::string is = "its sha256 is " + hash_ + ", not " + request_.sha256;
    if (right && request_.sha256.empty() && !request_.git_sha1.empty()) {
      RUMBO_ASSIGN_OR_RETURN(const std::string sha1, GitSha1());
      right = sha1 == request_.git_sha1;
      is = "its object name is " + sha1 + ", not " + request_.git_sha1;
    }
    if (!right) {
      ::unlink(request_.out.c_str());
      ::unlink(JournalPath().c_str());
      return Error(
          absl::StatusCode::kDataLoss, Reason::kHashMismatch, "the download is not what it should be: " + is,
          "Nothing was kept. Pull again; where it stays so, the server or a proxy changes the file.");
    }
    if (::fsync(fd_.get()) != 0) return ErrnoStatus(errno, "sync the download");
    return BlobResult{hash_, *size_, resumed_};
  }

  absl::StatusOr<std::string> GitSha1() {
    Digest sha1(EVP_sha1());
    const std::string head = "blob " + std::to_string(*size_);
    sha1.Update(head.c_str(), head.size() + 1);
    std::vector<char> buffer(1 << 20);
    for (uint64_t at = 0; at < *size_;) {
      const ssize_t n = ::pread(fd_.get(), buffer.data(), buffer.size(), static_cast<off_t>(at));
      if (n <= 0) return ErrnoStatus(n < 0 ? errno : EIO, "read the download");
      sha1.Update(buffer.data(), static_cast<size_t>(n));
      at += static_cast<uint64_t>(n);
    }
    return sha1.Hex();
  }

  void Report(const char* step) {
    BlobProgress progress;
    progress.step = step;
    {
      std::lock_guard lock(mutex_);
      progress.done = std::min(have_.total(), size_.value_or(have_.total()));
      progress.total = size_;
    }
    const auto now = Clock::now();
    samples_.emplace_back(now, progress.done);
    while (samples_.size() > 2 && now - samples_.front().first > std::chrono::seconds(5))
      samples_.pop_front();
    const double seconds = std::chrono::duration<double>(now - samples_.front().first).count();
    if (seconds > 0 && progress.done > samples_.front().second)
      progress.bytes_per_s = static_cast<double>(progress.done - samples_.front().second) / seconds;
    progress_(progress);
  }

  const WebOptions& options_;
  const UrlPolicy policy_;
  const BlobRequest& request_;
  const std::atomic<bool>& stop_;
  const std::function<void(const BlobProgress&)>& progress_;

  UniqueFd fd_;
  std::thread hasher_, syncer_;

  // The transfer's thread.
  std::optional<Url> url_;
  Url final_url_;
  std::string etag_;
  bool have_etag_from_this_server_ = false;
  bool ranged_ = false;
  bool asked_ = false;
  std::optional<uint64_t> rest_from_;
  const Clock::time_point started_ = Clock::now();
  Clock::time_point next_report_{};
  std::deque<std::pair<Clock::time_point, uint64_t>> samples_;

  std::mutex sync_mutex_;
  std::mutex mutex_;  // all below
  std::condition_variable changed_;
  std::optional<uint64_t> size_;
  RangeSet have_, durable_;
  std::optional<Journal> journal_;
  uint64_t resumed_ = 0;
  uint64_t generation_ = 0;
  uint64_t fresh_ = 0;     // bytes since the last sync
  uint64_t received_ = 0;  // by this run
  uint64_t wakes_ = 0;
  uint64_t hashed_ = 0;
  bool transfer_over_ = false, complete_ = false;
  std::string hash_;
  absl::Status sync_status_;
};

}  // namespace

absl::StatusOr<BlobResult> DownloadBlob(const WebOptions& options, UrlPolicy policy,
                                        const BlobRequest& request, const std::atomic<bool>& stop,
                                        const std::function<void(const BlobProgress&)>& progress) {
  return Download(options, std::move(policy), request, stop, progress).Run();
}

}  // namespace rumbo
