#!/usr/bin/env python3
"""The table of hooks, what the library exports, and what drivers and the toolkit's headers know agree.

  table_test.py [INCLUDE_DIR LIBRARY]     default: the toolkit and the library of this build
"""
import os
import re
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.dont_write_bytecode = True
sys.path[:0] = [os.path.join(ROOT, "simgpu/gen"), os.path.join(ROOT, "libvgpu/driver")]
import gen_driver
import gen_nvml
import table_def

LISTS = os.path.join(ROOT, "simgpu/lists")
LOADER = {"dlopen", "dlsym", "dlvsym"}
failures = []


def expect_none(what, names):
    print(f"{'FAILED' if names else 'ok'}: {what}{': ' if names else ''}{' '.join(sorted(names))}")
    if names:
        failures.append(what)


def base(symbol):
    return re.fullmatch(r"(.*?)((?:_v\d+)?(?:_ptds|_ptsz)?)", symbol)[1]


def toolkit_version(include):
    with open(os.path.join(include, "cuda.h")) as text:
        return int(re.search(r"^#define CUDA_VERSION (\d+)", text.read(), re.M)[1])


def exports(library):
    lines = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    return {line.split()[-1].split("@")[0] for line in lines.splitlines()}


def defined(family):
    """The functions that libvgpu/hooks/FAMILY.cc defines, also those that its macros LIST_HOOK(S) make."""
    try:
        with open(os.path.join(ROOT, "libvgpu/hooks", family + ".cc")) as file:
            text = file.read()
    except FileNotFoundError:
        return set()
    names = set(re.findall(r"^(?:CUresult|nvmlReturn_t) (\w+)\(", text, re.M)) | set(re.findall(r"^LIST_HOOK\((\w+),", text, re.M))
    for kind in re.findall(r"^LIST_HOOKS\((\w+)\)", text, re.M):
        names |= {f"nvmlDeviceGet{kind}RunningProcesses{version}" for version in ("", "_v2", "_v3")}
    return names


def main(include, library):
    version = toolkit_version(include)
    hooks = list(table_def.hooks())
    hooked = {hook.symbol for hook in hooks}
    drivers = set(gen_driver.levels(LISTS)[0])
    nvml = set(gen_driver.read_list(os.path.join(LISTS, "nvml-535.txt"))) | set(gen_nvml.NEWER)
    print(f"{len(hooked)} hooks; headers of CUDA {version}; {library}")

    expect_none("no symbol is hooked twice", {h.symbol for h in hooks if sum(o.symbol == h.symbol for o in hooks) > 1})
    expect_none("what is hooked is exported", hooked - exports(library))
    expect_none("nothing else is exported", exports(library) - hooked - LOADER)
    expect_none("the loader's functions are exported", LOADER - exports(library))
    expect_none("drivers have what is hooked", hooked - drivers - nvml)

    names = {base(symbol) for symbol in hooked}
    expect_none("all variants of what is hooked are hooked", {s for s in drivers | nvml if base(s) in names} - hooked)

    # What the headers say a program means by a name, a version and a default stream.
    meaning = {(name, since, thread): symbol for name, since, thread, symbol, _ in gen_driver.rows(include, LISTS)}
    asked = {(h.name, h.since, h.stream == "per_thread"): h.symbol for h in hooks if h.library == "cuda"}
    known = {key: symbol for key, symbol in asked.items() if key[1] <= version}
    print(f"{len(known)} of {len(asked)} hooks of the driver are known to these headers")
    expect_none(
        "the headers agree on name, version and stream",
        {f"{symbol}({key}, headers: {meaning.get(key)})" for key, symbol in known.items() if meaning.get(key) != symbol},
    )
    expect_none(
        "nothing more goes by these names",
        {f"{symbol}{key}" for key, symbol in meaning.items() if key[0] in names and key not in asked},
    )
    with open(os.path.join(ROOT, "docs/hooks.md")) as document:
        stale = table_def.table() + table_def.not_hooked_table() not in document.read()
    expect_none("docs/hooks.md has this table", {"run make hooks-docs"} if stale else set())
    expect_none("each hook is in the file of its family", {h.symbol for h in hooks if h.symbol not in defined(h.family)})
    expect_none("every rule is explained", {h.rule for h in hooks} ^ set(table_def.rules()))
    sys.exit(bool(failures))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    main(os.environ["CUDA_INCLUDE"], "libvgpu/libvgpu.so")
