"""The shell of all pages, and the static files, read once from the package.

The path of a static file has the hash of all of them: ``/static/<hash>/js/main.js``. Modules and
styles import each other by relative paths, so all of them are cached for good, and replaced
together. Without the hash a file is served too, and asked for again each time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from tambomq.console.http.problems import Problem

_FOLDER: Final = "static"
_SHELL: Final = "index.html"
_EMPTY: Final = b"<!doctype html><title>TamboMQ</title><p>The pages are not in this package."
_HASH_DIGITS: Final = 12
_TYPES: Final = {
    "css": "text/css; charset=utf-8",
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "png": "image/png",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
    "woff2": "font/woff2",
}
_UNKNOWN: Final = "application/octet-stream"
_FOR_GOOD: Final = "public, max-age=31536000, immutable"


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file and its headers."""

    content: bytes
    type: str
    etag: str


class StaticFiles:
    """All static files of the package."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        whole = hashlib.sha256()
        self._files: dict[str, StaticFile] = {}
        for name, content in sorted(contents.items()):
            digest = hashlib.sha256(content).hexdigest()
            whole.update(f"{name} {digest}\n".encode())
            kind = _TYPES.get(name.rpartition(".")[2], _UNKNOWN)
            self._files[name] = StaticFile(content, kind, f'"{digest[:_HASH_DIGITS]}"')
        self.version = whole.hexdigest()[:_HASH_DIGITS]
        shell = contents.get(_SHELL, _EMPTY)
        self.shell = shell.replace(b'"/static/', f'"/static/{self.version}/'.encode())

    def get(self, path: str) -> tuple[StaticFile, bool] | None:
        """Return the file at *path*, and whether the path has the hash."""
        version, _, name = path.partition("/")
        if version == self.version:
            found = self._files.get(name)
            return (found, True) if found else None
        file = self._files.get(path)
        return (file, False) if file else None


@cache
def packaged() -> StaticFiles:
    """Return the files of the package."""
    folder = resources.files("tambomq.console").joinpath(_FOLDER)
    return StaticFiles(dict(_contents(folder, "")) if folder.is_dir() else {})


def _contents(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from _contents(each, f"{prefix}{each.name}/")
        else:
            yield prefix + each.name, each.read_bytes()


def static_response(files: StaticFiles, request: Request) -> Response:
    """Answer a request for a static file. Raises `Problem` if there is none."""
    found = files.get(request.path_params["path"])
    if found is None:
        raise Problem(404, "not_found", "There is no such file.")
    file, is_versioned = found
    headers = {
        "ETag": file.etag,
        "Cache-Control": _FOR_GOOD if is_versioned else "no-cache",
    }
    if request.headers.get("if-none-match") == file.etag:
        return Response(status_code=304, headers=headers)
    return Response(file.content, headers=headers, media_type=file.type)
