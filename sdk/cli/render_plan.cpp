#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "sdk/cli/render.h"

namespace rumbo::cli {
namespace {

constexpr char kIndent[] = "            ";  // Below the values of labelled lines.

std::vector<std::string> SafeAll(const std::vector<std::string>& texts) {
  std::vector<std::string> out;
  for (const auto& text : texts) out.push_back(Safe(text));
  return out;
}

std::string Line(const Screen& screen, const std::string& label, const std::string& text) {
  std::string padded = label;
  padded.resize(10, ' ');
  return "  " + Paint(screen, Style::kBold, padded) + Wrap(text, screen.width - 12, kIndent) + "\n";
}

std::string SettingsText(const Settings& s) {
  std::vector<std::string> parts;
  const auto add = [&](const char* name, const auto& value) {
    if (value) parts.push_back(std::string(name) + " " + std::to_string(*value));
  };
  const auto add_switch = [&](const char* name, const std::optional<bool>& value) {
    if (value) parts.push_back(std::string(name) + (*value ? " on" : " off"));
  };
  add("context", s.context_total);
  if (s.context_per_session) parts.back() += " (" + std::to_string(*s.context_per_session) + " per session)";
  add("sessions", s.sessions);
  add("threads", s.threads);
  add("batch threads", s.threads_batch);
  add("batch", s.batch);
  add("ubatch", s.ubatch);
  add("GPU layers", s.gpu_layers);
  if (!s.kv_type_k.empty()) parts.push_back("KV " + Safe(s.kv_type_k) + "/" + Safe(s.kv_type_v));
  if (!s.flash_attention.empty()) parts.push_back("flash attention " + Safe(s.flash_attention));
  add_switch("mmap", s.mmap);
  add_switch("unified KV", s.kv_unified);
  add_switch("full window cache", s.swa_full);
  if (s.draft_tokens && *s.draft_tokens > 0) add("draft tokens", s.draft_tokens);
  if (s.host_cache_bytes) parts.push_back("host cache " + FormatBytes(*s.host_cache_bytes));
  add("poll", s.poll);
  for (const auto& [name, value] : s.extra) parts.push_back(Safe(name) + " " + Safe(value));
  return Join(parts, ", ");
}

std::string MemoryLines(const Screen& screen, const std::vector<MemoryItem>& items) {
  std::map<std::string, std::vector<const MemoryItem*>> pools;
  for (const auto& item : items) pools[item.pool].push_back(&item);
  std::string out;
  for (const auto& [pool, parts] : pools) {
    uint64_t sum = 0;
    std::vector<std::string> texts;
    for (const MemoryItem* item : parts) {
      sum = SaturatingAdd(sum, item->bytes);
      texts.push_back(Safe(item->what) + " " + FormatBytes(item->bytes) +
                      (item->source.empty() ? "" : " (" + Safe(item->source) + ")"));
    }
    out += Line(screen, out.empty() ? "memory" : "",
                Safe(pool) + " " + FormatBytes(sum) + ": " + Join(texts, ", "));
  }
  return out;
}

std::string PredictedText(const Predicted& p) {
  std::vector<std::string> parts;
  if (p.ttft_ms) parts.push_back("first token after " + Short(*p.ttft_ms) + " ms");
  if (p.decode_tok_s) parts.push_back(Short(*p.decode_tok_s) + " tokens/s per session");
  if (p.aggregate_tok_s) parts.push_back(Short(*p.aggregate_tok_s) + " tokens/s in all");
  if (p.load_s) parts.push_back("loads in " + Short(*p.load_s) + " s");
  if (p.energy_j_per_tok) parts.push_back(Short(*p.energy_j_per_tok) + " J per token");
  if (parts.empty()) return "unknown";
  std::string text = Join(parts, ", ");
  if (p.uncertainty) text += ", +-" + Short(*p.uncertainty * 100) + " %";
  if (!p.source.empty()) text += " (" + Safe(p.source) + ")";
  return text;
}

std::string ChosenText(const Candidate& chosen, const Screen& screen) {
  std::string out;
  const std::string engine =
      chosen.engine + (chosen.engine_version.empty() ? "" : " " + chosen.engine_version);
  std::string head = Placement(engine, chosen.engine_build, chosen.backend, chosen.devices);
  if (!chosen.variant.empty()) head += ", variant " + Safe(chosen.variant);
  if (!chosen.maturity.empty()) head += ", " + Safe(chosen.maturity);
  out += Line(screen, "runs on", head);
  out += Line(screen, "settings", SettingsText(chosen.settings));
  out += MemoryLines(screen, chosen.memory);
  out += Line(screen, "expected", PredictedText(chosen.predicted));
  for (size_t i = 0; i < chosen.reasons.size(); ++i)
    out += Line(screen, i == 0 ? "because" : "", Safe(chosen.reasons[i]));
  return out;
}

std::string RefusalText(const Refusal& refusal, const Screen& screen) {
  std::string out = Line(screen, "refused", Safe(refusal.reason) + " (" + Safe(refusal.reason_code) + ")");
  if (refusal.missing_bytes) {
    out += Line(screen, "missing", FormatBytes(*refusal.missing_bytes) + " in " + Safe(refusal.pool));
  }
  if (refusal.nearest) {
    std::vector<std::string> parts;
    if (refusal.nearest->sessions)
      parts.push_back("--sessions " + std::to_string(*refusal.nearest->sessions));
    if (refusal.nearest->context) parts.push_back("--context " + std::to_string(*refusal.nearest->context));
    if (!parts.empty()) out += Line(screen, "would fit", Join(parts, " "));
  }
  if (!refusal.next_step.empty()) out += Line(screen, "next", Safe(refusal.next_step));
  return out;
}

// Of the engines that cannot run here at all one line, of the others one each; all of them with `all`.
std::string RejectedText(const Plan& plan, const Screen& screen, bool all) {
  constexpr size_t kShown = 8;  // One screen.
  std::vector<std::string> lines, missing;
  std::vector<Rejected> rejected;  // equal devices with the same fate are one line
  for (const Rejected& r : plan.rejected) {
    Rejected* same = rejected.empty() ? nullptr : &rejected.back();
    if (same != nullptr && same->variant == r.variant && same->engine == r.engine &&
        same->engine_build == r.engine_build && same->backend == r.backend && same->reason == r.reason &&
        same->reason_code == r.reason_code) {
      same->devices.insert(same->devices.end(), r.devices.begin(), r.devices.end());
    } else {
      rejected.push_back(r);
    }
  }
  for (const Rejected& r : rejected) {
    if (!all && (r.reason_code == "ENGINE_NOT_INSTALLED" || r.reason_code == "SYSTEM_UNSUPPORTED")) {
      missing.push_back(Safe(r.engine));
      continue;
    }
    std::string text = Placement(r.engine, r.engine_build, r.backend, r.devices) + ": " + Safe(r.reason) +
                       " (" + Safe(r.reason_code) + ")";
    if (!r.variant.empty() && r.variant != "default") text = Safe(r.variant) + ", " + text;
    lines.push_back(std::move(text));
  }
  const size_t shown = all ? lines.size() : std::min(kShown, lines.size());
  const size_t hidden = lines.size() - shown;
  lines.resize(shown);
  if (hidden > 0) lines.push_back(std::to_string(hidden) + " more with --all");
  if (!missing.empty()) {
    lines.push_back("not installed here, or not for this system: " + Join(missing, ", ") +
                    " (--all says more)");
  }
  std::string out;
  for (const std::string& line : lines) out += Line(screen, out.empty() ? "rejected" : "", line);
  return out;
}

}  // namespace

std::string Placement(const std::string& engine, const std::string& backend,
                      const std::vector<std::string>& devices) {
  std::string out = Safe(engine);
  if (!backend.empty()) out += " (" + Safe(backend) + ")";
  if (!devices.empty()) out += " on " + Join(SafeAll(devices), ", ");
  return out;
}

std::string Placement(const std::string& engine, const std::string& build, const std::string& backend,
                      const std::vector<std::string>& devices) {
  return Placement(build.empty() ? engine : engine + " " + build, backend, devices);
}

uint64_t SumOf(const std::vector<MemoryItem>& items) {
  uint64_t sum = 0;
  for (const auto& item : items) sum = SaturatingAdd(sum, item.bytes);
  return sum;
}

std::string RenderPlan(const Plan& plan, const Screen& screen, bool all) {
  const bool profile = plan.hardware.rfind("profile:", 0) == 0;
  std::string out = Paint(screen, Style::kBold, Safe(plan.model)) + " on " +
                    (profile ? Safe(plan.hardware.substr(8)) : "this machine") +
                    (plan.forced ? Paint(screen, Style::kWarn, "  forced, though it does not fit") : "") +
                    "\n";
  if (plan.chosen) out += ChosenText(*plan.chosen, screen);
  if (plan.refusal) out += RefusalText(*plan.refusal, screen);
  if (!plan.evictions.empty()) out += Line(screen, "evicts", Join(SafeAll(plan.evictions), ", "));
  return out + RejectedText(plan, screen, all);
}

std::string RenderExplanation(const Explanation& explanation, const Screen& screen) {
  std::string out;
  if (!explanation.instance_id.empty()) out += "instance " + Safe(explanation.instance_id) + "\n";
  out += RenderPlan(explanation.plan, screen);
  if (!explanation.measured) return out;
  const Measured& m = *explanation.measured;
  std::vector<std::string> parts;
  if (m.ttft_ms) parts.push_back("first token after " + Short(*m.ttft_ms) + " ms");
  if (m.decode_tok_s) parts.push_back(Short(*m.decode_tok_s) + " tokens/s per session");
  if (m.aggregate_tok_s) parts.push_back(Short(*m.aggregate_tok_s) + " tokens/s in all");
  if (m.load_s) parts.push_back("loaded in " + Short(*m.load_s) + " s");
  if (!m.memory.empty()) parts.push_back("took " + FormatBytes(SumOf(m.memory)));
  parts.push_back(std::to_string(m.requests) + " requests");
  return out + Line(screen, "measured", Join(parts, ", "));
}

}  // namespace rumbo::cli
