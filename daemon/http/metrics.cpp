#include "daemon/http/metrics.h"

#include "daemon/http/json_out.h"

namespace rumbo {
namespace {

using Labels = std::vector<std::pair<const char*, std::string>>;

void AppendSample(std::string& out, std::string_view name, const Labels& labels, double value) {
  out += name;
  const char* separator = "{";
  for (const auto& [key, text] : labels) {
    out += separator;
    out += key;
    out += '=';
    json_out::AppendString(out, text);  // the escapes of JSON are those of Prometheus for what names may hold
    separator = ",";
  }
  if (!labels.empty()) out += '}';
  out += ' ';
  json_out::AppendDouble(out, value);
  out += '\n';
}

void AppendHead(std::string& out, std::string_view name, const char* type, const char* help) {
  out += "# HELP ";
  out += name;
  out += ' ';
  out += help;
  out += "\n# TYPE ";
  out += name;
  out += ' ';
  out += type;
  out += '\n';
}

void AppendOne(std::string& out, std::string_view name, const char* type, const char* help, double value) {
  AppendHead(out, name, type, help);
  AppendSample(out, name, {}, value);
}

void AppendHistogram(std::string& out, std::string_view name, const char* help, const Histogram& histogram) {
  AppendHead(out, name, "histogram", help);
  histogram.Append(out, name);
}

void AppendInstances(std::string& out, const std::vector<InstanceInfo>& instances) {
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    AppendHead(out, name, type, help);
    for (const auto& i : instances) {
      AppendSample(out, name,
                   {{"instance", i.id}, {"model", i.model}, {"engine", i.engine}, {"backend", i.backend}},
                   static_cast<double>(value(i)));
    }
  };
  each("rumbo_instance_ready", "gauge", "1 where the instance takes requests.",
       [](const InstanceInfo& i) { return i.state == InstanceState::kReady; });
  each("rumbo_instance_running", "gauge", "Requests being answered.",
       [](const InstanceInfo& i) { return i.running; });
  each("rumbo_instance_queued", "gauge", "Requests waiting for a slot.",
       [](const InstanceInfo& i) { return i.queue; });
  each("rumbo_instance_slots", "gauge", "Sessions the instance was planned for.",
       [](const InstanceInfo& i) { return i.sessions; });
  each("rumbo_instance_restarts_total", "counter", "Restarts after crashes.",
       [](const InstanceInfo& i) { return i.restarts; });
  each("rumbo_instance_generated_tokens_total", "counter", "Tokens generated.",
       [](const InstanceInfo& i) { return i.generated_tokens; });
  AppendHead(out, "rumbo_instance_memory_bytes", "gauge", "Memory reserved, by pool and purpose.");
  for (const auto& i : instances) {
    for (const auto& item : i.memory) {
      AppendSample(out, "rumbo_instance_memory_bytes",
                   {{"instance", i.id}, {"pool", item.pool}, {"what", item.what}},
                   static_cast<double>(item.bytes));
    }
  }
}

// What the engines themselves count; those that did not answer have no sample.
void AppendEngines(std::string& out, const std::vector<InstanceInfo>& instances,
                   const std::map<std::string, EngineStats>& engines) {
  const auto each = [&](const char* name, const char* type, const char* help, auto value) {
    AppendHead(out, name, type, help);
    for (const auto& i : instances) {
      const auto stats = engines.find(i.id);
      if (stats == engines.end()) continue;
      AppendSample(out, name, {{"instance", i.id}, {"model", i.model}},
                   static_cast<double>(value(stats->second)));
    }
  };
  each("rumbo_instance_kv_used_tokens", "gauge", "Cells of the KV cache in use.",
       [](const EngineStats& s) { return s.kv_used; });
  each("rumbo_instance_kv_tokens", "gauge", "Cells of the KV cache.",
       [](const EngineStats& s) { return s.kv_total; });
  each("rumbo_instance_prompt_tokens_total", "counter", "Tokens of prompts.",
       [](const EngineStats& s) { return s.prompt_tokens; });
  each("rumbo_instance_cached_tokens_total", "counter", "Of these, tokens not computed again.",
       [](const EngineStats& s) { return s.cached_tokens; });
}

// The names that the Gateway API's inference extension reads from model servers.
void AppendGateway(std::string& out, const std::vector<InstanceInfo>& instances,
                   const std::map<std::string, EngineStats>& engines) {
  std::map<std::string, std::pair<double, double>> by_model;
  std::map<std::string, std::pair<double, double>> kv;
  for (const auto& i : instances) {
    by_model[i.model].first += i.queue;
    by_model[i.model].second += i.running;
    const auto stats = engines.find(i.id);
    if (stats == engines.end() || stats->second.kv_total == 0) continue;
    kv[i.model].first += static_cast<double>(stats->second.kv_used);
    kv[i.model].second += static_cast<double>(stats->second.kv_total);
  }
  AppendHead(out, "vllm:kv_cache_usage_perc", "gauge", "Share of the KV cache in use, 0 to 1, by model.");
  for (const auto& [model, cells] : kv) {
    AppendSample(out, "vllm:kv_cache_usage_perc", {{"model_name", model}}, cells.first / cells.second);
  }
  AppendHead(out, "vllm:num_requests_waiting", "gauge", "Requests waiting, by model.");
  for (const auto& [model, counts] : by_model) {
    AppendSample(out, "vllm:num_requests_waiting", {{"model_name", model}}, counts.first);
  }
  AppendHead(out, "vllm:num_requests_running", "gauge", "Requests running, by model.");
  for (const auto& [model, counts] : by_model) {
    AppendSample(out, "vllm:num_requests_running", {{"model_name", model}}, counts.second);
  }
}

}  // namespace

void Histogram::Add(double seconds) {
  if (!(seconds >= 0)) return;
  ++total_;
  sum_ += seconds;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    if (seconds <= kBounds[i]) {
      ++counts_[i];
      return;
    }
  }
}

void Histogram::Append(std::string& out, std::string_view name) const {
  const std::string bucket = std::string(name) + "_bucket";
  uint64_t below = 0;
  for (size_t i = 0; i < kBounds.size(); ++i) {
    below += counts_[i];
    std::string bound;
    json_out::AppendDouble(bound, kBounds[i]);
    AppendSample(out, bucket, {{"le", bound}}, static_cast<double>(below));
  }
  AppendSample(out, bucket, {{"le", "+Inf"}}, static_cast<double>(total_));
  AppendSample(out, std::string(name) + "_sum", {}, sum_);
  AppendSample(out, std::string(name) + "_count", {}, static_cast<double>(total_));
}

void HttpMetrics::AddAnswer(std::string_view route, int status, double seconds) {
  ++answers[{std::string(route), status}];
  request_seconds.Add(seconds);
}

void HttpMetrics::AddInference(const FinishedEvent& f) {
  prompt_tokens += f.prompt_tokens;
  cached_tokens += f.cached_tokens;
  generated_tokens += f.completion_tokens;
  queue_seconds.Add(f.queue_ms / 1e3);
  ttft_seconds.Add(f.ttft_ms / 1e3);
  if (f.completion_tokens > 1) token_seconds.Add(f.decode_ms / 1e3 / (f.completion_tokens - 1));
}

std::string MetricsPage(const HttpMetrics& http, const CoreStatus& core,
                        const std::vector<InstanceInfo>& instances,
                        const std::map<std::string, EngineStats>& engines, std::string_view version) {
  std::string out;
  AppendHead(out, "rumbo_build_info", "gauge", "1, with the version.");
  AppendSample(out, "rumbo_build_info", {{"version", std::string(version)}}, 1);
  AppendOne(out, "rumbo_draining", "gauge", "1 while the daemon is shutting down.", core.draining);
  AppendOne(out, "rumbo_instances", "gauge", "Instances, in whatever state.", core.instances);
  AppendOne(out, "rumbo_requests_running", "gauge", "Inference requests being answered, over all doors.",
            core.running_requests);
  AppendOne(out, "rumbo_requests_queued", "gauge", "Inference requests waiting, over all doors.",
            core.queued_requests);
  AppendOne(out, "rumbo_requests_finished_total", "counter", "Inference requests ended, over all doors.",
            static_cast<double>(core.finished_requests));
  AppendOne(out, "rumbo_generated_tokens_total", "counter", "Tokens generated, over all doors.",
            static_cast<double>(core.generated_tokens));
  AppendOne(out, "rumbo_prompt_tokens_total", "counter", "Tokens of prompts, over all doors.",
            static_cast<double>(core.prompt_tokens));
  AppendInstances(out, instances);
  AppendEngines(out, instances, engines);
  AppendOne(out, "rumbo_http_connections", "gauge", "Open connections.",
            static_cast<double>(http.connections));
  AppendOne(out, "rumbo_http_accepted_total", "counter", "Connections accepted.",
            static_cast<double>(http.accepted));
  AppendOne(out, "rumbo_http_shed_total", "counter", "Connections closed for want of room.",
            static_cast<double>(http.shed));
  AppendOne(out, "rumbo_http_disconnects_total", "counter", "Clients that left before their answer ended.",
            static_cast<double>(http.disconnects));
  AppendHead(out, "rumbo_http_answers_total", "counter", "Answers by route and status.");
  for (const auto& [key, count] : http.answers) {
    AppendSample(out, "rumbo_http_answers_total",
                 {{"route", key.first}, {"status", std::to_string(key.second)}}, static_cast<double>(count));
  }
  AppendOne(out, "rumbo_http_prompt_tokens_total", "counter", "Tokens of prompts over HTTP.",
            static_cast<double>(http.prompt_tokens));
  AppendOne(out, "rumbo_http_cached_tokens_total", "counter", "Of these, tokens not computed again.",
            static_cast<double>(http.cached_tokens));
  AppendOne(out, "rumbo_http_generated_tokens_total", "counter", "Tokens generated over HTTP.",
            static_cast<double>(http.generated_tokens));
  AppendHistogram(out, "rumbo_http_request_seconds",
                  "From the end of a request's head to the end of its answer.", http.request_seconds);
  AppendHistogram(out, "rumbo_http_queue_seconds", "Waiting for a model and a slot.", http.queue_seconds);
  AppendHistogram(out, "rumbo_http_ttft_seconds", "From dispatch to the first token.", http.ttft_seconds);
  AppendHistogram(out, "rumbo_http_token_seconds", "Mean time between the tokens of an answer.",
                  http.token_seconds);
  if (http.tracing) {
    AppendOne(out, "rumbo_trace_spans_sent_total", "counter", "Spans the collector took.",
              static_cast<double>(http.spans_sent));
    AppendOne(out, "rumbo_trace_spans_dropped_total", "counter",
              "Spans it did not take, or that came too fast.", static_cast<double>(http.spans_dropped));
  }
  AppendGateway(out, instances, engines);
  return out;
}

}  // namespace rumbo
