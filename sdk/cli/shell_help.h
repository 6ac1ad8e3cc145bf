#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What shells and manuals say about the command line, made from the table that parses it.
namespace rumbo::cli {

struct OptionDescription {
  std::string name;  // "--context", or the name of a positional
  bool positional = false;
  bool takes_value = false;
  std::string text;
};

struct CommandDescription {
  std::string name;
  std::string text;
  std::vector<OptionDescription> options;
};

// All commands in the order of `rumbo --help`. In options.cpp, beside the table.
std::vector<CommandDescription> DescribeCommands();

// A completion script for "bash", "zsh" or "fish"; nullopt for another shell.
std::optional<std::string> CompletionScript(std::string_view shell);

// rumbo(1) in roff.
std::string ManualPage(std::string_view version);

}  // namespace rumbo::cli
