#include "child.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>

namespace tables {

Child::Child(char *const *command) {
  signal(SIGPIPE, SIG_IGN);  // a child that ended is an answer that does not come
  int down[2], up[2];
  if (pipe(down) != 0 || pipe(up) != 0) std::exit(1);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(down[0], 0);
    dup2(up[1], 1);
    for (const int end : {down[0], down[1], up[0], up[1]}) close(end);
    execvp(command[0], command);
    _exit(127);
  }
  close(down[0]);
  close(up[1]);
  orders_ = fdopen(down[1], "w");
  answers_ = fdopen(up[0], "r");
}

bool Child::greet(unsigned *pid, std::string *region) {
  std::string line;
  if (!answer(&line)) return false;
  std::istringstream words(line);
  return static_cast<bool>(words >> *pid >> *region);
}

bool Child::send(const char *order) { return std::fprintf(orders_, "%s\n", order) > 0 && std::fflush(orders_) == 0; }

bool Child::answer(std::string *line) {
  char text[4096];
  if (std::fgets(text, sizeof text, answers_) == nullptr) return false;
  *line = text;
  return true;
}

void Child::end() {
  std::fclose(orders_);
  std::fclose(answers_);
  waitpid(pid_, nullptr, 0);
}

}  // namespace tables
