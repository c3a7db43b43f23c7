"""The directory that a user names as a lake: a path or a ``file:`` URL, of no other scheme."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from tambomq.errors import SettingsError

# `Path` joins slashes: it spells s3a://bucket as s3a:/bucket.
_URL: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", re.DOTALL)
_LOCAL: Final = re.compile(r"(?://(?:localhost)?)?(/.*)", re.DOTALL | re.IGNORECASE)


def lake_path(named: Path | str) -> Path:
    """Return the absolute path of the lake that *named* says; raise `SettingsError` for a URL.

    ``file:///var/lake`` is ``/var/lake``; a relative path and ``~`` are resolved.
    """
    text = os.fspath(named)
    url = _URL.fullmatch(text)
    if url is None:
        return Path(text).expanduser().absolute()
    scheme, rest = url.groups()
    if scheme.lower() != "file":
        raise SettingsError(
            f"a lake cannot be at {text!r}: the scheme {scheme!r} is not supported, "
            "give a directory or a file:///… URL"
        )
    local = _LOCAL.fullmatch(rest)
    if local is None or local[1].startswith("//"):
        raise SettingsError(
            f"a lake cannot be at {text!r}: a file URL has three slashes, as file:///var/lake"
        )
    path = unquote(local[1])
    if "\0" in path:
        raise SettingsError(f"a lake cannot be at {text!r}: the path has a NUL byte")
    return Path(path)
