"""The statistics of a result as pictures, each an SVG element that stands in a page as it is.

In: statistics. Out: text, the same for the same statistics; letters are paths, so that no font has to be there.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter

from pipeline.prepare.show.statistics import SHARE_BINS, Statistics

BAR = "#4a86c5"
# Stands for the colour of the page's text, which is another one on a dark ground.
INK = "#010203"
STYLE = {
    "svg.fonttype": "path",
    "font.family": ["DejaVu Sans"],
    "font.size": 10,
    "text.parse_math": False,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "grid.color": INK,
    "grid.alpha": 0.25,
}
REASONS = 12


@dataclass(frozen=True)
class Picture:
    """One of the page."""

    title: str
    caption: str
    """what it shows, in a sentence with the numbers that matter"""
    svg: str


def draw(statistics: Statistics) -> Iterator[Picture]:
    """Draw all pictures, in the page's order; each has something to say for an empty result too."""
    for title, caption, plot in (
        ("Lengths", _about_lengths(statistics), _lengths),
        ("Trained share", _about_shares(statistics), _shares),
        ("Rejected rows", _about_rejected(statistics), _rejected),
        ("Draft vocabulary", _about_coverage(statistics), _coverage),
    ):
        yield Picture(title, caption, _svg(title, caption, plot, statistics))


def _svg(title: str, caption: str, plot: Any, statistics: Statistics) -> str:
    # Ids are made from the salt: another one for each picture, as all of them stand in one page.
    with mpl.rc_context(rc={**mpl.rcParamsDefault, **STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=(5.6, 3.2), layout="constrained")
        plot(figure.add_subplot(), statistics)
        stream = io.StringIO()
        FigureCanvasSVG(figure).print_svg(stream, metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    drawn = stream.getvalue()
    label = escape(f"{title}: {caption}")
    found = re.search(r'viewBox="([^"]+)"', drawn)
    assert found, "matplotlib writes a viewBox"  # noqa: S101 - for the type checker
    inner = drawn[drawn.index(">", drawn.index("<svg")) + 1 :]
    inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", inner, flags=re.DOTALL)
    # Only within an SVG file of its own do the names need their addresses; without them the page holds none.
    inner = inner.replace("xlink:href", "href").replace(INK, "currentColor")
    # matplotlib's ids of axes and ticks are the same in each picture, and nothing refers to them.
    referred = set(re.findall(r'(?:href="|url\()#([^")]+)', inner))
    inner = re.sub(r' id="([^"]+)"', lambda one: one[0] if one[1] in referred else "", inner)
    if stray := re.findall(r"(?<=#)DejaVuSans-[0-9a-f]+", inner):
        prefix = re.sub(r"\W", "", title)
        for name in sorted(set(stray), key=len, reverse=True):
            inner = re.sub(rf"\b{name}\b", f"{prefix}-{name}", inner)
    return f'<svg viewBox="{found[1]}" role="img" aria-label="{label}">{inner.strip()}'


def _lengths(axes: Any, statistics: Statistics) -> None:
    bins = range(min(statistics.lengths, default=0), max(statistics.lengths, default=0) + 1)
    axes.bar(bins, [statistics.lengths[one] for one in bins], width=0.96, align="edge", color=BAR)
    # Not so many that they run into each other.
    marks = range(bins.start, bins.stop + 1, 1 + len(bins) // 9)
    axes.set_xticks(marks, [f"{2**one:,}" for one in marks])
    axes.set(xlabel="tokens in a sample", ylabel="samples")
    _count_axis(axes.yaxis)
    axes.grid(axis="y")


def _about_lengths(statistics: Statistics) -> str:
    mean = statistics.tokens / max(statistics.samples, 1)
    return f"{statistics.samples:,} samples of {mean:,.0f} tokens on average, the longest of {statistics.longest:,}."


def _shares(axes: Any, statistics: Statistics) -> None:
    places = [one / SHARE_BINS for one in range(SHARE_BINS)]
    axes.bar(places, statistics.shares, width=0.95 / SHARE_BINS, align="edge", color=BAR)
    axes.set(xlabel="trained share of a sample's tokens", ylabel="samples", xlim=(0, 1))
    axes.xaxis.set_major_formatter(PercentFormatter(1))
    _count_axis(axes.yaxis)
    axes.grid(axis="y")


def _about_shares(statistics: Statistics) -> str:
    share = statistics.trained / max(statistics.tokens, 1)
    return f"{statistics.trained:,} of {statistics.tokens:,} tokens are trained on: {share:.1%}."


def _rejected(axes: Any, statistics: Statistics) -> None:
    most = _ranked(statistics)[:REASONS][::-1]
    if not most:
        axes.set_axis_off()
        axes.text(0.5, 0.5, "none", transform=axes.transAxes, ha="center")
        return
    bars = axes.barh([_short(reason) for reason, _ in most], [rows for _, rows in most], color=BAR, height=0.7)
    axes.bar_label(bars, labels=[f"{rows:,}" for _, rows in most], padding=3)
    axes.set(xlabel="rows")
    axes.margins(x=0.12)
    # A single bar is not as high as the picture.
    axes.set_ylim(min(len(most), 4) - 4.6, len(most) - 0.4)
    _count_axis(axes.xaxis)
    axes.grid(axis="x")


def _about_rejected(statistics: Statistics) -> str:
    if not (ranked := _ranked(statistics)):
        return "No row was rejected."
    others = f", of {len(ranked)} reasons the first {REASONS} shown" if len(ranked) > REASONS else ""
    return f"{statistics.rejected.total():,} rows were rejected, most for {ranked[0][0]}{others}."


def _ranked(statistics: Statistics) -> list[tuple[str, int]]:
    return sorted(statistics.rejected.items(), key=lambda one: (-one[1], one[0]))


def _short(reason: str) -> str:
    # A longer one would leave no room for its bar.
    return reason if len(reason) <= 30 else f"{reason[:29]}…"


def _coverage(axes: Any, statistics: Statistics) -> None:
    reached = statistics.coverage()
    axes.plot(list(reached), list(reached.values()), color=BAR, marker="o", markersize=4)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda size, _: f"{size:,.0f}"))
    axes.set(xlabel="tokens in the draft's vocabulary", ylabel="trained tokens covered", ylim=(0, 1.03))
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.grid()


def _about_coverage(statistics: Statistics) -> str:
    return (
        f"{len(statistics.frequency):,} different tokens are trained on; the most frequent "
        f"{statistics.covering(0.95):,} are 95% of the trained text, {statistics.covering(0.99):,} are 99%."
    )


def _count_axis(axis: Any) -> None:
    axis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axis.set_major_formatter(FuncFormatter(lambda count, _: f"{count:,.0f}"))
