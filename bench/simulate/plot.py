#!/usr/bin/env python3
"""Draws scaling efficiency over GPUs from the JSON rows of bench-simulate.

    plot.py OUT.svg ROWS.json [MORE.json ...]

Standard library only. Rows of one path are joined by a line; all must be of one preset.
"""

import json
import math
import pathlib
import sys

WIDTH, HEIGHT = 720, 420
LEFT, RIGHT, TOP, BOTTOM = 60, 170, 40, 50
COLORS = ["#0b6", "#06c", "#c60", "#808", "#c03", "#555"]


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    rows = [row for name in sys.argv[2:] for row in json.loads(pathlib.Path(name).read_text())]
    presets = {row["preset"] for row in rows}
    if len(presets) != 1:
        sys.exit(f"plot.py: rows of one preset are needed, got {sorted(presets)}")
    most = max(row["gpus"] for row in rows)
    least = min(row["gpus"] for row in rows)

    def x(gpus):
        span = max(1.0, math.log2(most) - math.log2(least))
        return LEFT + (WIDTH - LEFT - RIGHT) * (math.log2(gpus) - math.log2(least)) / span

    def y(efficiency):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - efficiency)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
           f'font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="14">Simulated scaling efficiency, {presets.pop()}, '
           f'{rows[0]["gradient_bytes"] / 1e9:.2f} GB of gradients</text>']
    for percent in range(0, 101, 20):
        at = y(percent / 100)
        out.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" '
                   'stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{percent}%</text>')
    for gpus in sorted({row["gpus"] for row in rows}):
        out.append(f'<text x="{x(gpus):.1f}" y="{HEIGHT - BOTTOM + 18}" '
                   f'text-anchor="middle">{gpus}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" '
               'text-anchor="middle">GPUs</text>')
    paths = {}
    for row in rows:
        paths.setdefault(row["path"], {})[row["gpus"]] = row["scaling_efficiency"]
    ends = []  # of the labels, from above: never two on one line
    for (path, points), color in zip(
            sorted(paths.items(), key=lambda item: -item[1][max(item[1])]), COLORS * len(paths)):
        ordered = sorted(points.items())
        line = " ".join(f"{x(gpus):.1f},{y(value):.1f}" for gpus, value in ordered)
        out.append(f'<polyline points="{line}" fill="none" stroke="{color}" stroke-width="2"/>')
        for gpus, value in ordered:
            out.append(f'<circle cx="{x(gpus):.1f}" cy="{y(value):.1f}" r="3" fill="{color}"/>')
        at = y(ordered[-1][1]) + 4
        if ends and at < ends[-1] + 15:
            at = ends[-1] + 15
        ends.append(at)
        out.append(f'<text x="{WIDTH - RIGHT + 12}" y="{at:.1f}" fill="{color}">{path} '
                   f'{ordered[-1][1] * 100:.1f}%</text>')
    out.append("</svg>")
    pathlib.Path(sys.argv[1]).write_text("\n".join(out) + "\n")


if __name__ == "__main__":
    main()
