"""`samples.html`: statistics of a result and its first samples, in one file that needs nothing else.

In: prepare's finished output folder and the target's tokenizer. Out: the page, in that folder. It has no scripts and
loads nothing; all of a sample is escaped text. The same result gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

from pipeline.prepare.header import DATA, read_header
from pipeline.prepare.show.runs import Run, Speller, visible
from pipeline.prepare.show.samples import read_objects
from pipeline.prepare.show.statistics import Statistics, count
from pipeline.prepare.show.style import STYLE
from pipeline.store.durable import write_synced

PAGE = "samples.html"
SAMPLES = 20
# A page of a few long samples would be too heavy for a browser.
TOKENS = 2_000


def write_page(folder: Path, tokenizer: Any) -> Path:
    """Write the page of a result, replacing an earlier one in one step.

    Args:
        folder: prepare's output folder.
        tokenizer: the target's, of transformers.

    Returns:
        The page's path.

    Raises:
        InputError: the result is missing, or not as prepare writes it.
    """
    statistics = count(folder)
    header = read_header(folder) or {}
    page = "".join(f"{line}\n" for line in _page(folder, header, statistics, tokenizer))
    # A sample may hold half of a surrogate pair, which no file in UTF-8 can.
    write_synced(folder / PAGE, [page.encode("utf-8", "backslashreplace")])
    return folder / PAGE


def _page(folder: Path, header: dict[str, Any], statistics: Statistics, tokenizer: Any) -> Iterator[str]:
    yield "<!doctype html>"
    yield '<html lang="en">'
    yield "<head>"
    yield '<meta charset="utf-8">'
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield '<meta name="color-scheme" content="light dark">'
    yield "<title>Prepared samples</title>"
    yield f"<style>\n{STYLE}</style>"
    yield "</head>"
    yield "<body>"
    yield "<header><h1>Prepared samples</h1>"
    yield f"<p>{_sources(header)}</p></header>"
    yield "<main>"
    yield from _numbers(statistics)
    yield from _pictures(statistics)
    yield from _samples(folder, statistics, Speller(tokenizer))
    yield from _made_from(header)
    yield "</main>"
    yield "</body>"
    yield "</html>"


def _sources(header: dict[str, Any]) -> str:
    names = [_text(source.get("name")) for source in header.get("sources") or [] if isinstance(source, dict)]
    return f"Made from {', '.join(names)}." if names else ""


def _numbers(statistics: Statistics) -> Iterator[str]:
    yield '<section aria-labelledby="numbers"><h2 id="numbers">Numbers</h2><table class="numbers">'
    share = statistics.trained / max(statistics.tokens, 1)
    for name, value in (
        ("samples", f"{statistics.samples:,}"),
        ("tokens", f"{statistics.tokens:,}"),
        ("trained tokens", f"{statistics.trained:,} ({share:.1%})"),
        ("different trained tokens", f"{len(statistics.frequency):,}"),
        ("longest sample", f"{statistics.longest:,} tokens"),
        ("rejected rows", f"{statistics.rejected.total():,}"),
    ):
        yield f'<tr><th scope="row">{name}</th><td>{value}</td></tr>'
    yield "</table></section>"


def _pictures(statistics: Statistics) -> Iterator[str]:
    # Loads matplotlib.
    from pipeline.prepare.show.pictures import draw

    yield '<section aria-labelledby="pictures"><h2 id="pictures">Pictures</h2><div class="pictures">'
    for one in draw(statistics):
        caption = f"<strong>{escape(one.title)}.</strong> {escape(one.caption)}"
        yield f"<figure>{one.svg}<figcaption>{caption}</figcaption></figure>"
    yield "</div></section>"


def _samples(folder: Path, statistics: Statistics, speller: Speller) -> Iterator[str]:
    shown = min(SAMPLES, statistics.samples)
    yield '<section aria-labelledby="samples"><h2 id="samples">Samples</h2>'
    yield (
        f"<p>The first {shown} of {statistics.samples:,}. What is <mark>marked</mark> is trained on; the rest is "
        "context. A token's number shows under the pointer; ⏎ is a line end.</p>"
    )
    for sample in islice(read_objects(folder / DATA), SAMPLES):
        ids, mask = sample["input_ids"], sample["loss_mask"]
        yield f"<article><h3>{_text(sample['id'])}</h3>"
        yield f'<p class="about">{len(ids):,} tokens, {sum(mask):,} trained</p>'
        runs = speller.runs(ids[:TOKENS], mask[:TOKENS])
        yield f'<pre tabindex="0">{"".join(map(_run, runs))}</pre>'
        if len(ids) > TOKENS:
            yield f'<p class="about">{len(ids) - TOKENS:,} more tokens are not shown</p>'
        yield "</article>"
    yield "</section>"


def _run(run: Run) -> str:
    pieces = "".join(
        f'<span title="{" ".join(map(str, piece.ids))}">{_text(piece.text)}</span>' for piece in run.pieces
    )
    return f"<mark>{pieces}</mark>" if run.trained else pieces


def _made_from(header: dict[str, Any]) -> Iterator[str]:
    yield '<section aria-labelledby="made"><h2 id="made">Made from</h2><table class="made">'
    for name, value in _leaves(header, ""):
        yield f'<tr><th scope="row">{_text(name)}</th><td><code>{_text(value)}</code></td></tr>'
    yield "</table></section>"


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _leaves(part, f"{name} {key}".strip())
    elif isinstance(value, list):
        for place, part in enumerate(value, 1):
            yield from _leaves(part, f"{name} {place}")
    else:
        yield name, value


def _text(value: Any) -> str:
    return escape(visible(str(value)))
