"""The page of samples as a browser shows it: Debian's Chromium, without a window and without a network.

Where there is none these tests are skipped and say so; with EYAS_CI=1 that is a failure.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from pipeline.prepare.show.page import write_page
from tests.pipeline.prepare.test_show import NASTY, write_result

QUIET = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--virtual-time-budget=2000", "--window-size=1280,900"),
)
POLICY = re.compile('<meta http-equiv="Content-Security-Policy"[^>]*>')
# Run in a copy of the page, which alone allows it.
PROBE = """
const box = one => one.getBoundingClientRect();
const ground = one => getComputedStyle(one).backgroundColor;
const root = document.documentElement;
const pre = document.querySelector("article pre");
const found = {
  pictures: [...document.querySelectorAll("svg")].map(one => [box(one).width, box(one).height]),
  overlapping: [...document.querySelectorAll("figure")].some((one, place, all) => all.slice(place + 1).some(other =>
    box(one).left < box(other).right && box(other).left < box(one).right &&
    box(one).top < box(other).bottom && box(other).top < box(one).bottom)),
  pictureInk: getComputedStyle(document.querySelector("svg")).color,
  page: ground(document.body),
  ink: getComputedStyle(document.body).color,
  trained: ground(pre.querySelector("mark")),
  underlined: getComputedStyle(pre.querySelector("mark")).textDecorationLine,
  context: ground(pre.querySelector(":scope > span")),
  samples: ground(pre),
  text: pre.textContent,
  scripts: document.scripts.length,
  resources: performance.getEntriesByType("resource").length,
  width: root.scrollWidth,
  window: innerWidth,
};
const told = document.createElement("output");
told.id = "told";
told.textContent = JSON.stringify(found);
document.body.append(told);
"""


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium")
    if not found:
        why = "no chromium in PATH: apt-get install chromium"
        if os.environ.get("EYAS_CI", "0") not in {"", "0"}:
            pytest.fail(why)
        pytest.skip(why)
    return found


@pytest.fixture
def page(tokenizer: Any, tmp_path: Path) -> Path:
    """A page with what could break its layout: one long word, many lines, a long name."""
    text = NASTY + " " + "x" * 3_000 + "\n" * 30
    ids = tokenizer(text)["input_ids"]
    half = len(ids) // 2
    sample = (ids, [0] * half + [1] * (len(ids) - half))
    reasons = ("a-reason-" + "y" * 60, "no-assistant-turn", "no-assistant-turn")
    return write_page(write_result(tmp_path / "out", [sample, sample], reasons), tokenizer)


def browse(chromium: str, page: Path, *flags: str) -> str:
    profile = page.parent / "profile"
    command = [chromium, *QUIET, f"--user-data-dir={profile}", *flags, "--dump-dom", page.as_uri()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    shutil.rmtree(profile, ignore_errors=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def measure(chromium: str, page: Path, *flags: str) -> dict[str, Any]:
    text = page.read_text("utf-8")
    assert len(POLICY.findall(text)) == 1
    copy = page.with_name("copy.html")
    copy.write_text(POLICY.sub("", text).replace("</body>", f"<script>{PROBE}</script></body>"), "utf-8")
    told = re.search('<output id="told">(.*?)</output>', browse(chromium, copy, *flags), re.DOTALL)
    assert told, "the probe did not run"
    return json.loads(unescape(told[1]))


@pytest.mark.parametrize("scheme", ["dark", "light"])
def test_a_browser_shows_all_of_the_page(chromium: str, page: Path, scheme: str) -> None:
    found = measure(chromium, page, f"--blink-settings=preferredColorScheme={['dark', 'light'].index(scheme)}")
    assert len(found["pictures"]) == 4
    assert all(width > 300 and height > 150 for width, height in found["pictures"]), found["pictures"]
    assert not found["overlapping"]
    assert found["width"] <= found["window"]
    assert found["window"] >= 1200
    assert found["underlined"] == "underline"
    assert len({found["trained"], found["samples"], found["context"]}) == 3
    assert found["scripts"] == 1, "the probe alone"
    assert found["resources"] == 0
    assert (brightness(found["page"]) < brightness(found["ink"])) is (scheme == "dark")
    for ground in ("page", "trained", "samples"):
        assert contrast(found["ink"], found[ground]) >= 7, ground
    assert contrast(found["pictureInk"], found["samples"]) >= 4.5


def test_the_page_itself_lets_no_script_run(chromium: str, page: Path) -> None:
    text = page.read_text("utf-8")
    copy = page.with_name("copy.html")
    copy.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"), "utf-8")
    assert '<output id="told">' not in browse(chromium, copy)


def test_the_browser_keeps_the_page_as_it_was_written(chromium: str, page: Path) -> None:
    dumped = browse(chromium, page)
    assert "<script" not in dumped
    assert dumped.count("<mark>") == page.read_text("utf-8").count("<mark>")
    assert dumped.count("<svg") == 4


def test_a_browser_takes_a_picture_of_the_page(chromium: str, page: Path) -> None:
    picture = page.with_name("page.png")
    browse(chromium, page, f"--screenshot={picture}")
    assert picture.read_bytes().startswith(b"\x89PNG")


def brightness(colour: str) -> float:
    """Relative luminance of rgb(...), as WCAG defines it."""
    parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Of two colours, 1 to 21, as WCAG defines it."""
    dark, light = sorted((brightness(one), brightness(other)))
    return (light + 0.05) / (dark + 0.05)
