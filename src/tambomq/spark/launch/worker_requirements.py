"""What a worker of Spark must have installed, since what is compiled does not travel."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Final

COMPILED: Final = ("hiredis", "msgspec", "pyarrow")
"""Each is a package to import, and one to install by the same name."""


def check() -> None:
    """Raise `ModuleNotFoundError` in one line where Spark has started a Python that lacks some."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if main is None or not main.name.startswith("pyspark."):
        return
    missing = [name for name in COMPILED if find_spec(name) is None]
    if missing:
        # Spark shows what a worker would print.
        sys.tracebacklimit = 0
        raise ModuleNotFoundError(
            f"the Python at {sys.executable} lacks {' and '.join(missing)}, which cannot be sent: "
            f"`{sys.executable} -m pip install {' '.join(COMPILED)}` on every worker",
            name=missing[0],
        )
