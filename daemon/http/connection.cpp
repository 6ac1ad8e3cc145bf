#include "daemon/http/connection.h"

#include <arpa/inet.h>
#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <ctime>

#include "base/status.h"

namespace rumbo {
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr size_t kMaxUnread = 64 * 1024;
constexpr size_t kBigBody = 256 * 1024;
constexpr std::chrono::seconds kLinger{2};

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

const char* StatusWord(int status) {
  switch (status) {
    case 100:
      return "Continue";
    case 200:
      return "OK";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 413:
      return "Content Too Large";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Unknown";
  }
}

std::string NameOf(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof text);
  return std::string(text) + ":" + std::to_string(ntohs(address.sin_port));
}

class ConnectionExchange final : public Exchange {
 public:
  ConnectionExchange(std::shared_ptr<IoLoop> loop, std::weak_ptr<Connection> connection, uint64_t sequence,
                     HttpRequest request)
      : loop_(std::move(loop)),
        connection_(std::move(connection)),
        sequence_(sequence),
        request_(std::move(request)) {}

  ~ConnectionExchange() override {
    if (answered_) return;
    Reply(ErrorReply(request_.route->dialect, Error(absl::StatusCode::kUnavailable, Reason::kDraining,
                                                    "the request was not answered", "Try again.")));
  }

  HttpRequest& request() override { return request_; }

  void Reply(HttpReply reply) override {
    if (answered_.exchange(true)) return;
    asio::dispatch(loop_->io,
                   [connection = connection_, sequence = sequence_, reply = std::move(reply)]() mutable {
                     if (const auto c = connection.lock()) c->SendReply(sequence, std::move(reply));
                   });
  }

  void Run(InferenceRequest request, std::unique_ptr<AnswerEncoder> encoder) override {
    if (answered_.exchange(true)) return;
    asio::dispatch(loop_->io, [connection = connection_, sequence = sequence_, request = std::move(request),
                               encoder = std::move(encoder)]() mutable {
      if (const auto c = connection.lock()) c->StartStream(sequence, std::move(request), std::move(encoder));
    });
  }

  void Stream(StreamStarter start) override {
    if (answered_.exchange(true)) return;
    asio::dispatch(loop_->io, [connection = connection_, sequence = sequence_, start = std::move(start)] {
      if (const auto c = connection.lock()) c->StartByteStream(sequence, start);
    });
  }

 private:
  const std::shared_ptr<IoLoop> loop_;
  const std::weak_ptr<Connection> connection_;
  const uint64_t sequence_;
  HttpRequest request_;
  std::atomic<bool> answered_{false};
};

}  // namespace

void IoLoop::WakeForMailbox() {
  asio::post(io, [this] {
    mailbox.Drain(drained);
    for (auto& stream : drained) {
      if (stream->owner != nullptr) stream->owner->OnStreamReady();
    }
    drained.clear();
  });
}

std::string_view ConnectionContext::Date() {
  const time_t now = ::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    tm parts;
    char text[40];
    const size_t n = ::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", ::gmtime_r(&now, &parts));
    date_.assign(text, n);
  }
  return date_;
}

struct Connection::Parser : http::request_parser<http::string_body> {};

Connection::Connection(ConnectionContext& context, HttpSocket socket, const Doorway& door)
    : context_(context), socket_(std::move(socket)), door_(door) {}

Connection::~Connection() = default;

void Connection::Start() {
  context_.open.emplace(this, shared_from_this());
  ++context_.loop->metrics.connections;
  error_code error;
  socket_.non_blocking(true, error);
  socket_.set_option(asio::ip::tcp::no_delay(true), error);
  socklen_t length = sizeof peer_;
  const bool named =
      ::getpeername(socket_.native_handle(), reinterpret_cast<sockaddr*>(&peer_), &length) == 0;
  length = sizeof ours_;
  ::getsockname(socket_.native_handle(), reinterpret_cast<sockaddr*>(&ours_), &length);
  if (!named) return Close();
  client_.uid = UINT32_MAX;
  if (door_.tls) {
    tls_ = door_.tls->NewSession(socket_.native_handle());
    if (!tls_) return Close();
  } else if (const auto peer = context_.peers.Find(peer_, ours_)) {
    client_.uid = peer->uid;
  }
  deadline_ = std::chrono::steady_clock::now() + context_.options.header_timeout;
  WatchRead();
}

// ---- Reading ----

void Connection::WatchRead() {
  if (watching_ || closed_ || half_closed_ || unread_.size() > kMaxUnread) return;
  watching_ = true;
  auto then = [self = shared_from_this()](error_code error) {
    self->watching_ = false;
    if (self->closed_) return;
    error ? self->Close() : self->OnReadable();
  };
  if (tls_ && tls_->Pending()) {
    asio::post(context_.loop->io, [then = std::move(then)] { then({}); });
    return;
  }
  socket_.async_wait(std::exchange(read_wants_write_, false) ? HttpSocket::wait_write : HttpSocket::wait_read,
                     std::move(then));
}

size_t Connection::ReadSome(error_code& error) {
  if (!tls_) return socket_.read_some(asio::buffer(context_.scratch), error);
  const auto step = tls_->Read(context_.scratch, sizeof context_.scratch);
  switch (step.state) {
    case TlsSession::State::kDone:
      return step.bytes;
    case TlsSession::State::kWantWrite:
      read_wants_write_ = true;
      [[fallthrough]];
    case TlsSession::State::kWantRead:
      error = asio::error::would_block;
      return 0;
    case TlsSession::State::kEnded:
      error = asio::error::eof;
      return 0;
    case TlsSession::State::kBroken:
      error = asio::error::connection_reset;
      return 0;
  }
  return 0;
}

// Whether somebody still holds the other end. Only the kernel of this machine could say otherwise.
bool Connection::PeerIsThere() {
  if (tls_) return true;
  const auto peer = context_.peers.Find(peer_, ours_);
  return peer && peer->held;
}

void Connection::OnReadable() {
  error_code error;
  const size_t n = ReadSome(error);
  if (error == asio::error::would_block) return WatchRead();
  if (error == asio::error::eof) return OnPeerEof();
  if (error) return Close();
  if (!lingering_) {
    Feed({context_.scratch, n});
  } else if ((dropped_ += n) > 2 * context_.options.max_body_bytes) {
    return Close();  // it does not listen
  }
  WatchRead();
}

// The client ended its sending. That alone is no reason to stop (curl and netcat may do so); a client that
// closed its socket is. Over TLS the two look the same: it has gone.
void Connection::OnPeerEof() {
  if (!busy_ || lingering_ || tls_ || !PeerIsThere()) return Close();
  half_closed_ = true;
  keep_alive_ = false;
}

void Connection::Feed(std::string_view input) {
  if (feeding_) {
    unread_ += input;
    return;
  }
  const auto self = shared_from_this();
  feeding_ = true;
  std::string joined;
  if (!unread_.empty()) {
    joined.swap(unread_);
    joined += input;
    input = joined;
  }
  while (!busy_ && !closed_ && !lingering_ && !input.empty() && FeedSome(input)) {
  }
  if (!closed_ && !lingering_ && !input.empty()) unread_ = std::string(input);
  feeding_ = false;
  if (unread_.size() > kMaxUnread && !busy_) {
    RefuseAndClose(431, Reason::kRequestTooLarge, "the request's framing is too long");
  }
}

bool Connection::FeedSome(std::string_view& input) {
  if (!parser_) {
    parser_ = std::make_unique<Parser>();
    parser_->header_limit(static_cast<uint32_t>(context_.options.max_header_bytes));
    parser_->body_limit(context_.options.max_body_bytes);
    head_checked_ = head_only_ = http10_ = false;
    request_id_ = NewRequestId();
    begun_ = std::chrono::steady_clock::now();
    deadline_ = std::chrono::steady_clock::now() + context_.options.header_timeout;
  }
  error_code error;
  const size_t used = parser_->put(asio::const_buffer(input.data(), input.size()), error);
  input.remove_prefix(used);
  if (error == http::error::need_more) return false;
  if (error == http::error::header_limit) {
    RefuseAndClose(431, Reason::kRequestTooLarge, "the request's headers are too long");
    return false;
  }
  if (error == http::error::body_limit) {
    RefuseAndClose(
        413, Reason::kRequestTooLarge,
        "the request body is longer than " + std::to_string(context_.options.max_body_bytes) + " bytes");
    return false;
  }
  if (error) {
    RefuseAndClose(400, Reason::kInvalidArgument, "this is not a valid HTTP request");
    return false;
  }
  if (parser_->is_header_done() && !head_checked_ && !OnHead()) return false;
  if (parser_->is_done()) {
    Dispatch();
    return true;
  }
  return used > 0;  // a parser that takes nothing wants more
}

// Judges the head before the body is read. False: refused and answered.
bool Connection::OnHead() {
  head_checked_ = true;
  const auto& message = parser_->get();
  http10_ = message.version() < 11;
  keep_alive_ = parser_->keep_alive() && !context_.draining;
  request_ = HttpRequest();
  request_.method = std::string(View(message.method_string()));
  request_.target = std::string(View(message.target()));
  for (const auto& field : message) {
    std::string name(View(field.name_string()));
    for (char& c : name) {
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    request_.headers.emplace_back(std::move(name), std::string(View(field.value())));
  }
  head_only_ = request_.method == "HEAD";
  request_.client = client_;
  request_.id = request_id_;
  if (tls_) request_.own_name = NameOf(ours_);
  const auto refuse = [&](int status, std::string_view message_text) {
    RefuseAndClose(status, Reason::kInvalidArgument, message_text);
    return false;
  };
  if (request_.headers.size() > context_.options.max_headers) return refuse(431, "too many headers");
  if (message.version() != 10 && message.version() != 11)
    return refuse(400, "this HTTP version is not served");
  const std::string_view coding = request_.Header("transfer-encoding");
  if (request_.CountHeader("transfer-encoding") > 1 || (!coding.empty() && coding != "chunked") ||
      (!coding.empty() && (http10_ || request_.CountHeader("content-length") > 0)) ||
      request_.CountHeader("content-length") > 1 ||
      request_.Header("content-length").find_first_not_of("0123456789") != std::string_view::npos) {
    return refuse(400, "the length of the request body is ambiguous");
  }
  begun_ = std::chrono::steady_clock::now();
  auto admitted = Admit(*door_.guard, request_);
  if (auto* reply = std::get_if<HttpReply>(&admitted)) {
    RefuseHead(std::move(*reply));
    return false;
  }
  if (!MayEnter(*std::get<const Route*>(admitted))) return false;
  if (context_.traces != nullptr) BeginSpan();
  deadline_ = std::chrono::steady_clock::now() + context_.options.body_timeout;
  if (!parser_->is_done() && !http10_ && request_.Header("expect") == "100-continue") {
    error_code error;
    prefix_ = "HTTP/1.1 100 Continue\r\n\r\n";
    written_ = 0;
    WriteSome(prefix_.size(), error);
    prefix_.clear();
  }
  return true;
}

// Who asks, whether they may, and whether it is not too much of it. False: refused and answered.
bool Connection::MayEnter(const Route& route) {
  absl::Status status = context_.access->Authorize(request_, route.scope);
  principal_ = request_.principal;
  argument_ = request_.argument;
  route_ = &route;
  if (status.ok() && route.scope >= Scope::kInference) {
    status = context_.limiter->Begin(principal_, begun_);
    limited_ = status.ok();
  }
  if (status.ok()) return true;
  HttpReply reply = ErrorReply(route.dialect, status);
  if (reply.status == 401) reply.headers.emplace_back("www-authenticate", "Bearer realm=\"rumbo\"");
  RefuseHead(std::move(reply));
  return false;
}

// Answers before the body was read; the connection can only go on where there is none.
void Connection::RefuseHead(HttpReply reply) {
  ++sequence_;
  busy_ = true;
  if (parser_->is_done()) {
    parser_.reset();
  } else {
    reply.close = true;
  }
  ReplyNow(std::move(reply));
}

void Connection::Dispatch() {
  request_.body = std::move(parser_->get().body());
  parser_.reset();
  busy_ = true;
  deadline_ = std::chrono::steady_clock::time_point::max();
  const Route* route = request_.route;
  const bool big = route->json_body && request_.body.size() > kBigBody;
  auto exchange =
      std::make_shared<ConnectionExchange>(context_.loop, weak_from_this(), ++sequence_, std::move(request_));
  if (!big) return route->handler(context_.loop->api, std::move(exchange));
  if (!context_.big_bodies) context_.big_bodies = NewThreadExecutor("rumbo-http-body");
  context_.big_bodies->Post([route, loop = context_.loop, exchange = std::move(exchange)]() mutable {
    route->handler(loop->api, std::move(exchange));
  });
}

void Connection::RefuseAndClose(int status, Reason reason, std::string_view message) {
  HttpReply reply = ErrorReply(Dialect::kOpenAi, Error(absl::StatusCode::kInvalidArgument, reason, message));
  reply.status = status;
  reply.close = true;
  ++sequence_;
  busy_ = true;
  ReplyNow(std::move(reply));
}

// ---- Answering ----

void Connection::SendReply(uint64_t sequence, HttpReply reply) {
  if (closed_ || !busy_ || sequence != sequence_) return;
  ReplyNow(std::move(reply));
}

void Connection::ReplyNow(HttpReply reply) {
  if (reply.close) keep_alive_ = false;
  status_ = reply.status;
  if (!reply.subject.empty()) argument_ = std::move(reply.subject);
  if (span_) NoteSource(reply);
  prefix_.clear();
  AppendHead(reply, reply.body.size());
  if (!head_only_) data_ = std::move(reply.body);
  answer_ends_ = true;
  Write();
}

void Connection::StartStream(uint64_t sequence, InferenceRequest request,
                             std::unique_ptr<AnswerEncoder> encoder) {
  if (closed_ || !busy_ || sequence != sequence_) return;
  if (span_) span_->attributes.emplace_back("gen_ai.request.model", request.model);
  stream_ = std::make_shared<OutStream>(std::shared_ptr<Mailbox>(context_.loop, &context_.loop->mailbox),
                                        std::move(encoder), context_.options.output_buffer_bytes / 2);
  stream_->owner = this;
  stream_->call = context_.loop->api.core->Generate(std::move(request), stream_);
}

void Connection::StartByteStream(uint64_t sequence, const Exchange::StreamStarter& start) {
  if (closed_ || !busy_ || sequence != sequence_) return;
  stream_ = std::make_shared<OutStream>(std::shared_ptr<Mailbox>(context_.loop, &context_.loop->mailbox),
                                        nullptr, context_.options.output_buffer_bytes / 2);
  stream_->owner = this;
  stream_->call = start(stream_);
}

void Connection::AppendHead(const HttpReply& reply, std::optional<size_t> length) {
  prefix_ += http10_ ? "HTTP/1.0 " : "HTTP/1.1 ";
  prefix_ += std::to_string(reply.status);
  prefix_ += ' ';
  prefix_ += StatusWord(reply.status);
  prefix_ += "\r\ndate: ";
  prefix_ += context_.Date();
  prefix_ +=
      "\r\nserver: rumbo\r\nx-content-type-options: nosniff\r\ncross-origin-resource-policy: same-origin\r\n";
  const auto add = [&](std::string_view name, std::string_view value) {
    prefix_ += name;
    prefix_ += ": ";
    prefix_ += value;
    prefix_ += "\r\n";
  };
  if (!reply.content_type.empty()) add("content-type", reply.content_type);
  add("x-request-id", request_id_);
  if (route_ != nullptr && route_->dialect == Dialect::kAnthropic) add("request-id", request_id_);
  for (const auto& [name, value] : reply.headers) add(name, value);
  chunked_ = !length && !http10_;
  if (!length && http10_) keep_alive_ = false;
  if (length) add("content-length", std::to_string(*length));
  if (chunked_) add("transfer-encoding", "chunked");
  if (!keep_alive_) add("connection", "close");
  if (keep_alive_ && http10_) add("connection", "keep-alive");
  prefix_ += "\r\n";
}

void Connection::OnStreamReady() {
  if (writing_) {
    again_ = true;
    return;
  }
  Pump();
}

// Takes what the stream has and starts writing it.
void Connection::Pump() {
  prefix_.clear();
  suffix_.clear();
  data_.clear();
  OutStream::Batch batch = stream_->Take(data_);
  if (batch.finished) context_.loop->metrics.AddInference(*batch.finished);
  if (batch.finished && span_) NoteInference(*batch.finished);
  if (batch.head && batch.whole) {
    ReplyNow(std::move(*batch.head));
    return;
  }
  if (batch.head) {
    status_ = batch.head->status;
    if (span_) NoteSource(*batch.head);
    AppendHead(*batch.head, std::nullopt);
  }
  if (chunked_ && !data_.empty()) {
    char hex[24];
    prefix_.append(hex, static_cast<size_t>(std::snprintf(hex, sizeof hex, "%zx\r\n", data_.size())));
    suffix_ = "\r\n";
  }
  if (chunked_ && batch.last) suffix_ += "0\r\n\r\n";
  answer_ends_ = batch.last;
  resume_ = batch.resume;
  Write();
}

void Connection::Write() {
  if (!writing_) {
    writing_ = true;
    written_ = 0;
    deadline_ = std::chrono::steady_clock::now() + context_.options.write_timeout;
  }
  const size_t total = prefix_.size() + data_.size() + suffix_.size();
  while (written_ < total) {
    error_code error;
    const size_t n = WriteSome(total, error);
    if (error == asio::error::would_block) return WatchWrite();
    if (error) return Close();
    written_ += n;
    deadline_ = std::chrono::steady_clock::now() + context_.options.write_timeout;
  }
  OnWritten();
}

void Connection::WatchWrite() {
  socket_.async_wait(HttpSocket::wait_write, [self = shared_from_this()](error_code error) {
    if (self->closed_) return;
    error ? self->Close() : self->Write();
  });
}

// Sends what the socket takes of what has not been written yet.
size_t Connection::WriteSome(size_t total, error_code& error) {
  std::array<asio::const_buffer, 3> buffers;
  size_t skip = written_;
  size_t at = 0;
  for (const std::string* part : {&prefix_, &data_, &suffix_}) {
    const size_t from = std::min(skip, part->size());
    skip -= from;
    buffers[at++] = asio::const_buffer(part->data() + from, part->size() - from);
  }
  if (!tls_) return socket_.write_some(buffers, error);
  // One record; after a kWantWrite the same bytes again, from the same place in the answer.
  char record[16 * 1024];
  const size_t size =
      asio::buffer_copy(asio::buffer(record), buffers, std::min(total - written_, sizeof record));
  const auto step = tls_->Write({record, size});
  if (step.state == TlsSession::State::kDone) return step.bytes;
  error = step.state == TlsSession::State::kWantWrite ? error_code(asio::error::would_block)
                                                      : error_code(asio::error::connection_reset);
  return 0;
}

void Connection::OnWritten() {
  writing_ = false;
  deadline_ = std::chrono::steady_clock::time_point::max();
  if (answer_ends_) return FinishAnswer();
  if (resume_ && stream_->call) stream_->call->Resume();
  resume_ = false;
  if (!again_) return;
  again_ = false;
  // Through the queue, so that one fast stream does not starve the others.
  asio::post(context_.loop->io, [self = shared_from_this()] {
    if (!self->closed_ && self->stream_ && !self->writing_) self->Pump();
  });
}

// The answer has ended, or its client has left (499).
void Connection::NoteAnswer() {
  const std::string_view path = route_ != nullptr ? std::string_view(route_->path) : "other";
  const auto took = std::chrono::steady_clock::now() - begun_;
  const double seconds = std::chrono::duration<double>(took).count();
  context_.loop->metrics.AddAnswer(path, status_, seconds);
  if (route_ != nullptr && route_->scope >= Scope::kModels) {
    context_.audit->Write({principal_, client_.uid, route_->method, path, argument_, status_});
  }
  if (spdlog::should_log(spdlog::level::debug)) {
    spdlog::debug("http id={} who={} route={} status={} ms={:.1f}", request_id_, principal_, path, status_,
                  seconds * 1e3);
  }
  if (span_) EndSpan(path, took);
  if (limited_) context_.limiter->End(principal_);
  limited_ = false;
  route_ = nullptr;
  status_ = 0;
}

// Part of a trace unless the caller says that its trace is not recorded.
void Connection::BeginSpan() {
  const auto parent = ParseTraceParent(request_.Header("traceparent"));
  if (parent && !parent->sampled) return;
  span_ = std::make_unique<TraceSpan>();
  span_->parent = parent;
  span_->begin = std::chrono::system_clock::now();
}

void Connection::NoteSource(const HttpReply& reply) {
  constexpr std::string_view kPrefix = "x-rumbo-";
  for (const auto& [name, value] : reply.headers) {
    if (name.rfind(kPrefix, 0) == 0)
      span_->attributes.emplace_back("rumbo." + name.substr(kPrefix.size()), value);
  }
}

void Connection::NoteInference(const FinishedEvent& finished) {
  const auto ms = [](double value) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double, std::milli>(value));
  };
  auto& to = span_->attributes;
  to.emplace_back("gen_ai.usage.input_tokens", int64_t{finished.prompt_tokens});
  to.emplace_back("gen_ai.usage.output_tokens", int64_t{finished.completion_tokens});
  to.emplace_back("rumbo.cached_tokens", int64_t{finished.cached_tokens});
  to.emplace_back("rumbo.finish_reason", finished.reason);
  span_->parts = {{"queue", ms(finished.queue_ms)},
                  {"prefill", ms(finished.ttft_ms)},
                  {"decode", ms(finished.decode_ms)}};
}

void Connection::EndSpan(std::string_view path, std::chrono::steady_clock::duration took) {
  span_->name = (route_ != nullptr ? std::string(route_->method) + " " : std::string()) + std::string(path);
  span_->duration = took;
  span_->failed = status_ >= 500;
  auto& to = span_->attributes;
  to.emplace_back("http.request.method", std::string(route_ != nullptr ? route_->method : "_OTHER"));
  to.emplace_back("http.route", std::string(path));
  to.emplace_back("http.response.status_code", int64_t{status_});
  to.emplace_back("rumbo.request_id", request_id_);
  context_.traces->Add(std::move(*span_));
  span_.reset();
}

void Connection::FinishAnswer() {
  NoteAnswer();
  if (stream_) {
    stream_->owner = nullptr;
    stream_->call.reset();
    stream_.reset();
  }
  answer_ends_ = again_ = resume_ = false;
  prefix_ = std::string();
  data_ = std::string();
  suffix_ = std::string();
  if (!keep_alive_ || context_.draining) return Linger();
  busy_ = false;
  deadline_ = std::chrono::steady_clock::now() + context_.options.idle_timeout;
  if (!feeding_ && !unread_.empty()) Feed({});
  WatchRead();
}

// Ends a connection so that the client gets what was sent: closing with unread input would reset it.
void Connection::Linger() {
  if (half_closed_ || (!parser_ && unread_.empty())) return Close();
  error_code error;
  if (tls_) tls_->Shutdown();
  socket_.shutdown(HttpSocket::shutdown_send, error);
  if (error) return Close();
  lingering_ = true;
  unread_ = std::string();
  parser_.reset();
  deadline_ = std::chrono::steady_clock::now() + kLinger;
  WatchRead();
}

void Connection::CloseWhenIdle() {
  keep_alive_ = false;
  if (!busy_) Close();
}

void Connection::Close() {
  if (closed_) return;
  closed_ = true;
  --context_.loop->metrics.connections;
  if (busy_ && !lingering_) {
    ++context_.loop->metrics.disconnects;
    status_ = 499;
    NoteAnswer();
  } else if (limited_) {
    context_.limiter->End(principal_);  // the body never came
  }
  if (stream_) {
    stream_->owner = nullptr;
    stream_->Abandon();
    stream_->call.reset();
    stream_.reset();
  }
  error_code error;
  if (tls_ && !lingering_) tls_->Shutdown();
  tls_.reset();
  socket_.close(error);
  // Later: somebody may be walking through `open` or this object's own functions.
  asio::post(context_.loop->io, [&context = context_, this] { context.open.erase(this); });
}

void Connection::OnTick(std::chrono::steady_clock::time_point now) {
  if (closed_) return;
  // Where no read would tell that the client has gone, the kernel is asked.
  if ((half_closed_ || (busy_ && !watching_ && !lingering_)) && !PeerIsThere()) return Close();
  if (now < deadline_) return;
  // A request half received deserves a word; an idle or stuck connection is just closed.
  if (!busy_ && parser_) {
    RefuseAndClose(408, Reason::kDeadlineExceeded, "the request did not come in time");
    return;
  }
  Close();
}

}  // namespace rumbo
