"""The error of a command whose extra is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tambomq.errors import SettingsError
from tambomq.extras import EXTRAS, how_to_install


@contextmanager
def extras_required() -> Iterator[None]:
    """Turn the import of a package that belongs to an extra into a `SettingsError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if (extra := EXTRAS.get(package)) is None:
            raise
        raise SettingsError(
            f"{package} is not installed, and this command needs it: {how_to_install(extra)}"
        ) from error
