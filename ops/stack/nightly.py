"""vLLM's nightly wheels, addressed by commit: finds a commit's wheel at the index and downloads it, checked.

An index is a folder of HTML pages, `<index>/<commit>/vllm/`, in the form of PEP 503. It gives no checksum of its own
accord, so what was downloaded and checked once is what a stack pins.
"""

from __future__ import annotations

import hashlib
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.parser import HeaderParser
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import requests
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from ops.errors import ChecksumError, NotAtIndexError, StackError, TruncatedError
from ops.progress import Download

DEFAULT_INDEX = "https://wheels.vllm.ai"
# Seconds to connect, and between two pieces of a body.
TIMEOUT = (15, 60)


@dataclass(frozen=True)
class Wheel:
    """A nightly's wheel as the index names it."""

    url: str
    version: Version
    sha256: str
    """from the link's fragment; empty when the index gives none"""


def check_commit(commit: str) -> str:
    """The commit, lower case.

    Raises:
        StackError: it is not a full commit hash.
    """
    if not re.fullmatch("[0-9a-fA-F]{40}", commit):
        raise StackError(f"--commit {commit!r} is not a full commit: give all 40 hex digits")
    return commit.lower()


def find_wheel(index: str, commit: str) -> Wheel:
    """The commit's wheel for x86-64 Linux.

    Raises:
        NotAtIndexError: the index cannot be reached, does not have the commit, or has no such wheel for it.
    """
    page = f"{index.rstrip('/')}/{commit}/vllm/"
    with _get(page, f"commit {commit}") as response:
        links = _Links()
        links.feed(response.text)
        wheels = [wheel for link in links.found if (wheel := _wheel(urljoin(response.url, link)))]
    if not wheels:
        raise NotAtIndexError(f"{page} lists no vllm wheel for x86-64 Linux; choose another commit")
    return wheels[0]


def download(wheel: Wheel, folder: Path) -> tuple[Path, str]:
    """Download the wheel into `folder`.

    Returns:
        The file and its hex sha256.

    Raises:
        NotAtIndexError: the index lists the wheel and does not have it.
        TruncatedError: fewer bytes came than the server announced.
    """
    path = folder / unquote(urlsplit(wheel.url).path.rsplit("/", 1)[-1])
    digest = hashlib.sha256()
    received = 0
    with _get(wheel.url, "the wheel") as response:
        announced = int(response.headers.get("Content-Length", 0))
        try:
            with path.open("wb") as file, Download(path.name, announced) as progress:
                for piece in response.iter_content(1 << 20):
                    file.write(piece)
                    digest.update(piece)
                    received += len(piece)
                    progress.advance(len(piece))
        except (requests.exceptions.ChunkedEncodingError, requests.exceptions.ConnectionError) as error:
            raise TruncatedError(_short(wheel.url, announced)) from error
    if received < announced:
        raise TruncatedError(_short(wheel.url, announced))
    return path, digest.hexdigest()


def check_wheel(path: Path, commit: str) -> str:
    """Check that the file is a vLLM wheel of that commit.

    Returns:
        The version its METADATA declares.

    Raises:
        ChecksumError: it is no wheel, or another commit's.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = [n for n in archive.namelist() if re.fullmatch(r"vllm-[^/]+\.dist-info/METADATA", n)]
            metadata = HeaderParser().parsestr(archive.read(names[0]).decode("utf-8"))
        version = Version(metadata["Version"] or "")
    except (zipfile.BadZipFile, IndexError, UnicodeDecodeError, InvalidVersion) as error:
        raise ChecksumError(f"{path.name} from the index is not a vllm wheel; nothing was pinned") from error
    local = (version.local or "").split(".")
    if f"g{commit[:9]}" not in local:
        raise ChecksumError(f"{path.name} declares version {version}, which is not of commit {commit[:9]}")
    return str(version)


class _Links(HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.found += [value for name, value in attrs if name == "href" and value]


def _wheel(link: str) -> Wheel | None:
    url, fragment = urldefrag(link)
    try:
        name, version, _, tags = parse_wheel_filename(unquote(urlsplit(url).path.rsplit("/", 1)[-1]))
    except InvalidWheelFilename:
        return None
    fits = any("linux" in tag.platform and tag.platform.endswith("x86_64") for tag in tags)
    return Wheel(url, version, fragment.removeprefix("sha256=")) if name == "vllm" and fits else None


@contextmanager
def _get(url: str, what: str) -> Iterator[requests.Response]:
    try:
        # Compressed on the way, the announced length would not be the file's.
        response = requests.get(url, stream=True, timeout=TIMEOUT, headers={"Accept-Encoding": "identity"})
    except requests.exceptions.RequestException as error:
        raise NotAtIndexError(
            f"{url} cannot be reached ({type(error).__name__}); check --index and the network"
        ) from error
    with response:
        if not response.ok:
            raise NotAtIndexError(f"{what} is not at the index: {url} answers {response.status_code}")
        yield response


def _short(url: str, announced: int) -> str:
    return f"{url} ended before all {announced} bytes had come; nothing was pinned, run again"
