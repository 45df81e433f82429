#!/usr/bin/env python3
"""Draws the diagrams of the documents, for a light and a dark page in one file each.

    docs/images/draw.py            writes the SVG files beside this program
    docs/images/draw.py --check    fails if a file differs from what would be written

A diagram is a list of boxes, arrows and texts on a grid. Change it below, run the program, and look at the result.
"""

import html
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

STYLE = """
  text { font: 14px system-ui, sans-serif; fill: #1f2328; }
  .small { font-size: 12px; fill: #59636e; }
  .title { font-weight: 600; }
  .code { font-family: ui-monospace, monospace; font-size: 12px; }
  .terminal { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: 13px; white-space: pre; }
  .prompt { font-weight: 700; }
  .box { fill: #f6f8fa; stroke: #8c959f; }
  .ours { fill: #ddf4ff; stroke: #0969da; }
  .wrong { fill: #ffebe9; stroke: #cf222e; }
  .line { stroke: #59636e; fill: none; stroke-width: 1.5; }
  .mark { stroke: #cf222e; stroke-dasharray: 4 3; stroke-width: 1.5; }
  .head { fill: #59636e; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; }
    .small { fill: #9198a1; }
    .box { fill: #151b23; stroke: #656c76; }
    .ours { fill: #0c2d6b; stroke: #4493f8; }
    .wrong { fill: #3c1618; stroke: #f85149; }
    .line { stroke: #9198a1; }
    .mark { stroke: #f85149; }
    .head { fill: #9198a1; }
  }
"""


class Diagram:
    """A picture of this size, in pixels, with a description for those who cannot see it."""

    def __init__(self, name, width, height, description):
        self.name = name
        self.width = width
        self.height = height
        self.description = description
        self.parts = []

    def text(self, x, y, text, style="", anchor="middle"):
        self.parts.append(
            f'<text x="{x}" y="{y}" class="{style}" text-anchor="{anchor}">{html.escape(text)}</text>')

    def box(self, x, y, width, height, lines, style="box"):
        """A box with its upper left corner at x, y. A line is a text, or a text and its style."""
        self.parts.append(f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" class="{style}"/>')
        top = y + height / 2 - 9 * (len(lines) - 1) + 5
        for at, line in enumerate(lines):
            text, text_style = line if isinstance(line, tuple) else (line, "")
            self.text(x + width / 2, top + 18 * at, text, text_style)

    def arrow(self, x1, y1, x2, y2):
        self.parts.append(f'<line x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}" class="line" marker-end="url(#head)"/>')

    def mark(self, x, y1, y2):
        self.parts.append(f'<line x1="{x}" y1="{y1}" x2="{x}" y2="{y2}" class="mark"/>')

    def svg(self):
        return "\n".join([
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" height="{self.height}" role="img">',
            f"<title>{html.escape(self.description)}</title>",
            f"<style>{STYLE}</style>",
            '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto"><path d="M0 0 L8 4 L0 8 z" class="head"/></marker></defs>',
            *self.parts,
            "</svg>",
            "",
        ])


def api_server():
    it = Diagram("api-server", 760, 300,
                 "Without pod-index, each of four agents on a node has its own connection to the API server, with three watches: "
                 "four connections, twelve watches. With pod-index, the four agents ask pod-index on their node, and it alone asks "
                 "the API server: two connections, three watches.")
    agents = ["logs", "traces", "metrics", "security"]
    it.text(180, 24, "each agent asks for itself", "title")
    it.box(90, 40, 180, 44, ["API server"])
    for at, agent in enumerate(agents):
        left = 4 + at * 90
        it.box(left, 230, 84, 40, [(agent, "small")])
        it.arrow(left + 42, 230, 140 + at * 26, 86)
    it.text(180, 292, "one node: 4 connections, 12 watches", "small")
    it.text(580, 24, "one agent asks for all", "title")
    it.box(490, 40, 180, 44, ["API server"])
    it.box(500, 132, 160, 48, [("pod-index", "title")], "ours")
    it.arrow(580, 132, 580, 86)
    for at, agent in enumerate(agents):
        left = 404 + at * 90
        it.box(left, 230, 84, 40, [(agent, "small")])
        it.arrow(left + 42, 230, 540 + at * 26, 182)
    it.text(580, 292, "one node: 2 connections, 3 watches", "small")
    return it


def static_pods():
    it = Diagram("static-pods", 760, 270,
                 "The kubelet reads the manifest etcd.yaml and runs the static pod etcd-node-1 with one UID. It creates a mirror "
                 "pod of the same full name, with another UID, on the API server. pod-index holds both and translates the UIDs.")
    it.box(10, 60, 170, 60, [("etcd.yaml", "code"), ("manifest on the node", "small")])
    it.box(290, 40, 200, 100, [("static pod", "title"), "etcd-node-1", ("UID bd4d1e24…", "code"), ("in log paths, cgroups", "small")])
    it.box(570, 40, 180, 100, [("mirror pod", "title"), "etcd-node-1", ("UID 5b3e77c0…", "code"), ("in kubectl", "small")])
    it.arrow(180, 90, 286, 90)
    it.text(233, 80, "kubelet runs", "small")
    it.arrow(490, 90, 566, 90)
    it.text(528, 80, "creates", "small")
    it.box(290, 200, 460, 50, [("pod-index", "title"), ("one full name, two UIDs, translated both ways", "small")], "ours")
    it.arrow(390, 142, 390, 196)
    it.arrow(660, 142, 660, 196)
    return it


def one_ip():
    it = Diagram("one-ip", 760, 250,
                 "A timeline. Pod a has the address 10.0.0.7 until 12:00:10, pod b has it from 12:00:20. An event of 12:00:08 "
                 "arrives at 12:00:40. A lookup of the present says pod b, which is wrong; a lookup at the event's time says pod a.")
    it.text(10, 30, "who has 10.0.0.7", "title", "start")
    it.box(40, 50, 250, 44, ["pod a"])
    it.box(400, 50, 350, 44, ["pod b"])
    it.text(345, 77, "nobody", "small")
    it.arrow(40, 130, 750, 130)
    for x, label in [(225, "12:00:08"), (305, "12:00:10"), (400, "12:00:20"), (660, "12:00:40")]:
        it.text(x, 150, label, "small")
    it.mark(225, 46, 130)
    it.text(225, 172, "a packet is sent")
    it.mark(660, 46, 130)
    it.text(660, 172, "its event arrives")
    it.box(40, 195, 330, 44, [("asked with the event's time: pod a", "")], "ours")
    it.box(420, 195, 330, 44, [("asked for the present: pod b", "")], "wrong")
    return it


def data_flow():
    it = Diagram("data-flow", 760, 296,
                 "Sources (manifest directory, URL, kubelet, API server) send updates to one writer thread. It merges them and "
                 "publishes immutable snapshots with one atomic swap. Any number of readers look pods up by UID, name, IP, container "
                 "ID or a key of their own; the pod API, checkpoints and mirror pods follow the changes.")
    for at, source in enumerate(["manifest directory", "URL", "kubelet", "API server"]):
        top = 40 + at * 66
        it.box(6, top, 150, 46, [source])
        it.arrow(156, top + 23, 202, 120 + at * 22)
    it.text(81, 24, "sources", "title")
    it.box(206, 100, 160, 106, [("one writer", "title"), ("merges, decides who", "small"), ("holds each IP and", "small"), ("container ID", "small")], "ours")
    it.arrow(366, 153, 402, 153)
    it.text(384, 143, "swap", "small")
    it.box(406, 100, 160, 106, [("snapshot", "title"), ("immutable: UIDs,", "small"), ("names, IPs, container", "small"), ("IDs, translations", "small")], "ours")
    for at, (reader, what) in enumerate([
            ("readers", "lookups, no lock"), ("whois, pod API", "HTTP, watches"), ("checkpoints", "pods on disk"), ("mirror pods", "if managed")]):
        top = 40 + at * 66
        it.box(604, top, 150, 46, [reader, (what, "small")])
        it.arrow(566, 120 + at * 22, 600, top + 23)
    it.text(679, 24, "who reads", "title")
    return it


def whois():
    """What a terminal shows. The text is what the agent printed, for the pods of a test."""
    lines = (HERE / "whois.txt").read_text().splitlines()
    it = Diagram("whois", 840, 34 + 20 * len(lines),
                 "A terminal. whois finds the pod of a container ID and the pod that has the address 10.0.0.7 now. Asked with the time "
                 "of an event, it finds another pod, which had the address then and has been removed since.")
    it.parts.append(f'<rect x="1" y="1" width="838" height="{it.height - 2}" rx="8" class="box"/>')
    for at, line in enumerate(lines):
        style = "terminal prompt" if line.startswith("$") else "terminal"
        # Renderers join spaces, except for these.
        it.text(16, 28 + 20 * at, line.replace(" ", "\u00a0"), style, "start")
    return it


def main():
    check = sys.argv[1:] == ["--check"]
    outdated = []
    for diagram in [whois(), api_server(), static_pods(), one_ip(), data_flow()]:
        path = HERE / f"{diagram.name}.svg"
        svg = diagram.svg()
        if check:
            if not path.exists() or path.read_text() != svg:
                outdated.append(path.name)
        else:
            path.write_text(svg)
    if outdated:
        sys.exit(f"run docs/images/draw.py: outdated: {', '.join(outdated)}")


if __name__ == "__main__":
    main()
