#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#include "base/os/unique_fd.h"

namespace rumbo {

// A client that says exactly what the test writes. Every read ends within a minute.
class Client {
 public:
  explicit Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), port_(port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{60, 0};
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    connected_ = ::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  bool connected() const { return connected_; }
  int fd() const { return fd_.get(); }
  void Send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<size_t>(n));
    }
  }
  // GET or POST with the usual headers; `extra` are whole lines.
  void Request(std::string_view method, std::string_view path, std::string_view body = "",
               std::string extra = "") {
    std::string text = std::string(method) + " " + std::string(path) + " HTTP/1.1\r\n";
    if (extra.find("Host:") == std::string::npos)
      extra += "Host: 127.0.0.1:" + std::to_string(port_) + "\r\n";
    text += extra;
    const bool has_body = method == "POST" || !body.empty();
    if (has_body && extra.find("Content-Type:") == std::string::npos) {
      text += "Content-Type: application/json\r\n";
    }
    if (has_body) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    Send(text + "\r\n" + std::string(body));
  }
  // Reads until `marker` has come or the connection ends.
  std::string ReadUntil(std::string_view marker) {
    while (buffer_.find(marker) == std::string::npos) {
      if (!ReadMore()) break;
    }
    const size_t at = buffer_.find(marker);
    const size_t end = at == std::string::npos ? buffer_.size() : at + marker.size();
    std::string out = buffer_.substr(0, end);
    buffer_.erase(0, end);
    return out;
  }
  std::string ReadAll() {
    while (ReadMore()) {
    }
    return std::exchange(buffer_, "");
  }
  bool Eof() {
    const bool more = ReadMore();
    return !more && ended_;
  }
  struct Reply {
    int status = 0;
    std::string head;
    std::string body;
    std::string Header(const std::string& name) const {
      const size_t at = head.find("\r\n" + name + ": ");
      if (at == std::string::npos) return "";
      const size_t from = at + name.size() + 4;
      return head.substr(from, head.find("\r\n", from) - from);
    }
  };
  Reply Read(bool head_only = false) {
    Reply reply;
    reply.head = ReadUntil("\r\n\r\n");
    if (reply.head.size() < 12) return reply;
    reply.status = std::atoi(reply.head.c_str() + 9);
    if (head_only) return reply;
    if (reply.Header("transfer-encoding") == "chunked") {
      for (;;) {
        const std::string line = ReadUntil("\r\n");
        const size_t n = std::strtoul(line.c_str(), nullptr, 16);
        while (buffer_.size() < n + 2 && ReadMore()) {
        }
        reply.body += buffer_.substr(0, n);
        buffer_.erase(0, n + 2);
        if (n == 0) return reply;
      }
    }
    const size_t n = std::strtoul(reply.Header("content-length").c_str(), nullptr, 10);
    while (buffer_.size() < n && ReadMore()) {
    }
    reply.body = buffer_.substr(0, n);
    buffer_.erase(0, n);
    return reply;
  }

 private:
  bool ReadMore() {
    char chunk[65536];
    const ssize_t n = ::recv(fd_.get(), chunk, sizeof chunk, 0);
    if (n == 0 || (n < 0 && errno == ECONNRESET)) ended_ = true;
    if (n <= 0) return false;
    buffer_.append(chunk, static_cast<size_t>(n));
    return true;
  }
  UniqueFd fd_;
  uint16_t port_;
  bool connected_ = false;
  bool ended_ = false;
  std::string buffer_;
};

}  // namespace rumbo
