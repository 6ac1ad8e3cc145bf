#pragma once

#include <string_view>

#include "daemon/http/exchange.h"

namespace rumbo {

// rumbo.v1 over HTTP: messages in protobuf's JSON mapping with the field names of the .proto files, one JSON
// document for a unary call, server-sent events for a server stream. Implemented by daemon/http/api.
// Threading: Call on the io thread; answers from any.
class JsonApi {
 public:
  virtual ~JsonApi() = default;
  // Calls `method` ("DeviceService/ListDevices") with the body of the exchange's request and answers it. The
  // caller's scope was checked.
  virtual void Call(std::string_view method, ExchangePtr exchange) = 0;
};

}  // namespace rumbo
