#!/usr/bin/env python3
"""Draws docs/sessions.svg from the --json files of `./dev bench sessions-plot`: tokens/s and median TTFT by sessions."""
import json
import statistics
import sys

COLOURS = {"rumbo": "#1b6ca8", "llama-server": "#b3541e"}
WIDTH, HEIGHT, LEFT, TOP, PLOT_W, PLOT_H = 760, 300, 56, 34, 290, 210


def panel(x0, title, unit, series, sessions):
    top = max(max(values) for values in series.values()) * 1.1
    out = [f'<text x="{x0}" y="{TOP - 14}" font-weight="bold">{title}</text>',
           f'<rect x="{x0}" y="{TOP}" width="{PLOT_W}" height="{PLOT_H}" fill="none" stroke="#999"/>']

    def at(i, value):
        return x0 + 16 + i * (PLOT_W - 32) / max(1, len(sessions) - 1), TOP + PLOT_H * (1 - value / top)

    for i, n in enumerate(sessions):
        out.append(f'<text x="{at(i, 0)[0]:.0f}" y="{TOP + PLOT_H + 16}" text-anchor="middle">{n}</text>')
    for share in (0, 0.5, 1):
        value = top / 1.1 * share
        out.append(f'<text x="{x0 - 6}" y="{at(0, value)[1] + 4:.0f}" text-anchor="end">{value:.0f}</text>')
    for name, values in series.items():
        points = [at(i, v) for i, v in enumerate(values)]
        out.append(f'<polyline fill="none" stroke="{COLOURS[name]}" stroke-width="2" points="'
                   + " ".join(f"{x:.1f},{y:.1f}" for x, y in points) + '"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{COLOURS[name]}"/>' for x, y in points]
    out.append(f'<text x="{x0 + PLOT_W / 2}" y="{TOP + PLOT_H + 34}" text-anchor="middle">sessions at once; {unit}</text>')
    return out


def main():
    if len(sys.argv) < 3:
        sys.exit("usage: plot.py OUT.svg DATA.json ...")
    rows = sorted((row for path in sys.argv[2:] for row in json.load(open(path))), key=lambda row: row["sessions"])
    sessions = [row["sessions"] for row in rows]

    def series(key):
        return {name: [statistics.median(r[key] for r in row[name]) for row in rows] for name in COLOURS}

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="white"/>']
    out += panel(LEFT, "All sessions together", "tokens/s", series("agg"), sessions)
    out += panel(LEFT + PLOT_W + 90, "First token, median", "ms", series("ttft_p50"), sessions)
    for i, (name, colour) in enumerate(COLOURS.items()):
        out.append(f'<text x="{LEFT + 8 + 70 * i}" y="{TOP + 18}" fill="{colour}">{"Rumbo" if name == "rumbo" else name}</text>')
    open(sys.argv[1], "w").write("\n".join(out + ["</svg>", ""]))


if __name__ == "__main__":
    main()
