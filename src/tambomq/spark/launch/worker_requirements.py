"""Compiled packages that Spark's workers must have installed, since they cannot be sent."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

COMPILED: Final = ("hiredis", "msgspec", "pyarrow")
"""Names to import, which are also the names to install."""


def is_spark_process() -> bool:
    """Whether Spark started this Python and shows what it prints."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and main.name.startswith("pyspark.")


def check() -> None:
    """Raise a one-line `ModuleNotFoundError` in a Spark worker that lacks some."""
    if not is_spark_process():
        return
    missing = [name for name in COMPILED if find_spec(name) is None]
    if missing:
        # Spark shows all that a worker prints.
        sys.tracebacklimit = 0
        raise ModuleNotFoundError(
            f"the Python at {sys.executable} lacks {' and '.join(missing)}, which cannot be sent: "
            f"`{sys.executable} -m pip install {' '.join(COMPILED)}` on every worker",
            name=missing[0],
        )
