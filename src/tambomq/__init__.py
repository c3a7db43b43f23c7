"""Message-queue protocols over one Redis or Valkey."""

from __future__ import annotations


def __getattr__(name: str) -> str:
    """Look up ``__version__`` only when asked: its source takes longer to import than all else."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415  (the point of it)

        return version("tambomq")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
