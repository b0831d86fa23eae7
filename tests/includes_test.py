#!/usr/bin/env python3
"""Includes go one way: a folder includes itself and what its row of MAY_INCLUDE names, and nothing else.

A name without a folder ("x.h") is a file of the same folder. First the check itself is checked: every violation of
PLANTED, put into a copy of the tree, must be found.

  includes_test.py [ROOT]     default: the tree that this script is in
"""
import os
import re
import shutil
import sys
import tempfile

BASE, REGION, DRIVER, RUNTIME, SM = (f"libvgpu/{name}" for name in ("base", "region", "driver", "runtime", "sm"))
ANYTHING = None
MAY_INCLUDE = {
    BASE: [],
    REGION: [BASE],
    DRIVER: [BASE],
    RUNTIME: [BASE, REGION, DRIVER],
    SM: [BASE, REGION, DRIVER, RUNTIME],
    "libvgpu/hooks": [BASE, REGION, DRIVER, RUNTIME, SM],
    "node": [BASE, REGION],
    "spank": [BASE, REGION, "node"],
    "utils/vgpu-probe": [BASE, REGION, "node"],
    "utils/vgpu-watch": [BASE, REGION, "node"],
    "utils/command_line": [],
    "utils/vgpu-run": [BASE, REGION, "node", "utils/command_line"],
    "utils/vgpuctl": [BASE, REGION, "node", "utils/command_line"],
    "simgpu": [],
    "tests/simgpu": ["simgpu"],
    "tests": ANYTHING,
}
TOP_FOLDERS = sorted({folder.split("/")[0] for folder in MAY_INCLUDE})
SOURCES = (".c", ".cc", ".cu", ".def", ".h")
# Where the compiler looks, besides the folder of the file; the last one is for tests alone.
INCLUDE_PATH = ("libvgpu", "", "tests")

# A file, what is added to it, and what must be said of that.
PLANTED = [
    (f"{BASE}/error.h", '#include "region/names.h"', "region/names.h: libvgpu/base includes nothing but itself"),
    (f"{REGION}/files.cc", '#include "driver/table.h"', "driver/table.h: libvgpu/region includes only libvgpu/base"),
    (f"{DRIVER}/resolve.cc", '#  include "runtime/log.h"', "runtime/log.h: libvgpu/driver includes only libvgpu/base"),
    (
        f"{RUNTIME}/log.cc",
        '#include "../sm/meter.h"',
        "../sm/meter.h: libvgpu/runtime includes only libvgpu/base libvgpu/region libvgpu/driver",
    ),
    ("node/values.cc", '#include "spank/log.h"', "spank/log.h: node includes only libvgpu/base libvgpu/region"),
    (
        "utils/vgpuctl/main.cc",
        '#include "utils/vgpu-run/ranks.h"',
        "utils/vgpu-run/ranks.h: utils/vgpuctl includes only libvgpu/base libvgpu/region node utils/command_line",
    ),
    (
        "spank/plugin.cc",
        '#include "simgpu/node/link.h"',
        "simgpu/node/link.h: spank includes only libvgpu/base libvgpu/region node",
    ),
    (
        "spank/plugin.cc",
        '#include "tests/region/support.h"',
        "tests/region/support.h: spank includes only libvgpu/base libvgpu/region node",
    ),
    ("simgpu/node/link.h", "#include <base/error.h>", "base/error.h: simgpu includes nothing but itself"),
    ("tests/simgpu/support.h", '#include "region/region.h"', "region/region.h: tests/simgpu includes only simgpu"),
    ("spank/plugin.cc", '#include "region/support.h"', "region/support.h: there is no such file for spank"),
    ("node/values.cc", '#include "error.h"', "error.h: there is no such file in node/"),
    ("utils/other/main.cc", '#include "node/values.h"', "utils/other has no row in tests/includes_test.py"),
]


def folder_of(path):
    """The row that a file belongs to: the longest that begins its path."""
    rows = [folder for folder in MAY_INCLUDE if path.startswith(folder + "/")]
    return max(rows, key=len, default=None)


def sources(root):
    for top in TOP_FOLDERS:
        for directory, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith(SOURCES):
                    yield os.path.relpath(os.path.join(directory, name), root)


def resolve(root, path, name):
    """The file of the tree that the compiler finds, or None."""
    searched = [os.path.dirname(path)]
    if "/" in name:
        searched += INCLUDE_PATH if path.startswith("tests/") else INCLUDE_PATH[:-1]
    for directory in searched:
        found = os.path.normpath(os.path.join(directory, name))
        if os.path.isfile(os.path.join(root, found)):
            return found
    return None


def complaint(root, path, quote, name):
    """What is wrong with one include, or None."""
    folder, found = folder_of(path), resolve(root, path, name)
    if folder is None:
        return f"{os.path.dirname(path)} has no row in tests/includes_test.py"
    if found is None and quote == "<":
        return None  # the system's
    if found is None:
        place = f"for {folder}" if "/" in name else f"in {os.path.dirname(path)}/"
        return f"{name}: there is no such file {place}"
    allowed = MAY_INCLUDE[folder]
    if allowed is ANYTHING or folder_of(found) in [folder, *allowed]:
        return None
    return f"{name}: {folder} includes {'only ' + ' '.join(allowed) if allowed else 'nothing but itself'}"


def violations(root):
    found = []
    for path in sources(root):
        with open(os.path.join(root, path), encoding="utf-8") as text:
            for number, line in enumerate(text, 1):
                include = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
                wrong = include and complaint(root, path, *include.groups())
                if wrong:
                    found.append(f"{path}:{number}: {wrong}")
    return sorted(found)


def check_of_the_check(root):
    """What the check did not find of PLANTED, or found besides."""
    failures = []
    before = violations(root)
    with tempfile.TemporaryDirectory() as copy:
        for path in sources(root):
            os.makedirs(os.path.join(copy, os.path.dirname(path)), exist_ok=True)
            shutil.copyfile(os.path.join(root, path), os.path.join(copy, path))
        for path, line, wanted in PLANTED:
            place = os.path.join(copy, path)
            original = ""
            if os.path.exists(place):
                with open(place, encoding="utf-8") as text:
                    original = text.read()
            os.makedirs(os.path.dirname(place), exist_ok=True)
            with open(place, "w", encoding="utf-8") as text:
                text.write(f"{original}{line}\n")
            wanted = f"{path}:{original.count(chr(10)) + 1}: {wanted}"
            found = [violation for violation in violations(copy) if violation not in before]
            if found != [wanted]:
                failures.append(f"planted in a copy: {line}\n  wanted: {wanted}\n  found:  {found}")
            with open(place, "w", encoding="utf-8") as text:
                text.write(original)
    return failures


def main(root):
    failures = check_of_the_check(root)
    print(f"{'FAILED' if failures else 'ok'}: {len(PLANTED)} planted violations are found", *failures, sep="\n")
    found = violations(root)
    count = sum(1 for _ in sources(root))
    print(f"{'FAILED' if found else 'ok'}: the includes of {count} files go one way", *found, sep="\n")
    sys.exit(bool(failures or found))


if __name__ == "__main__":
    main(os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")))
