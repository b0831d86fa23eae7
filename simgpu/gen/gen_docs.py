#!/usr/bin/env python3
"""Writes the tables of implemented functions into the documentation.

  gen_docs.py LISTS_DIR CUDA_NAMES NVML_NAMES DOCUMENT

The *_NAMES files hold the output of `nm --defined-only` of the implementing objects.
"""
import os
import re
import sys


def read_list(path):
    with open(path) as lines:
        return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def implemented(path):
    with open(path) as lines:
        return {line.split()[-1] for line in lines if len(line.split()) >= 2}


def folded(names):
    """cuMemAlloc, cuMemAlloc_v2 -> `cuMemAlloc` {-,_v2}: one entry for each base name."""
    groups = {}
    for name in names:
        match = re.match(r"(.*?)((?:_v\d+)?(?:_ptds|_ptsz)?)$", name)
        groups.setdefault(match[1], []).append(match[2] or "-")
    out = []
    for base, suffixes in sorted(groups.items()):
        tail = "" if suffixes == ["-"] else "{" + ",".join(sorted(suffixes)) + "}"
        out.append(f"{base}{tail}")
    return out


def table(title, exports, have):
    real = sorted(name for name in exports if name in have)
    stubs = sorted(name for name in exports if name not in have)
    return (
        f"**{title}**: {len(real)} of {len(exports)} entry points do something.\n\n"
        f"Implemented: {' '.join(folded(real))}\n\n"
        f"Stubs ({len(stubs)}), which log their name and return NOT_SUPPORTED: {' '.join(folded(stubs))}\n"
    )


def main(lists, cuda_names, nvml_names, document):
    cuda = sorted(set(read_list(os.path.join(lists, "cuda-13.0.txt"))) | set(read_list(os.path.join(lists, "cuda-535.txt"))))
    nvml_have = implemented(nvml_names)
    nvml = sorted(set(read_list(os.path.join(lists, "nvml-535.txt"))) | {n for n in nvml_have if n.startswith("nvml")})
    text = table("libcuda", cuda, implemented(cuda_names)) + "\n" + table("libnvidia-ml", nvml, nvml_have)
    with open(document) as old:
        before, rest = old.read().split("<!-- begin generated -->\n")
        after = rest.split("<!-- end generated -->\n")[1]
    with open(document, "w") as new:
        new.write(f"{before}<!-- begin generated -->\n{text}<!-- end generated -->\n{after}")


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
