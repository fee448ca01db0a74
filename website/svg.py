"""A few shapes of SVG that follow the reader's light or dark colours."""

from __future__ import annotations

from html import escape

STYLE = """
text { font: 15px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2328 }
.title { font-size: 18px; font-weight: 600 }
.small { font-size: 13px; fill: #59636e }
.white { fill: #fff; font-weight: 600 }
.middle { text-anchor: middle }
.end { text-anchor: end }
.card { fill: #fff; stroke: #d0d7de }
.box { fill: #f6f8fa; stroke: #d0d7de }
.line { fill: none; stroke: #afb8c1; stroke-width: 1.2 }
.arrow { fill: none; stroke: #59636e; stroke-width: 1.6 }
.head { fill: #59636e }
.plain { fill: #c8d1da }
.blue { fill: #0969da } .bluish { fill: #54aeff } .faint { fill: #a5d5ff }
.orange { fill: #bc4c00 } .green { fill: #1a7f37 }
.blueline { fill: none; stroke: #0969da; stroke-width: 2 }
.orangeline { fill: none; stroke: #bc4c00; stroke-width: 2 }
.goal { fill: #ddf4ff; stroke: #0969da }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .small { fill: #9198a1 } .white { fill: #fff }
.card { fill: #0d1117; stroke: #30363d } .box { fill: #161b22; stroke: #30363d }
.line { stroke: #3d444d } .arrow { stroke: #9198a1 } .head { fill: #9198a1 }
.plain { fill: #3d444d } .blue { fill: #1f6feb } .bluish { fill: #388bfd } .faint { fill: #23446f }
.orange { fill: #db6d28 } .green { fill: #238636 }
.blueline { stroke: #4493f8 } .orangeline { stroke: #f0883e } .goal { fill: #121d2f; stroke: #1f6feb }
}
"""


class Picture:
    """Shapes on a card; `title` is what a screen reader says."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self.size = width, height
        self.title = title
        self.parts = [
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>'
        ]

    def text(self, x: float, y: float, said: str, kind: str = "") -> None:
        self.parts.append(f'<text class="{kind}" x="{x:g}" y="{y:g}">{escape(said)}</text>')

    def lines(self, x: float, y: float, said: list[str], kind: str = "", step: int = 18) -> None:
        for number, line in enumerate(said):
            self.text(x, y + step * number, line, kind)

    def dot(self, x: float, y: float, radius: float, kind: str) -> None:
        self.parts.append(f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}"/>')

    def line(self, points: list[tuple[float, float]], kind: str = "line") -> None:
        said = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self.parts.append(f'<polyline class="{kind}" points="{said}"/>')

    def arrow(self, points: list[tuple[float, float]], said: str = "", kind: str = "arrow") -> None:
        """A line with a head at its last point, which is reached along an axis or at a slant."""
        (ax, ay), (bx, by) = points[-2:]
        length = ((bx - ax) ** 2 + (by - ay) ** 2) ** 0.5
        dx, dy = (bx - ax) / length, (by - ay) / length
        back = bx - 9 * dx, by - 9 * dy
        self.line([*points[:-1], back], kind)
        left = back[0] - 4.5 * dy, back[1] + 4.5 * dx
        right = back[0] + 4.5 * dy, back[1] - 4.5 * dx
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in ((bx, by), left, right))
        self.parts.append(f'<polygon class="head" points="{corners}"/>')
        if said:
            self.text((ax + bx) / 2 + 8, (ay + by) / 2 + 5, said, "small")

    def box(
        self, x: float, y: float, width: float, height: float, said: list[str], kind: str = "box"
    ) -> None:
        """A box with a line of text and smaller ones below it."""
        self.parts.append(
            f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7"/>'
        )
        top = y + height / 2 - 9 * (len(said) - 1) + 5
        for number, line in enumerate(said):
            self.text(x + width / 2, top + 18 * number, line, "middle small" if number else "middle")

    def render(self) -> str:
        width, height = self.size
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
                f"<title>{escape(self.title)}</title>",
                f"<style>{STYLE}</style>",
                *self.parts,
                "</svg>\n",
            ]
        )
