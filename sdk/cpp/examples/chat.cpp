// Streams one answer: chat MODEL PROMPT
#include <iostream>

#include "rumbo/client.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  auto client = rumbo::Client::Connect({.start_daemon = true}).value();
  auto stream = client.Chat({.model = argv[1], .messages = {rumbo::User(argv[2])}});
  for (const auto& chunk : stream) std::cout << chunk.text << std::flush;
  std::cout << "\n" << stream.Finish().value().timings.decode_tok_s << " tokens/s\n";
}
