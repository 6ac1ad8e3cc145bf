#pragma once

#include <string>
#include <vector>

namespace rumbo::bench {

// Runs a program to its end with `input` on its standard input; its standard output. Throws where it cannot
// run.
std::string RunProgram(const std::vector<std::string>& argv, const std::string& input);

}  // namespace rumbo::bench
