#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rumbo {

// Runs a program the way a shell would, for tests: its own session, chosen input, everything it wrote.
class Program {
 public:
  struct Spec {
    std::vector<std::string> argv;                         // argv[0] is a path
    std::vector<std::pair<std::string, std::string>> env;  // on top of PATH, HOME and TERM
    std::string input;        // what it reads, then the end; with `terminal` it is typed
    bool terminal = false;    // standard input and output are a terminal
    bool errors_too = false;  // with `terminal`: standard error is the same one; Outcome::err stays empty
  };
  struct Outcome {
    int exit_code = -1;  // -N for an end by signal N
    std::string out;
    std::string err;
  };

  explicit Program(Spec spec);
  ~Program();

  void Signal(int signal);
  // To its end; killed after a minute.
  Outcome Wait();

  static Outcome Run(Spec spec) { return Program(std::move(spec)).Wait(); }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string input_;
  bool terminal_;
};

}  // namespace rumbo
