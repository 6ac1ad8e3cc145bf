#include "sdk/cli/shell_help.h"

namespace rumbo::cli {
namespace {

// Inside single quotes of sh, zsh and fish.
std::string Quoted(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'')
      out += "'\\''";
    else
      out += c;
  }
  return "'" + out + "'";
}

std::string FlagsOf(const CommandDescription& command) {
  std::string out = "--help";
  for (const OptionDescription& option : command.options) {
    if (!option.positional) out += " " + option.name;
  }
  return out;
}

std::string Bash(const std::vector<CommandDescription>& commands) {
  std::string names, cases;
  for (const CommandDescription& command : commands) {
    names += (names.empty() ? "" : " ") + command.name;
    cases += "    " + command.name + ") words=\"" + FlagsOf(command) + "\" ;;\n";
  }
  return "# bash completion for rumbo; `rumbo completions bash` prints it.\n"
         "_rumbo() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} words=\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W \"" +
         names +
         " --help --version\" -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case ${COMP_WORDS[1]} in\n" +
         cases +
         "  esac\n"
         "  case $current in\n"
         "    -*) COMPREPLY=($(compgen -W \"$words\" -- \"$current\")) ;;\n"
         "    *) compopt -o default; COMPREPLY=() ;;\n"
         "  esac\n"
         "}\n"
         "complete -F _rumbo rumbo\n";
}

std::string Zsh(const std::vector<CommandDescription>& commands) {
  // In the descriptions of _describe and _arguments a colon or bracket has a meaning of its own.
  const auto plain = [](std::string text) {
    for (char& c : text) {
      if (c == ':' || c == '[' || c == ']') c = ' ';
    }
    return text;
  };
  std::string list, cases;
  for (const CommandDescription& command : commands) {
    list += "    " + Quoted(command.name + ":" + plain(command.text)) + "\n";
    cases += "    " + command.name + ") _arguments";
    for (const OptionDescription& option : command.options) {
      if (option.positional) continue;
      cases +=
          " " + Quoted(option.name + "[" + plain(option.text) + "]" + (option.takes_value ? ":value:" : ""));
    }
    cases += " '*:file:_files' ;;\n";
  }
  return "#compdef rumbo\n# zsh completion for rumbo; `rumbo completions zsh` prints it.\n"
         "_rumbo() {\n"
         "  local -a commands=(\n" +
         list +
         "  )\n"
         "  if (( CURRENT == 2 )); then\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  local command=$words[2]\n"
         "  shift words; (( CURRENT-- ))\n"
         "  case $command in\n" +
         cases +
         "  esac\n"
         "}\n"
         "_rumbo \"$@\"\n";
}

std::string Fish(const std::vector<CommandDescription>& commands) {
  std::string out = "# fish completion for rumbo; `rumbo completions fish` prints it.\n";
  for (const CommandDescription& command : commands) {
    out += "complete -c rumbo -n __fish_use_subcommand -f -a " + command.name + " -d " +
           Quoted(command.text) + "\n";
    for (const OptionDescription& option : command.options) {
      if (option.positional) continue;
      out += "complete -c rumbo -n '__fish_seen_subcommand_from " + command.name + "' -l " +
             option.name.substr(2) + (option.takes_value ? " -r" : "") + " -d " + Quoted(option.text) + "\n";
    }
  }
  return out;
}

// roff takes a dash for a hyphen, a backslash and a dot at the start of a line for requests.
std::string Roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '-')
      out += "\\-";
    else if (c == '\\')
      out += "\\e";
    else
      out += c;
  }
  return !out.empty() && (out[0] == '.' || out[0] == '\'') ? "\\&" + out : out;
}

}  // namespace

std::optional<std::string> CompletionScript(std::string_view shell) {
  const auto commands = DescribeCommands();
  if (shell == "bash") return Bash(commands);
  if (shell == "zsh") return Zsh(commands);
  if (shell == "fish") return Fish(commands);
  return std::nullopt;
}

std::string ManualPage(std::string_view version) {
  std::string out =
      ".TH RUMBO 1 \"\" \"rumbo " + std::string(version) +
      "\" \"User Commands\"\n"
      ".SH NAME\nrumbo \\- runs language models on this machine and says why where\n"
      ".SH SYNOPSIS\n.B rumbo\n.I COMMAND\n[\\fIOPTIONS\\fR]\n"
      ".SH DESCRIPTION\nThe command line of the daemon\n.BR rumbod (8).\n"
      "Every command takes\n.B \\-\\-json\nand then prints one JSON document; errors go to standard "
      "error, with a next step.\n.SH COMMANDS\n";
  for (const CommandDescription& command : DescribeCommands()) {
    out += ".SS \"" + Roff(command.name);
    for (const OptionDescription& option : command.options) {
      if (option.positional) out += " " + Roff(option.name);
    }
    out += "\"\n" + Roff(command.text) + ".\n";
    for (const OptionDescription& option : command.options) {
      if (option.name == "--json") continue;
      out += ".TP\n" + std::string(option.positional ? ".I " : ".B ") + Roff(option.name) +
             (option.takes_value && !option.positional ? " VALUE" : "") + "\n" + Roff(option.text) + "\n";
    }
  }
  out +=
      ".SH EXIT STATUS\n0: done. 1: failed. 2: wrong usage. 3: not found. 4: refused by plan or policy. 5: "
      "the daemon "
      "cannot be reached.\n.SH ENVIRONMENT\n.TP\n.B RUMBO_SOCKET\nThe daemon's socket, instead of the "
      "usual place.\n.SH SEE ALSO\n.BR rumbod (8)\n";
  return out;
}

}  // namespace rumbo::cli
