#!/usr/bin/env python3
"""Reads table.def, for the documentation and the tests.

  table_def.py DOCUMENT     writes the table of hooks into the document
"""
import os
import re
import sys
from collections import namedtuple

Hook = namedtuple("Hook", "symbol library name since stream family rule")
BEGIN, END = "<!-- begin generated -->\n", "<!-- end generated -->\n"


def text():
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "table.def")) as file:
        return file.read()


def hooks():
    for macro, arguments in re.findall(r"^(CUDA|NVML)_HOOK\((.*)\)$", text(), re.M):
        values = [value.strip() for value in arguments.split(",")]
        if macro == "CUDA":
            symbol, name, since, stream, family, rule = values
            yield Hook(symbol, "cuda", name, int(since), stream, family, rule)
        else:
            symbol, family, rule = values
            yield Hook(symbol, "nvml", None, None, None, family, rule)


def rules():
    """{rule: what it means}, from the comment at the top."""
    comment = re.search(r"^// Rules:\n((?://   .*\n)+)", text(), re.M)[1]
    return dict(re.findall(r"^//   (\w+) +(.*)$", comment, re.M))


def folded(symbols):
    """cuMemAlloc, cuMemAlloc_v2 -> cuMemAlloc{-,_v2}"""
    groups = {}
    for symbol in symbols:
        base, suffix = re.fullmatch(r"(.*?)((?:_v\d+)?(?:_ptds|_ptsz)?)", symbol).groups()
        groups.setdefault(base, []).append(suffix or "-")
    return [base + ("" if suffixes == ["-"] else "{" + ",".join(suffixes) + "}") for base, suffixes in groups.items()]


def table():
    meaning = rules()
    groups = {}
    for hook in hooks():
        groups.setdefault((hook.family, hook.rule), []).append(hook.symbol)
    lines = [f"{sum(map(len, groups.values()))} symbols.\n", "| family | rule | symbols |", "|---|---|---|"]
    for (family, rule), symbols in groups.items():
        lines.append(f"| {family} | {rule} | {' '.join(f'`{name}`' for name in folded(symbols))} |")
    lines += ["", "| rule | meaning |", "|---|---|"]
    lines += [f"| {rule} | {sentence} |" for rule, sentence in meaning.items()]
    return "\n".join(lines) + "\n"


def exports():
    """What drivers export: the lists that the simulated driver is made from."""
    lists = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../simgpu/lists")
    names = set()
    for level in ("cuda-13.0.txt", "cuda-535.txt"):
        with open(os.path.join(lists, level)) as file:
            names.update(line.strip() for line in file if line.strip() and not line.startswith("#"))
    return sorted(names)


def reasons():
    """[(pattern, why such functions have no hook)], from not_hooked.txt."""
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "not_hooked.txt")) as file:
        for line in file:
            if not line.startswith("#"):
                pattern, reason = line.rsplit(" | ", 1)
                yield re.compile(pattern.strip()), reason.strip()


def not_hooked_table():
    hooked = {hook.symbol for hook in hooks()}
    groups = {reason: [] for _, reason in reasons()}
    for name in exports():
        if name in hooked:
            continue
        fitting = [reason for pattern, reason in reasons() if pattern.fullmatch(name)]
        if not fitting:
            sys.exit(f"table_def.py: {name} has neither a hook nor a reason in not_hooked.txt")
        groups[fitting[0]].append(name)
    count = sum(map(len, groups.values()))
    lines = ["", f"The other {count} functions that drivers of CUDA 12.2 and 13.0 export have no hook, and programs get the "
             "driver's own:\n", "| why | functions |", "|---|---|"]
    lines += [f"| {reason} | {' '.join(f'`{name}`' for name in folded(names))} |" for reason, names in groups.items() if names]
    return "\n".join(lines) + "\n"


def main(document):
    with open(document) as file:
        before, rest = file.read().split(BEGIN)
    with open(document, "w") as file:
        file.write(before + BEGIN + table() + not_hooked_table() + END + rest.split(END)[1])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
