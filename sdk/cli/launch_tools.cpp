#include "sdk/cli/launch_tools.h"

namespace rumbo::cli {

std::span<const LaunchTool> LaunchTools() {
  static const std::vector<LaunchTool> kTools = {
      {"claude",
       "claude",
       "Claude Code",
       true,
       false,
       {{"ANTHROPIC_BASE_URL", "{url}"},
        {"ANTHROPIC_AUTH_TOKEN", "{key}"},
        {"ANTHROPIC_MODEL", "{model}"},
        {"ANTHROPIC_DEFAULT_HAIKU_MODEL", "{model}"},
        {"ANTHROPIC_SMALL_FAST_MODEL", "{model}"},
        {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"}},
       {}},
      {"codex",
       "codex",
       "Codex CLI",
       true,
       false,
       {{"OPENAI_BASE_URL", "{url}/v1"}, {"OPENAI_API_KEY", "{key}"}},
       {"-c", "model_provider=\"rumbo\"", "-c",
        "model_providers.rumbo={name=\"Rumbo\",base_url=\"{url}/"
        "v1\",env_key=\"OPENAI_API_KEY\",wire_api=\"responses\"}",
        "-c", "model=\"{model}\""}},
      {"opencode",
       "opencode",
       "opencode",
       true,
       false,
       {{"OPENCODE_CONFIG_CONTENT",
         "{\"provider\":{\"rumbo\":{\"npm\":\"@ai-sdk/"
         "openai-compatible\",\"name\":\"Rumbo\",\"options\":{\"baseURL\":"
         "\"{url}/v1\",\"apiKey\":\"{key}\"},\"models\":{\"{model}\":{}}}},\"model\":\"rumbo/{model}\"}"}},
       {}},
      {"qwen",
       "qwen",
       "Qwen Code",
       true,
       false,
       {{"OPENAI_BASE_URL", "{url}/v1"}, {"OPENAI_API_KEY", "{key}"}, {"OPENAI_MODEL", "{model}"}},
       {}},
      {"goose",
       "goose",
       "goose",
       true,
       false,
       {{"GOOSE_PROVIDER", "openai"},
        {"GOOSE_MODEL", "{model}"},
        {"OPENAI_HOST", "{url}"},
        {"OPENAI_API_KEY", "{key}"}},
       {}},
      {"aider",
       "aider",
       "aider",
       false,
       false,
       {{"OPENAI_API_BASE", "{url}/v1"}, {"OPENAI_API_KEY", "{key}"}},
       {"--model", "openai/{model}"}},
      {"open-webui",
       "open-webui",
       "Open WebUI",
       false,
       false,
       {{"OPENAI_API_BASE_URL", "{url}/v1"},
        {"OPENAI_API_KEY", "{key}"},
        {"OLLAMA_BASE_URL", "{url}"},
        {"DEFAULT_MODELS", "{model}"}},
       {"serve"}},
      {"env",
       "",
       "any OpenAI, Anthropic or Ollama client",
       false,
       true,
       {{"OPENAI_BASE_URL", "{url}/v1"},
        {"OPENAI_API_KEY", "{key}"},
        {"ANTHROPIC_BASE_URL", "{url}"},
        {"ANTHROPIC_AUTH_TOKEN", "{key}"},
        {"ANTHROPIC_MODEL", "{model}"},
        {"OLLAMA_HOST", "{url}"}},
       {}},
  };
  return kTools;
}

const LaunchTool* FindLaunchTool(const std::string& name) {
  for (const LaunchTool& tool : LaunchTools()) {
    if (name == tool.name) return &tool;
  }
  return nullptr;
}

std::string FillIn(std::string_view text, const LaunchValues& values) {
  std::string out;
  while (!text.empty()) {
    const auto take = [&](std::string_view mark, const std::string& value) {
      if (text.substr(0, mark.size()) != mark) return false;
      out += value;
      text.remove_prefix(mark.size());
      return true;
    };
    if (take("{url}", values.url) || take("{model}", values.model) || take("{key}", values.key)) continue;
    out += text.front();
    text.remove_prefix(1);
  }
  return out;
}

}  // namespace rumbo::cli
