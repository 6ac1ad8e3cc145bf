#include "engines/llamacpp/inspect/gguf_precheck.h"

#include <ggml.h>
#include <gguf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <unordered_set>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/utf8.h"
#include "engines/llamacpp/inspect/errors.h"

namespace rumbo {
namespace {

// Far above any real model, far below what hurts.
constexpr uint64_t kMaxHeaderBytes = 128 * kMiB;
constexpr uint64_t kMaxKeys = 65536;
constexpr uint64_t kMaxTensors = 1 << 18;
constexpr uint64_t kMaxKeyLength = 65535;
constexpr uint64_t kMaxStringBytes = 64 * kMiB;
constexpr uint64_t kMaxAlignment = 1 * kMiB;
constexpr uint64_t kMinKeyBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Sequential reads from a descriptor through a small buffer; never past the end.
class Cursor {
 public:
  Cursor(int fd, uint64_t size) : fd_(fd), size_(size), buffer_(256 * kKiB) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return size_ - position_; }

  bool Read(void* out, size_t n) {
    if (n > remaining()) return false;
    char* to = static_cast<char*>(out);
    while (n > 0) {
      if (position_ < start_ || position_ >= start_ + filled_) {
        const ssize_t got = ::pread(fd_, buffer_.data(), buffer_.size(), static_cast<off_t>(position_));
        if (got <= 0) return false;
        start_ = position_;
        filled_ = static_cast<uint64_t>(got);
      }
      const uint64_t offset = position_ - start_;
      const size_t step = std::min<uint64_t>(n, filled_ - offset);
      std::memcpy(to, buffer_.data() + offset, step);
      to += step;
      position_ += step;
      n -= step;
    }
    return true;
  }
  template <typename T>
  bool Read(T& value) {
    return Read(&value, sizeof value);
  }
  bool Skip(uint64_t n) {
    if (n > remaining()) return false;
    position_ += n;
    return true;
  }

 private:
  int fd_;
  uint64_t size_;
  uint64_t position_ = 0;
  std::vector<char> buffer_;
  uint64_t start_ = 0, filled_ = 0;
};

uint64_t ScalarBytes(int32_t type) {
  switch (type) {
    case GGUF_TYPE_UINT8:
    case GGUF_TYPE_INT8:
    case GGUF_TYPE_BOOL:
      return 1;
    case GGUF_TYPE_UINT16:
    case GGUF_TYPE_INT16:
      return 2;
    case GGUF_TYPE_UINT32:
    case GGUF_TYPE_INT32:
    case GGUF_TYPE_FLOAT32:
      return 4;
    case GGUF_TYPE_UINT64:
    case GGUF_TYPE_INT64:
    case GGUF_TYPE_FLOAT64:
      return 8;
    default:
      return 0;
  }
}

std::string Quoted(const std::string& name) { return "'" + EscapeForLog(name, 80) + "'"; }

class Precheck {
 public:
  Precheck(int fd, uint64_t size, GgufFacts* facts) : in_(fd, size), facts_(facts) {
    facts_->file_bytes = size;
  }

  absl::Status Run() {
    RUMBO_RETURN_IF_ERROR(Header());
    for (uint64_t i = 0; i < facts_->keys; ++i) RUMBO_RETURN_IF_ERROR(Key(i));
    for (uint64_t i = 0; i < facts_->tensors; ++i) RUMBO_RETURN_IF_ERROR(Tensor(i));
    if (facts_->tensors == 0) return absl::OkStatus();
    const uint64_t data = RoundUp(in_.position(), alignment_);
    facts_->header_bytes = data;
    const auto end = CheckedAdd(data, data_end_);
    if (!end || *end > facts_->file_bytes) {
      return ModelInvalid("the tensors end at byte " +
                              (end ? std::to_string(*end) : std::string("beyond 2^64")) + ", the file has " +
                              std::to_string(facts_->file_bytes) + ": it is truncated",
                          "Download or copy the file again.");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Header() {
    char magic[4] = {};
    if (in_.remaining() == 0) return ModelInvalid("the file is empty", "Download or copy the file again.");
    if (!in_.Read(magic, 4) || std::memcmp(magic, "GGUF", 4) != 0) {
      if (std::memcmp(magic, "vers", 4) == 0) {
        return ModelInvalid("the file is a Git LFS pointer, not the model",
                            "Run `git lfs pull`, or download the file.");
      }
      return ModelInvalid("the file does not start with the GGUF magic", "Give a .gguf file.");
    }
    uint32_t version = 0;
    if (!in_.Read(version)) return Cut("its version");
    if ((version & 0xffff) == 0) {
      return ModelInvalid("GGUF version " + std::to_string(version) + " is no version of this byte order",
                          "Give a little-endian GGUF file.");
    }
    if (version < 2 || version > GGUF_VERSION) {
      return ModelInvalid("GGUF version " + std::to_string(version) + " cannot be read, only 2 and " +
                              std::to_string(GGUF_VERSION),
                          "Convert the model with a current llama.cpp.");
    }
    if (!in_.Read(facts_->tensors) || !in_.Read(facts_->keys)) return Cut("its counts");
    const auto need = CheckedMul(facts_->tensors, kMinTensorBytes);
    const auto need_keys = CheckedMul(facts_->keys, kMinKeyBytes);
    if (!need || !need_keys || *need > in_.remaining() || *need_keys > in_.remaining() - *need ||
        facts_->tensors > kMaxTensors || facts_->keys > kMaxKeys) {
      return ModelInvalid("the header claims " + std::to_string(facts_->tensors) + " tensors and " +
                          std::to_string(facts_->keys) + " keys, more than the file can hold");
    }
    return absl::OkStatus();
  }

  absl::Status Cut(const std::string& where) {
    return ModelInvalid("the file ends inside " + where, "Download or copy the file again.");
  }

  absl::Status HeaderRoom() {
    if (in_.position() <= kMaxHeaderBytes) return absl::OkStatus();
    return ModelInvalid("the header is longer than " + FormatBytes(kMaxHeaderBytes));
  }

  // Reads a string of at most `max` bytes; false where it does not fit into what is left.
  bool String(std::string& out, uint64_t max) {
    uint64_t length = 0;
    if (!in_.Read(length) || length > in_.remaining() || length > max) return false;
    out.resize(length);
    return in_.Read(out.data(), length);
  }

  absl::Status Key(uint64_t index) {
    std::string key;
    if (!String(key, kMaxKeyLength))
      return ModelInvalid("key " + std::to_string(index) + " is longer than the file");
    if (key.empty()) return ModelInvalid("key " + std::to_string(index) + " has no name");
    if (!keys_.insert(key).second) return ModelInvalid("key " + Quoted(key) + " is there twice");
    int32_t type = -1;
    if (!in_.Read(type)) return Cut("key " + Quoted(key));
    uint64_t count = 1;
    const bool array = type == GGUF_TYPE_ARRAY;
    if (array) {
      if (!in_.Read(type) || !in_.Read(count)) return Cut("key " + Quoted(key));
      if (type == GGUF_TYPE_ARRAY) return ModelInvalid("key " + Quoted(key) + " is an array of arrays");
    }
    if (key == GGUF_KEY_GENERAL_ALIGNMENT) return Alignment(array, type);
    if (type == GGUF_TYPE_STRING) {
      RUMBO_RETURN_IF_ERROR(Strings(key, count));
    } else {
      const uint64_t size = ScalarBytes(type);
      if (size == 0)
        return ModelInvalid("key " + Quoted(key) + " has the unknown type " + std::to_string(type));
      const auto bytes = CheckedMul(size, count);
      if (!bytes || !in_.Skip(*bytes))
        return ModelInvalid("the value of " + Quoted(key) + " is longer than the file");
    }
    return HeaderRoom();
  }

  absl::Status Strings(const std::string& key, uint64_t count) {
    if (count > in_.remaining() / 8)
      return ModelInvalid("the value of " + Quoted(key) + " is longer than the file");
    const bool tokens = key == "tokenizer.ggml.tokens";
    std::string token;
    for (uint64_t i = 0; i < count; ++i) {
      uint64_t length = 0;
      if (!in_.Read(length) || length > in_.remaining() || length > kMaxStringBytes) {
        return ModelInvalid("the value of " + Quoted(key) + " is longer than the file");
      }
      if (!tokens || length != 6) {
        in_.Skip(length);
      } else {
        token.resize(length);
        if (!in_.Read(token.data(), length)) return Cut("key " + Quoted(key));
        if (BadByteToken(token)) {
          return ModelInvalid("token " + std::to_string(i) + " " + Quoted(token) +
                              " is no byte in hexadecimal");
        }
      }
      RUMBO_RETURN_IF_ERROR(HeaderRoom());
    }
    return absl::OkStatus();
  }

  // "<0x..>" tokens are read as numbers by the tokenizer, which throws on others.
  static bool BadByteToken(const std::string& token) {
    if (token.compare(0, 3, "<0x") != 0 || token.back() != '>') return false;
    return !std::isxdigit(static_cast<unsigned char>(token[3])) ||
           !std::isxdigit(static_cast<unsigned char>(token[4]));
  }

  absl::Status Alignment(bool array, int32_t type) {
    uint32_t value = 0;
    if (array || type != GGUF_TYPE_UINT32) return ModelInvalid("general.alignment is not a 32-bit number");
    if (!in_.Read(value)) return Cut("general.alignment");
    if (value == 0 || (value & (value - 1)) != 0 || value > kMaxAlignment) {
      return ModelInvalid("general.alignment " + std::to_string(value) + " is no power of two up to " +
                          std::to_string(kMaxAlignment));
    }
    alignment_ = value;
    return absl::OkStatus();
  }

  absl::Status Tensor(uint64_t index) {
    std::string name;
    if (!String(name, GGML_MAX_NAME - 1)) {
      return ModelInvalid("the name of tensor " + std::to_string(index) + " is longer than " +
                          std::to_string(GGML_MAX_NAME - 1) + " bytes or than the file");
    }
    if (name.empty()) return ModelInvalid("tensor " + std::to_string(index) + " has no name");
    if (!names_.insert(name).second) return ModelInvalid("tensor " + Quoted(name) + " is there twice");
    uint32_t dims = 0;
    if (!in_.Read(dims)) return Cut("tensor " + Quoted(name));
    if (dims == 0 || dims > GGML_MAX_DIMS) {
      return ModelInvalid("tensor " + Quoted(name) + " has " + std::to_string(dims) + " dimensions");
    }
    uint64_t row = 1, elements = 1;
    for (uint32_t d = 0; d < dims; ++d) {
      int64_t ne = 0;
      if (!in_.Read(ne)) return Cut("tensor " + Quoted(name));
      const auto product = ne > 0 ? CheckedMul(elements, static_cast<uint64_t>(ne)) : std::nullopt;
      if (!product || *product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        return ModelInvalid("tensor " + Quoted(name) + " has the dimension " + std::to_string(ne) +
                            ", which is not positive or overflows its size");
      }
      if (d == 0) row = static_cast<uint64_t>(ne);
      elements = *product;
    }
    return TensorData(name, row, elements);
  }

  absl::Status TensorData(const std::string& name, uint64_t row, uint64_t elements) {
    int32_t type = -1;
    uint64_t offset = 0;
    if (!in_.Read(type) || !in_.Read(offset)) return Cut("tensor " + Quoted(name));
    const bool known = type >= 0 && type < GGML_TYPE_COUNT;
    const int64_t block = known ? ggml_blck_size(static_cast<ggml_type>(type)) : 0;
    if (block <= 0) {
      return ModelInvalid(
          "tensor " + Quoted(name) + " has the type " + std::to_string(type) + ", unknown or retired",
          "Convert the model again, or update llama.cpp.");
    }
    if (row % static_cast<uint64_t>(block) != 0) {
      return ModelInvalid("a row of tensor " + Quoted(name) + " is no multiple of its block size");
    }
    const auto bytes =
        CheckedMul(elements / static_cast<uint64_t>(block), ggml_type_size(static_cast<ggml_type>(type)));
    const auto end = bytes ? CheckedAdd(offset, *bytes) : std::nullopt;
    if (!end || *end > facts_->file_bytes) {
      return ModelInvalid("tensor " + Quoted(name) + " ends beyond the file: it is truncated or damaged",
                          "Download or copy the file again.");
    }
    if (offset % alignment_ != 0) return ModelInvalid("tensor " + Quoted(name) + " is not aligned");
    data_end_ = std::max(data_end_, *end);
    return HeaderRoom();
  }

  Cursor in_;
  GgufFacts* facts_;
  uint64_t alignment_ = GGUF_DEFAULT_ALIGNMENT;
  uint64_t data_end_ = 0;
  std::unordered_set<std::string> keys_, names_;
};

}  // namespace

absl::Status PrecheckGguf(int fd, GgufFacts* facts) {
  struct stat info;
  if (::fstat(fd, &info) != 0)
    return ModelInvalid(std::string("the file cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return NotAModelFile();
  return Precheck(fd, static_cast<uint64_t>(info.st_size), facts).Run();
}

}  // namespace rumbo
