#pragma once

#include <string>

namespace google::protobuf {
class Descriptor;
}

namespace rumbo {

// The JSON Schema (draft 2020-12) of what ToJson prints of messages of `type`: every field is there, what may
// be unknown is the type or null. Pure; equal types, equal text.
std::string JsonSchemaOf(const google::protobuf::Descriptor& type, const std::string& title);

}  // namespace rumbo
