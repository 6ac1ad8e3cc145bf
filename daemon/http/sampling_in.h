#pragma once

#include "daemon/http/json_in.h"
#include "engines/api/request.h"

// Sampling fields that more than one dialect has, each checked against its range
// (proto/rumbo/v1/inference.proto).
namespace rumbo {

// temperature, top_p, top_k, min_p, typical_p, penalties, DRY, XTC, mirostat, min_tokens, ignore_eos, under
// the names that llama.cpp, vLLM and OpenAI use.
void ReadCommonSampling(Fields& fields, SamplingParams& out);

// "stop": a string or up to 64 of them, 1 to 1,024 bytes each.
void ReadStop(Fields& fields, std::string_view key, SamplingParams& out);

// {"token id": bias}; -100 to 100.
void ReadLogitBias(Fields& fields, SamplingParams& out);

// response_format, json_schema, grammar, guided_json ...: at most one constraint. `raw` is the same object's
// text: schemas go on byte for byte.
void ReadConstraints(Fields& fields, const RawJson& raw, SamplingParams& out);

}  // namespace rumbo
