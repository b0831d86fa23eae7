#!/usr/bin/env python3
"""Puts measured results into the documentation.

    docs.py BENCH_TSV COMPARE_TSV DOCS_DIRECTORY

Rewrites what stands between the markers in benchmarks.md, and draws benchmarks.svg.
"""
import csv
import html
import math
import os
import platform
import sys

FONT = "font-family='Helvetica, Arial, sans-serif'"
INK, FAINT, GRID = "#1f2933", "#616e7c", "#e4e7eb"
ALONE, CROWD = "#9fb3c8", "#2b6cb0"
GOOD, BAD = ("#e3f5e9", "#1b7f4b"), ("#fde8e8", "#b42318")
OURS = "slurm-vgpu"


def read_tsv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


# ---- how a measured value reads -------------------------------------------------------------------------------------

def number(text):
    """At least two significant digits, without an exponent."""
    value = float(text)
    if value == 0 or value >= 10:
        return f"{value:,.0f}"
    return f"{value:.{1 - math.floor(math.log10(value))}f}"


def share(part, whole):
    part, whole = int(part), int(whole)
    if part == 0:
        return "0"
    percent = 100 * part / whole
    return f"{percent:.0f} %" if percent >= 1 else f"{part:,} of {whole / 1e6:.1f} M"


def milliseconds(text):
    try:
        return number(text) if float(text) >= 0.01 else "<0.01"
    except ValueError:
        return text  # ">2000", "never"


def size(text):
    return "0" if text == "0" else f"{int(text) / 2**20:g} MiB"


def over(row):
    if row["over_bytes"] == "0":
        return "0"
    return f"{size(row['over_bytes'])} ({share(row['over_grants'], row['grants'])})"


def torn(row):
    return share(row["torn"], row["pictures"])


def is_fast(text):
    """Whether a fault of one rank is over for the others within the 10 ms that a recovery may take."""
    try:
        return float(text) <= 10
    except ValueError:
        return False


# ---- tables ---------------------------------------------------------------------------------------------------------

def table(header, rows):
    lines = ["| " + " | ".join(header) + " |", "|---|" + "---:|" * (len(header) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def figures_table(figures):
    return table(["figure", "value", "unit", "goal", "verdict"],
                 [[f"`{f['figure']}`", f["value"], f["unit"], f["goal"], f["verdict"]] for f in figures])


def comparison_table(rows):
    header = ["scheme", "pair, 1 process, ns", "pair, 8 processes, ns", "p99.9 of 8, us", "query, ns",
              "picture of 8 ranks, us", "over the limit", "torn pictures",
              "stopped rank stalls others, ms", "killed rank recovered, ms"]
    cells = []
    for row in rows:
        name = f"**{row['scheme']}**" if row["scheme"] == OURS else row["scheme"]
        cells.append([name, number(row["pair_ns"]), number(row["pair_8p_ns"]), number(row["p999_8p_us"]),
                      number(row["query_ns"]), number(float(row["picture_ns"]) / 1000), over(row), torn(row),
                      milliseconds(row["stall_ms"]), milliseconds(row["recover_ms"])])
    return table(header, cells)


def reported_table(rows):
    """What the documents say, beside half a pair (one of its two operations) and a query as measured here."""
    cells = [[row["scheme"], row["reported_alloc_us"], number(float(row["pair_8p_ns"]) / 2000),
              row["reported_query_us"], number(float(row["query_ns"]) / 1000), row["reported_strict"],
              "yes" if row["over_bytes"] == "0" else "no"] for row in rows]
    return table(["scheme", "alloc, us (reported)", "alloc, us (here, 8 processes)", "query, us (reported)",
                  "query, us (here)", "strict (reported)", "kept the limit (here)"], cells)


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return (f"Measured on {len(os.sched_getaffinity(0))} cores of {model}, Linux {platform.release().split('-')[0]}, "
            f"glibc {platform.libc_ver()[1]}.")


def replace_section(text, name, content):
    begin, end = f"<!-- {name}: made by make bench-docs -->", f"<!-- end of {name} -->"
    head, found, rest = text.partition(begin)
    _, closed, tail = rest.partition(end)
    if not found or not closed:
        sys.exit(f"docs.py: the markers of \"{name}\" are missing")
    return f"{head}{begin}\n{content}\n{end}{tail}"


# ---- the plot -------------------------------------------------------------------------------------------------------

class Plot:
    """One line per scheme: bars for the cost of a pair, then a cell for each property."""
    ROW, TOP, LEFT, BARS = 46, 92, 222, 330
    CELLS = [("keeps the limit", 104), ("no torn reads", 104), ("goes on when\none is stopped", 110),
             ("recovers from\na killed one", 110)]
    LOWEST = 1  # ns

    def __init__(self, rows):
        self.rows = rows
        most = max(float(row[column]) for row in rows for column in ("pair_ns", "pair_8p_ns"))
        self.decades = math.ceil(math.log10(most / self.LOWEST))
        self.cells_left = self.LEFT + self.BARS + 44
        self.width = self.cells_left + sum(width for _, width in self.CELLS) + 20
        self.height = self.TOP + self.ROW * len(rows) + 52
        self.parts = []

    def text(self, x, y, words, size=13, fill=INK, anchor="start", weight="normal"):
        self.parts.append(f"<text x='{x:.1f}' y='{y:.1f}' font-size='{size}' fill='{fill}' text-anchor='{anchor}' "
                          f"font-weight='{weight}'>{html.escape(words)}</text>")

    def box(self, x, y, width, height, fill, radius=2):
        self.parts.append(f"<rect x='{x:.1f}' y='{y:.1f}' width='{width:.1f}' height='{height:.1f}' rx='{radius}' "
                          f"fill='{fill}'/>")

    def x_of(self, ns):
        return self.LEFT + self.BARS * math.log10(max(ns, self.LOWEST) / self.LOWEST) / self.decades

    def axis(self):
        bottom = self.TOP + self.ROW * len(self.rows)
        for ns in (self.LOWEST * 10**decade for decade in range(self.decades + 1)):
            x = self.x_of(ns)
            self.parts.append(f"<line x1='{x:.1f}' y1='{self.TOP - 6}' x2='{x:.1f}' y2='{bottom}' stroke='{GRID}'/>")
            self.text(x, bottom + 16, f"{ns:,}", 11, FAINT, "middle")
        self.text(self.LEFT, bottom + 36, "ns per reserve + release, logarithmic; shorter is better", 11, FAINT)

    def heading(self):
        self.text(20, 30, "Sharing one memory limit between processes", 17, INK, weight="bold")
        for x, colour, words in ((self.LEFT, ALONE, "1 process"), (self.LEFT + 100, CROWD, "8 processes, per core")):
            self.box(x, 60, 11, 11, colour)
            self.text(x + 17, 70, words, 12, FAINT)
        x = self.cells_left
        for words, width in self.CELLS:
            lines = words.split("\n")
            for i, line in enumerate(lines):
                self.text(x + width / 2, 70 - 14 * (len(lines) - 1 - i), line, 12, FAINT, "middle")
            x += width

    def bar(self, y, ns, colour):
        end = self.x_of(ns)
        self.box(self.LEFT, y, max(end - self.LEFT, 1), 14, colour)
        self.text(end + 5, y + 11, number(ns), 11, FAINT)

    def row(self, index, row):
        top = self.TOP + index * self.ROW
        ours = row["scheme"] == OURS
        if ours:
            self.box(10, top - 2, self.width - 20, self.ROW - 2, "#f0f5fb", 4)
        self.text(20, top + 25, row["scheme"], 13, INK, weight="bold" if ours else "normal")
        self.bar(top + 5, float(row["pair_ns"]), ALONE)
        self.bar(top + 21, float(row["pair_8p_ns"]), CROWD)
        limit, whole = row["over_bytes"] == "0", row["torn"] == "0"
        stall, recovery = milliseconds(row["stall_ms"]), milliseconds(row["recover_ms"])
        cells = [(limit, "yes" if limit else f"+{size(row['over_bytes'])}"),
                 (whole, "yes" if whole else f"{torn(row)} torn"),
                 (is_fast(row["stall_ms"]), "no wait" if is_fast(row["stall_ms"]) else self.duration(stall)),
                 (is_fast(row["recover_ms"]), self.duration(recovery))]
        x = self.cells_left
        for (good, words), (_, width) in zip(cells, self.CELLS):
            background, ink = GOOD if good else BAD
            self.box(x + 4, top + 5, width - 8, 30, background, 4)
            self.text(x + width / 2, top + 25, words, 12, ink, "middle", "bold")
            x += width

    @staticmethod
    def duration(words):
        if words == "never":
            return words
        return "> 2 s" if words == ">2000" else f"{words} ms"

    def draw(self):
        self.heading()
        for index, row in enumerate(self.rows):
            self.row(index, row)
        self.axis()
        body = "\n".join(self.parts)
        return (f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {self.width} {self.height}' "
                f"width='{self.width}' height='{self.height}' {FONT}>\n"
                f"<rect width='100%' height='100%' fill='white'/>\n{body}\n</svg>\n")


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__.strip())
    figures, rows, docs = read_tsv(sys.argv[1]), read_tsv(sys.argv[2]), sys.argv[3]
    page = os.path.join(docs, "benchmarks.md")
    with open(page) as file:
        text = file.read()
    for name, content in (("figures", f"{machine()}\n\n{figures_table(figures)}"),
                          ("comparison", comparison_table(rows)), ("reported", reported_table(rows))):
        text = replace_section(text, name, content)
    with open(page, "w") as file:
        file.write(text)
    with open(os.path.join(docs, "benchmarks.svg"), "w") as file:
        file.write(Plot(rows).draw())


if __name__ == "__main__":
    main()
