"""A small index of vLLM nightlies on loopback, with real wheels, that can misbehave."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import quote

COMMIT = "7291d1b288558d48508e1a17c37b0aa170332264"
VERSION = "0.16.0rc2.dev388+g7291d1b28"
TAGS = "cp38-abi3-manylinux_2_31_x86_64"


def wheel(version: str = VERSION, tags: str = TAGS) -> bytes:
    """A wheel of an empty package named vllm, which needs nothing."""
    info = f"vllm-{version}.dist-info"
    tag_lines = f"Tag: {tags}\n"
    content = {
        "vllm/__init__.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: false\n{tag_lines}",
        f"{info}/RECORD": "",
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, text in content.items():
            archive.writestr(name, text)
    return buffer.getvalue()


class Index:
    """What the server has: pages and files by path. `cut` bytes are left out at the end of each file."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.cut = 0
        self.url = ""

    def add(
        self, content: bytes, *, commit: str = COMMIT, version: str = VERSION, tags: str = TAGS, fragment: str = ""
    ) -> None:
        """Put a wheel in, and a link to it on the commit's page, as the real index writes them."""
        name = quote(f"vllm-{version}-{tags}.whl")
        self.files[f"/{commit}/{name}"] = content
        page = f"/{commit}/vllm/"
        link = f'<a href="../../{commit}/{name}{fragment}">{name}</a><br/>\n'
        self.files[page] = self.files.get(page, b"<!DOCTYPE html>\n") + link.encode()


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def serve(index: Index) -> Iterator[Index]:
    """Serve the index on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self._answer(body=False)

        def do_GET(self) -> None:
            self._answer(body=True)

        def _answer(self, *, body: bool) -> None:
            content = index.files.get(self.path)
            if content is None:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if body:
                self.wfile.write(content[: len(content) - index.cut] if self.path.endswith(".whl") else content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
