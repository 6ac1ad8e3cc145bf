#pragma once

#include <string>
#include <string_view>

namespace boost::json {
class value;
}
namespace google::protobuf {
class Message;
}

// Protobuf to JSON as every `--json` prints it. Keys are the proto's field names in the order of the file;
// every field is there: what is unset and optional, an absent message and an unset member of a oneof are
// null, empty lists are [], 64-bit integers are numbers, bytes are base64, enums are their names. NaN and
// infinities, which JSON lacks, are null. Pure; any thread.
namespace rumbo {

boost::json::value ToJsonValue(const google::protobuf::Message& message);

// `value` as text. Doubles are the shortest digits that read back equal, with ".0" never added. `indent`
// spaces per level on lines of their own; 0: one line.
std::string PrintJson(const boost::json::value& value, int indent);

std::string ToJson(const google::protobuf::Message& message, int indent = 2);

// `text` (UTF-8) as a JSON string with its quotes.
std::string QuoteJson(std::string_view text);

}  // namespace rumbo
