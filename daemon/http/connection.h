#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "daemon/http/audit.h"
#include "daemon/http/limiter.h"
#include "daemon/http/options.h"
#include "daemon/http/out_stream.h"
#include "daemon/http/peer.h"
#include "daemon/http/routes.h"
#include "daemon/http/tls.h"
#include "daemon/http/trace.h"

namespace rumbo {

namespace asio = boost::asio;
using HttpSocket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

class Connection;

// The io thread's own things. Exchanges and streams that outlive the server keep it, so that a late answer
// finds a queue that nobody runs rather than nothing.
struct IoLoop {
  asio::io_context io{1};
  HttpMetrics metrics;
  Api api;  // here, because handlers' callbacks may come after the server has gone
  Mailbox mailbox{[this] { WakeForMailbox(); }};
  std::vector<std::shared_ptr<OutStream>> drained;
  void WakeForMailbox();
};

// What one door asks of those who come through it.
struct Doorway {
  std::optional<Guard> guard;
  // Set: callers may come from other machines. All that is said goes through TLS, and nobody is believed to
  // be the daemon's own user.
  std::unique_ptr<TlsContext> tls;
};

// What the connections of one server share. Io thread only.
struct ConnectionContext {
  std::shared_ptr<IoLoop> loop;
  HttpOptions options;
  Access* access = nullptr;
  RequestLimiter* limiter = nullptr;
  AuditLog* audit = nullptr;
  TraceExporter* traces = nullptr;  // nullptr: none are wanted
  PeerLookup peers;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> open;  // until closed
  bool draining = false;
  // Reads bodies too big for the io thread, where everyone would wait for it. Made when first needed.
  std::unique_ptr<Executor> big_bodies;
  char scratch[64 * 1024];  // one read at a time, so idle connections own no buffer

  std::string_view Date();  // for the header, cached per second

 private:
  time_t date_second_ = 0;
  std::string date_;
};

// One client connection: reads requests with every limit enforced while reading, hands each to its route,
// sends the one answer, in order. While an answer is under way it goes on reading, so that a client that
// leaves is noticed at once; what a pipelining client has sent meanwhile waits (64 KiB at most).
//
// Threading: io thread. Ownership: by ConnectionContext::open until Close().
class Connection final : public OutStream::Owner, public std::enable_shared_from_this<Connection> {
 public:
  Connection(ConnectionContext& context, HttpSocket socket, const Doorway& door);
  ~Connection() override;

  void Start();
  void Close();          // at once; cancels what runs
  void CloseWhenIdle();  // after the answer under way
  void OnTick(std::chrono::steady_clock::time_point now);
  bool half_closed() const { return half_closed_; }

  // From Exchange. `sequence` names the request: late answers to others do nothing.
  void SendReply(uint64_t sequence, HttpReply reply);
  void StartStream(uint64_t sequence, InferenceRequest request, std::unique_ptr<AnswerEncoder> encoder);
  void StartByteStream(uint64_t sequence, const Exchange::StreamStarter& start);

  // OutStream::Owner
  void OnStreamReady() override;

 private:
  struct Parser;  // Beast's, behind one translation unit

  void WatchRead();
  void OnReadable();
  size_t ReadSome(boost::system::error_code& error);
  size_t WriteSome(size_t total, boost::system::error_code& error);
  void WatchWrite();
  bool PeerIsThere();
  void OnPeerEof();
  void Feed(std::string_view input);
  bool FeedSome(std::string_view& input);  // false: needs more, or ended
  bool OnHead();
  bool MayEnter(const Route& route);
  void RefuseHead(HttpReply reply);
  void NoteAnswer();
  void BeginSpan();
  void NoteSource(const HttpReply& reply);
  void NoteInference(const FinishedEvent& finished);
  void EndSpan(std::string_view path, std::chrono::steady_clock::duration took);
  void Dispatch();
  void RefuseAndClose(int status, Reason reason, std::string_view message);
  void ReplyNow(HttpReply reply);
  void AppendHead(const HttpReply& reply, std::optional<size_t> length);
  void Write();
  void OnWritten();
  void Pump();
  void FinishAnswer();
  void Linger();

  ConnectionContext& context_;
  HttpSocket socket_;
  const Doorway& door_;
  std::unique_ptr<TlsSession> tls_;  // nullptr: plain
  sockaddr_in peer_ = {};
  sockaddr_in ours_ = {};
  ClientIdentity client_;
  std::unique_ptr<Parser> parser_;
  HttpRequest request_;  // being read
  std::string unread_;   // bytes received and not yet parsed
  std::shared_ptr<OutStream> stream_;
  uint64_t sequence_ = 0;
  // Of the request being answered.
  const Route* route_ = nullptr;
  std::string principal_;
  std::string argument_;
  int status_ = 0;
  std::chrono::steady_clock::time_point begun_;
  bool limited_ = false;  // counts with the limiter
  std::string request_id_;
  std::unique_ptr<TraceSpan> span_;  // nullptr: not traced
  std::chrono::steady_clock::time_point deadline_;

  std::string prefix_, data_, suffix_;  // being written
  size_t written_ = 0;
  size_t dropped_ = 0;  // bytes that came after a refusal

  bool watching_ = false;
  bool read_wants_write_ = false;  // TLS: the handshake waits for room to send
  bool feeding_ = false;
  bool head_checked_ = false;
  bool busy_ = false;       // a request is being answered
  bool head_only_ = false;  // HEAD
  bool http10_ = false;
  bool keep_alive_ = true;
  bool chunked_ = false;
  bool writing_ = false;
  bool answer_ends_ = false;  // what is being written is the last of the answer
  bool resume_ = false;       // the engine waits for the write to end
  bool again_ = false;        // more came while writing
  bool half_closed_ = false;
  bool lingering_ = false;
  bool closed_ = false;
};

}  // namespace rumbo
