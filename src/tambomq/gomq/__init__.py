"""GOMQ: publish and subscribe over gRPC, kept in Redis."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from tambomq.extras import explained
from tambomq.gomq.model import Options, Record

if TYPE_CHECKING:
    from tambomq.gomq.async_client import AsyncGomqClient
    from tambomq.gomq.client import GomqClient
    from tambomq.gomq.server.grpc_server import GomqServer

__all__ = ["AsyncGomqClient", "GomqClient", "GomqServer", "Options", "Record"]

# They bring gRPC with them, which takes longer to import than everything else here.
_LATER = {
    "AsyncGomqClient": "async_client",
    "GomqClient": "client",
    "GomqServer": "server.grpc_server",
}


def __getattr__(name: str) -> Any:
    """Import what needs gRPC when it is first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    except ModuleNotFoundError as error:
        raise explained(error) from error
