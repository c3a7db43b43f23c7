"""The ready file: exists while the process serves, and is written atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tambomq
from tambomq.errors import SettingsError
from tambomq.serve.component import ServedEndpoint


def report(endpoints: Sequence[ServedEndpoint]) -> dict[str, object]:
    """Return the endpoints as JSON values."""
    return {
        "version": tambomq.__version__,
        "pid": os.getpid(),
        "endpoints": {
            each.name: {"address": each.address, "about": each.about, "try": each.try_it}
            for each in endpoints
        },
    }


@contextmanager
def ready_file(path: Path | None) -> Iterator[Callable[[Sequence[ServedEndpoint]], None]]:
    """Provide a function that writes the file; it is removed before and after.

    Without *path* nothing is written.
    """
    _remove(path)
    try:
        yield lambda endpoints: _write(path, endpoints)
    finally:
        _remove(path)


def _write(path: Path | None, endpoints: Sequence[ServedEndpoint]) -> None:
    if path is None:
        return
    # Write another file and rename it, so that readers never see half of it.
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
