"""Traces and error reports of typed jobs, for OpenTelemetry and Sentry."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tambomq.jobs.telemetry.errors import capture_errors, sentry_errors
    from tambomq.jobs.telemetry.tracing import Tracing

__all__ = ["Tracing", "capture_errors", "sentry_errors"]

# OpenTelemetry is an extra: error reports work without it.
_LATER = {"Tracing": "tracing", "capture_errors": "errors", "sentry_errors": "errors"}


def __getattr__(name: str) -> Any:
    """Import a name at its first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
