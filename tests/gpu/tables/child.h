// A program that answers every line with a line, such as `gpu_tables steps`, bare or in a job.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <string>

namespace tables {

class Child {
 public:
  explicit Child(char *const *command);
  // Reads who it is: its PID, and where its job keeps its books ("-" if nowhere).
  bool greet(unsigned *pid, std::string *region);
  bool send(const char *order);
  bool answer(std::string *line);
  bool ask(const char *order, std::string *line) { return send(order) && answer(line); }
  void end();  // waits for it

 private:
  pid_t pid_;
  FILE *orders_, *answers_;
};

}  // namespace tables
