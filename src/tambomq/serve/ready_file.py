"""The ready file: there while the process serves, and complete from the first moment."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tambomq
from tambomq.errors import SettingsError
from tambomq.serve.door import Endpoint


def report(endpoints: Sequence[Endpoint]) -> dict[str, object]:
    """Return where everything is, for programs."""
    return {
        "version": tambomq.__version__,
        "pid": os.getpid(),
        "endpoints": {
            each.name: {"address": each.address, "about": each.about, "try": each.try_it}
            for each in endpoints
        },
    }


@contextmanager
def ready_file(path: Path | None) -> Iterator[Callable[[Sequence[Endpoint]], None]]:
    """Give a function that writes the file; it is gone before and after.

    Without *path* nothing is written.
    """
    _remove(path)
    try:
        yield lambda endpoints: _write(path, endpoints)
    finally:
        _remove(path)


def _write(path: Path | None, endpoints: Sequence[Endpoint]) -> None:
    if path is None:
        return
    # Written beside and renamed, so that a reader never sees half of it.
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_text(json.dumps(report(endpoints)) + "\n", "utf-8")
        draft.replace(path)
    except OSError as exc:
        draft.unlink(missing_ok=True)
        raise SettingsError(f"--ready-file: cannot write {path}: {exc.strerror}") from exc


def _remove(path: Path | None) -> None:
    if path is not None:
        try:
            path.unlink(missing_ok=True)
        except OSError as exc:
            raise SettingsError(f"--ready-file: cannot write {path}: {exc.strerror}") from exc
