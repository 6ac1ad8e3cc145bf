#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

// What programs of others need to use this daemon instead of a service. Data: a new tool is a row.
namespace rumbo::cli {

// {url}: http://ADDR:PORT; {model}: the model; {key}: an API token, or a word where none is needed.
struct LaunchTool {
  const char* name;     // for the command line
  const char* program;  // looked up in PATH
  const char* title;
  bool needs_tools;  // useless with a model that cannot call tools
  bool verified;  // the program itself was run against this daemon; otherwise its documentation was followed
  std::vector<std::pair<const char*, const char*>> environment;
  std::vector<const char*> arguments;  // before the user's
};

std::span<const LaunchTool> LaunchTools();
const LaunchTool* FindLaunchTool(const std::string& name);

struct LaunchValues {
  std::string url;
  std::string model;
  std::string key;
};
std::string FillIn(std::string_view text, const LaunchValues& values);

}  // namespace rumbo::cli
