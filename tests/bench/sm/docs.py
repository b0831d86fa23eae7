#!/usr/bin/env python3
"""Puts what sm_bench measured into the documentation.

  docs.py SM_TSV DOCS_DIR      the table into sm.md, and sm.svg beside it
"""
import os
import sys

BEGIN, END = "<!-- begin measured -->\n", "<!-- end measured -->\n"
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 260, 48, 16, 36


def read(path):
    rows = {}
    with open(path) as lines:
        for line in lines:
            kind, *values = line.rstrip("\n").split("\t")
            rows.setdefault(kind, []).append(values)
    return rows


def table(rows):
    lines = ["![utilisation of a job of two ranks whose limit is changed twice](sm.svg)\n",
             "| cap | kernel | program | ranks | NVML lag, ms | without limit | achieved | overshoot, points | efficiency, % |",
             "|---|---|---|---|---|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plot(rows):
    times = [float(row[0]) for row in rows]
    end = max(times)

    def x(time):
        return LEFT + (WIDTH - LEFT - 12) * time / end

    def y(percent):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - percent / 100)

    used = " ".join(f"{x(t):.1f},{y(min(float(row[1]), 100)):.1f}" for t, row in zip(times, rows))
    limit, before = [], 0.0
    for time, row in zip(times, rows):
        limit += [f"{x(before):.1f},{y(float(row[2])):.1f}", f"{x(time):.1f},{y(float(row[2])):.1f}"]
        before = time
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" '
             f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for percent in range(0, 101, 20):
        parts.append(f'<path d="M{LEFT} {y(percent):.1f}H{WIDTH - 12}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 6}" y="{y(percent) + 4:.1f}" text-anchor="end">{percent}</text>')
    for second in range(0, int(end) + 1):
        parts.append(f'<text x="{x(second):.1f}" y="{HEIGHT - 18}" text-anchor="middle">{second}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 4}" text-anchor="middle">seconds; percent of the device\'s time, '
                 'in steps of 0.1 s</text>')
    parts.append(f'<polyline points="{" ".join(limit)}" fill="none" stroke="#c33" stroke-width="2"/>')
    parts.append(f'<polyline points="{used}" fill="none" stroke="#247" stroke-width="1.5"/>')
    return "\n".join(parts) + "\n</svg>\n"


def main(measured, docs):
    rows = read(measured)
    path = os.path.join(docs, "sm.md")
    with open(path) as file:
        before, rest = file.read().split(BEGIN)
    with open(path, "w") as file:
        file.write(before + BEGIN + table(rows["combination"]) + END + rest.split(END)[1])
    with open(os.path.join(docs, "sm.svg"), "w") as file:
        file.write(plot(rows["time"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
