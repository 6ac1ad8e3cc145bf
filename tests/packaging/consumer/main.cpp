#include <rumbo/client.h>

#include <iostream>

int main() {
  auto client = rumbo::Client::Connect();
  if (!client) return std::cerr << client.error().message << "\n", 5;
  auto answer = client->Chat({.model = "hello", .messages = {rumbo::User("Hi")}});
  for (const auto& chunk : answer) std::cout << chunk.text << std::flush;
  std::cout << "\n";
  return answer.Finish() ? 0 : 1;
}
