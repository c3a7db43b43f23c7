"""Redis, or the server that comes with us, cannot do what was asked."""

from __future__ import annotations

from tambomq.errors.common import TamboError


class StoreError(TamboError):
    """Redis cannot do what was asked."""


class StoreUnavailable(StoreError):
    """Redis cannot be reached; the operation was not done."""


class StoreReadOnly(StoreUnavailable):
    """Redis answers but takes no writes for now; the operation was not done.

    Its disk is full (MISCONF), too few replicas are connected (NOREPLICAS), or it is a replica
    (READONLY). Reads work, and the operation may be tried again.
    """


class ReplyLost(StoreUnavailable):
    """The connection broke before the reply came; the operation may have been done."""


class StoreFull(StoreError):
    """Redis is out of memory; the operation was not done."""


class StoreRefused(StoreError):
    """Redis does not let us in, or not to this key."""


class WrongType(StoreError):
    """A key holds something else than this protocol keeps there."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(f"one of the keys {', '.join(keys)} holds a value of another type")
        self.keys = keys


class EmbeddedError(StoreError):
    """The bundled server cannot run."""


class PortTaken(EmbeddedError):
    """Something else listens where the bundled server should."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"{host}:{port} is taken")
        self.host, self.port = host, port


class DataDirBusy(EmbeddedError):
    """Another process serves from this data directory."""

    def __init__(self, path: str, owner: str) -> None:
        super().__init__(f"{path} is in use by {owner}")
        self.path, self.owner = path, owner
