#include "daemon/http/peer.h"

#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <sys/socket.h>

#include <cstring>

namespace rumbo {

PeerLookup::PeerLookup() : fd_(::socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}

std::optional<PeerSocket> PeerLookup::Find(const sockaddr_in& peer, const sockaddr_in& ours) {
  if (!fd_.valid()) return std::nullopt;
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } question = {};
  question.header.nlmsg_len = sizeof question;
  question.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  question.header.nlmsg_flags = NLM_F_REQUEST;
  question.header.nlmsg_seq = ++sequence_;
  question.request.sdiag_family = AF_INET;
  question.request.sdiag_protocol = IPPROTO_TCP;
  question.request.idiag_states = ~0u;
  question.request.id.idiag_sport = peer.sin_port;
  question.request.id.idiag_dport = ours.sin_port;
  question.request.id.idiag_src[0] = peer.sin_addr.s_addr;
  question.request.id.idiag_dst[0] = ours.sin_addr.s_addr;
  question.request.id.idiag_cookie[0] = INET_DIAG_NOCOOKIE;
  question.request.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
  sockaddr_nl kernel = {};
  kernel.nl_family = AF_NETLINK;
  if (::sendto(fd_.get(), &question, sizeof question, MSG_DONTWAIT, reinterpret_cast<sockaddr*>(&kernel),
               sizeof kernel) < 0) {
    return std::nullopt;
  }
  alignas(nlmsghdr) char buffer[4096];
  // Answers come at once; an old one (after an error) is skipped by its number.
  for (int tries = 0; tries < 4; ++tries) {
    const ssize_t n = ::recv(fd_.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    if (n < static_cast<ssize_t>(sizeof(nlmsghdr))) return std::nullopt;
    const auto* header = reinterpret_cast<const nlmsghdr*>(buffer);
    if (header->nlmsg_seq != sequence_) continue;
    if (header->nlmsg_type != SOCK_DIAG_BY_FAMILY ||
        header->nlmsg_len < NLMSG_LENGTH(sizeof(inet_diag_msg)) ||
        static_cast<size_t>(n) < NLMSG_LENGTH(sizeof(inet_diag_msg))) {
      return std::nullopt;
    }
    inet_diag_msg message;
    std::memcpy(&message, NLMSG_DATA(header), sizeof message);
    return PeerSocket{message.idiag_uid, message.idiag_inode != 0};
  }
  return std::nullopt;
}

}  // namespace rumbo
