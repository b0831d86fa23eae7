#!/usr/bin/env python3
"""Puts what sm_bench measured into the documentation.

  docs.py SM_TSV DOCS_DIR      the tables into sm.md, and sm.svg beside it
"""
import os
import sys

WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 720, 260, 48, 16, 36


def read(path):
    rows = {}
    with open(path) as lines:
        for line in lines:
            kind, *values = line.rstrip("\n").split("\t")
            rows.setdefault(kind, []).append(values)
    return rows


def table(header, rows):
    lines = [header, ["---"] * len(header)] + rows
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def combinations(rows):
    profile = ["without limit", "achieved", "efficiency, %"]
    header = ["cap", "kernel", "program", "ranks", "NVML lag, ms"]
    header += [f"{name}: {column}" for name in ("ideal", "hardware") for column in profile]
    return ("![utilisation of a job of two ranks whose limit is changed twice](sm.svg)\n\n" +
            table(header, rows.get("combination", [])))


def taken_again(rows):
    lines = [f"- {what}: {first}, while {tasks} tasks wanted to run; then, with {tasks_then}: {second}"
             for what, first, tasks, second, tasks_then in rows.get("again", [])]
    return "\n".join(lines or ["Nothing."]) + "\n"


def habits(rows):
    return table(["what", "without a limit", "by blocks", "libvgpu", "unit"],
                 [[what, none, peer, ours, unit] for what, unit, none, peer, ours in rows.get("habit", [])])


def side_by_side(rows):
    header = ["cap", "program", "ranks"]
    header += [f"{name}: {column}" for name in ("ideal", "hardware")
               for column in ("without limit", "by blocks", "libvgpu")]
    return table(header, rows.get("side", []))


def replace_section(text, name, content):
    begin, end = f"<!-- begin measured {name} -->\n", f"<!-- end measured {name} -->\n"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        sys.exit(f"docs.py: the markers of \"{name}\" are missing")
    return head + begin + content + end + tail


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
        text = file.read()
    for name, content in (("combinations", combinations), ("habits", habits), ("side by side", side_by_side),
                          ("again", taken_again)):
        text = replace_section(text, name, content(rows))
    with open(path, "w") as file:
        file.write(text)
    with open(os.path.join(docs, "sm.svg"), "w") as file:
        file.write(plot(rows["time"]))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
