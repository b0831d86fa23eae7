// simgpu-ctl: looks at a node from outside, as its operator would, and holds or breaks it for tests.
//   simgpu-ctl usage            device, host PID, bytes held, contexts, launches: one line per process and device
//   simgpu-ctl devices          device, UUID, PCI bus id, total and used bytes, state
//   simgpu-ctl blocks           device, use, bytes: what the memory is held for
//   simgpu-ctl break|repair N   takes device N from its clients, or gives it back
//   simgpu-ctl lose N           device N falls off the bus: whoever used it can never use it again, even once repaired
//   simgpu-ctl busy             device, host PID, nanoseconds that the process has had the device, and when
//   simgpu-ctl calls            host PID, calls entered and returned, of nodes that count them; one line per library
//   simgpu-ctl clock            the devices' time in nanoseconds
//   simgpu-ctl clock advance T  moves a virtual clock on, by 10ms, 2h and the like, or by nanoseconds
//   simgpu-ctl hold -- CMD...   keeps the node alive, started outside any namespace CMD may enter, while CMD runs
//   simgpu-ctl stop             the node ends as soon as its last client has gone
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "simgpu/node/config.h"
#include "simgpu/node/engine.h"
#include "simgpu/node/link.h"

using namespace simgpu;

namespace {

void print_usage(NodeLink &link) {
  for (LinkedDevice &device : link.devices())
    for (unsigned i = 0; i < kMaxProcesses; i++) {
      const DeviceSlot &books = device.state->slots[i];
      if (books.held_blocks.load() == 0 && books.contexts.load() == 0) continue;
      printf("%u\t%d\t%llu\t%u\t%llu\n", device.state->index, link.node()->slots[i].host_pid,
             static_cast<unsigned long long>(books.held_blocks.load() * kBlockBytes), books.contexts.load(),
             static_cast<unsigned long long>(books.launches.load()));
    }
}

const char *state_of(const DeviceState &device) {
  static const char *const names[] = {"ok", "broken", "lost"};
  return names[device.broken.load() % 3];
}

void print_devices(NodeLink &link) {
  for (LinkedDevice &device : link.devices()) {
    const DeviceFacts &facts = device.state->facts;
    uint64_t used = 0;
    for (uint32_t b = 0; b < device.state->block_count; b++)
      used += device.state->owners()[b].load() != 0 ? kBlockBytes : 0;
    printf("%u\t%s\t%04x:%02x:%02x.0\t%llu\t%llu\t%s\n", device.state->index, format_uuid(facts.uuid).c_str(),
           facts.pci_domain, facts.pci_bus, facts.pci_device,
           static_cast<unsigned long long>(device.state->block_count * kBlockBytes),
           static_cast<unsigned long long>(used), state_of(*device.state));
  }
}

void print_blocks(NodeLink &link) {
  static const char *const names[] = {"context", "module", "linear", "array",    "managed", "pool",
                                      "vmm",     "graph",  "heap",   "external", "code"};
  static_assert(sizeof names / sizeof names[0] == static_cast<size_t>(BlockUse::kCount));
  for (LinkedDevice &device : link.devices()) {
    uint64_t bytes[static_cast<size_t>(BlockUse::kCount)] = {};
    for (uint32_t b = 0; b < device.state->block_count; b++) {
      uint32_t word = device.state->owners()[b].load();
      if (word != 0 && owner_use(word) < BlockUse::kCount) bytes[static_cast<size_t>(owner_use(word))] += kBlockBytes;
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
      if (bytes[i] != 0)
        printf("%u\t%s\t%llu\n", device.state->index, names[i], static_cast<unsigned long long>(bytes[i]));
  }
}

void print_busy(NodeLink &link) {
  for (LinkedDevice &device : link.devices()) {
    Engine engine;
    engine.attach(device.state, link.slot(), link.clock());
    for (unsigned i = 0; i < kMaxProcesses; i++) {
      if (link.node()->slots[i].alive.load() == 0) continue;
      uint64_t at = 0;
      uint64_t busy = engine.busy_ns(i, &at);
      if (busy != 0)
        printf("%u\t%d\t%llu\t%llu\n", device.state->index, link.node()->slots[i].host_pid,
               static_cast<unsigned long long>(busy), static_cast<unsigned long long>(at));
    }
  }
}

void print_calls(NodeLink &link) {
  for (unsigned i = 1; i < link.node()->slot_high_water.load(); i++) {
    const ProcessSlot &process = link.node()->slots[i];
    if (process.alive.load() == 0 || process.calls.load() == 0) continue;
    const uint64_t returned = process.returned.load(std::memory_order_acquire);
    printf("%d\t%llu\t%llu\n", process.host_pid, static_cast<unsigned long long>(process.calls.load()),
           static_cast<unsigned long long>(returned));
  }
}

int advance_clock(NodeLink &link, const std::string &text) {
  uint64_t ns = 0;
  if (link.clock()->mode == ClockMode::kReal) {
    fprintf(stderr,
            "simgpu-ctl: the node's devices live in real time; say clock = manual or auto in its description\n");
    return 1;
  }
  if (!parse_duration(text, &ns) && !parse_duration(text + "ns", &ns)) {
    fprintf(stderr, "simgpu-ctl: %s: not a duration (like 10ms)\n", text.c_str());
    return 2;
  }
  advance_clock_to(link.clock(), link.clock()->now_ns() + ns);
  return 0;
}

int hold(char **command) {
  pid_t child = fork();
  if (child == 0) {
    execvp(command[0], command);
    perror(command[0]);
    _exit(127);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace

int main(int argc, char **argv) {
  std::string verb = argc > 1 ? argv[1] : "";
  NodeLink link;
  std::string error;
  if (verb.empty()) {
    fprintf(
        stderr,
        "usage: simgpu-ctl usage | devices | blocks | busy | calls | clock [advance T] | break N | repair N | lose N | "
        "hold -- CMD... | stop\n");
    return 2;
  }
  if (link.connect(false, &error) != 0) {
    fprintf(stderr, "simgpu-ctl: %s\n", error.c_str());
    return 1;
  }
  if (verb == "usage") {
    print_usage(link);
  } else if (verb == "devices") {
    print_devices(link);
  } else if (verb == "blocks") {
    print_blocks(link);
  } else if (verb == "busy") {
    print_busy(link);
  } else if (verb == "calls") {
    print_calls(link);
  } else if (verb == "clock" && argc == 2) {
    printf("%llu\n", static_cast<unsigned long long>(link.clock()->now_ns()));
  } else if (verb == "clock" && argc == 4 && strcmp(argv[2], "advance") == 0) {
    return advance_clock(link, argv[3]);
  } else if ((verb == "break" || verb == "repair" || verb == "lose") && argc == 3) {
    Message message{};
    message.op = Op::kBreak;
    message.device = static_cast<uint32_t>(atoi(argv[2]));
    message.argument = verb == "break" ? kDeviceBroken : verb == "lose" ? kDeviceLost : kDeviceOk;
    return link.call(&message) == 0 ? 0 : 1;
  } else if (verb == "hold" && argc > 3 && strcmp(argv[2], "--") == 0) {
    return hold(argv + 3);
  } else if (verb == "stop") {
    Message message{};
    message.op = Op::kStop;
    return link.call(&message) == 0 ? 0 : 1;
  } else {
    fprintf(stderr, "simgpu-ctl: %s: not a verb it knows, or its arguments are missing\n", verb.c_str());
    return 2;
  }
  return 0;
}
