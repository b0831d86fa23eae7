#!/usr/bin/env python3
"""What libvgpu costs whole programs: real clients of the simulated GPU, and programs that never touch CUDA.

Each program runs natively and in a job with a limit, in turns. Prints figures as figure.h does; worth something only on
an idle machine. Run it in the build directory. VGPU_BENCH_ROUNDS says how often the clients run (default 15); what
is not installed is left out, and said.
"""
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

BUILD = os.getcwd()
SIMGPU = os.path.join(BUILD, "simgpu")
CLIENTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../clients")
ROUNDS = int(os.environ.get("VGPU_BENCH_ROUNDS", "15"))
STARTS = 300  # of a process that ends at once

FFMPEG = ["ffmpeg", "-hide_banner", "-nostdin", "-loglevel", "error", "-init_hw_device", "cuda=cu:0",
          "-filter_hw_device", "cu", "-f", "lavfi", "-i", "testsrc=s=1280x720:d=12",
          "-vf", "format=nv12,hwupload_cuda,scale_cuda=640:360,hwdownload,format=nv12", "-f", "null", "-"]
# All words of three letters; on the simulated GPU it finds none of them.
HASHCAT = ["hashcat", "-m", "0", "-a", "3", "-O", "--quiet", "--self-test-disable", "--potfile-disable",
           "--logfile-disable", "--restore-disable", "--backend-ignore-opencl", "--backend-devices", "1",
           "8743b52063cd84097a65d1633f5c74f5", "?l?l?l"]
HASHCAT_EXHAUSTED = 1
NUMBA = ["/usr/bin/python3", os.path.join(CLIENTS, "numba_client.py"), "work"]
NVRTC = ["/usr/local/cuda/lib64", "/usr/lib/x86_64-linux-gnu"]


def print_figure(figure, value, unit, goal):
    print(f"{figure}\t{value:.4g}\t{unit}\t{goal:g}\t{'ok' if value <= goal else 'short'}", flush=True)


class Job:
    """A region with a limit, made by vgpu-run, which keeps it while a rank of its own waits for our end."""

    def __init__(self, environment, limit):
        self.launcher = subprocess.Popen(
            [os.path.join(BUILD, "utils/vgpu-run/vgpu-run"), f"--gpu-mem={limit}", "--", "sh", "-c",
             'echo "$VGPU_REGION"; echo "$LD_PRELOAD"; exec cat'],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        region, preload = (self.launcher.stdout.readline().strip() for _ in range(2))
        if not region or not preload:
            sys.exit("apps_bench.py: vgpu-run did not start")
        self.variables = {"VGPU_REGION": region, "LD_PRELOAD": preload}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.launcher.stdin.close()
        self.launcher.wait()


def run(command, environment, expected=0):
    """Wall and processor time, in seconds."""
    null = os.open(os.devnull, os.O_RDWR)
    start = time.perf_counter()
    child = os.posix_spawnp(command[0], command, environment,
                            file_actions=[(os.POSIX_SPAWN_DUP2, null, fd) for fd in (0, 1, 2)])
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - start
    os.close(null)
    if os.waitstatus_to_exitcode(status) != expected:
        sys.exit(f"apps_bench.py: {command[0]} ended with {os.waitstatus_to_exitcode(status)}, not {expected}")
    return wall, used.ru_utime + used.ru_stime


def in_turns(command, environments, rounds, expected=0):
    """For each environment, the (wall, processor) times of its runs."""
    times = [[] for _ in environments]
    for turn in range(rounds):
        # Whoever comes second finds warmer caches: both come second equally often.
        order = list(enumerate(environments))[:: 1 if turn % 2 == 0 else -1]
        for index, environment in order:
            times[index].append(run(command, environment, expected))
    return times


def typical(values):
    """The median, and how far it may be off (one standard error, as outliers leave it)."""
    middle = statistics.median(values)
    spread = statistics.median(abs(value - middle) for value in values)
    return middle, 1.86 * spread / len(values) ** 0.5


def quartile(values):
    return statistics.quantiles(values, n=4)[0]


def added_percent(times, column):
    """Lower quartiles are compared: whoever else uses the machine makes runs slower, and hardly one of seconds is spared."""
    native, limited = (quartile(run[column] for run in runs) for runs in times)
    return 100 * (limited / native - 1)


def measure_application(name, command, environments, expected=0):
    for environment in environments:
        run(command, environment, expected)  # what is cached is cached now
    times = in_turns(command, environments, ROUNDS, expected)
    wall, processor = added_percent(times, 0), added_percent(times, 1)
    print(f"{name}: {quartile(wall for wall, _ in times[0]):.2f} s; with a limit {wall:+.2f} % of wall time, "
          f"{processor:+.2f} % of processor time", flush=True)
    return wall


def measure_applications(native, job):
    def environments(**more):
        return [{**native, **more}, {**native, **more, **job.variables}]

    added = []
    if shutil.which("ffmpeg"):
        added.append(measure_application("ffmpeg", FFMPEG, environments()))
    nvrtc = next((place for place in NVRTC if os.path.exists(os.path.join(place, "libnvrtc.so"))), None)
    if shutil.which("hashcat") and nvrtc:
        libraries = f"{native['LD_LIBRARY_PATH']}:{nvrtc}"
        added.append(measure_application("hashcat", HASHCAT, environments(LD_LIBRARY_PATH=libraries),
                                         HASHCAT_EXHAUSTED))
    if subprocess.run(["/usr/bin/python3", "-c", "import numba"], capture_output=True).returncode == 0:
        # A driver of the 535 series: numba 0.56 does not survive 13.0's cuCtxGetDevice_v2.
        added.append(measure_application("numba", NUMBA, environments(LD_LIBRARY_PATH=f"{SIMGPU}/535")))
    if len(added) < 3:
        print("left out: what is not installed of ffmpeg, hashcat with NVRTC, and numba")
    if added:
        print_figure("hooks.app_overhead_percent", max(added), "%", 1)


def measure_starts(native, job):
    """Programs that never touch CUDA: what the loader and our constructor take."""
    worst = 0
    for name, command, rounds in (("true", ["/bin/true"], STARTS), ("python3", ["python3", "-c", "pass"], STARTS // 5)):
        plain, preloaded = in_turns(command, [native, {**native, **job.variables}], rounds)
        added, error = typical([1000 * (b - a) for (a, _), (b, _) in zip(plain, preloaded)])
        print(f"{name}: {1000 * statistics.median(wall for wall, _ in plain):.2f} ms; with libvgpu {added:+.3f} "
              f"(+-{error:.3f}) ms", flush=True)
        worst = max(worst, added)
    print_figure("hooks.start_added_ms", worst, "ms", 1)


def main():
    with tempfile.TemporaryDirectory(prefix="apps-bench-") as scratch:
        native = {**os.environ, "LD_LIBRARY_PATH": f"{SIMGPU}/13.0", "SIMGPU_NODE": f"{scratch}/node",
                  "SIMGPU_CONFIG": "context=100MiB; visibility_ms=0; idle_ms=600000; device",
                  "XDG_RUNTIME_DIR": scratch, "XDG_CACHE_HOME": scratch, "XDG_DATA_HOME": scratch, "HOME": scratch,
                  "NUMBA_CACHE_DIR": scratch}
        for variable in ("LD_PRELOAD", "VGPU_REGION"):
            native.pop(variable, None)
        try:
            with Job(native, "4G") as job:
                measure_starts(native, job)
                measure_applications(native, job)
        finally:
            subprocess.run([f"{SIMGPU}/simgpu-ctl", "stop"], env=native, capture_output=True)


if __name__ == "__main__":
    main()
