"""Lets a server refuse writes as it does in production, for as long as a test wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import redis

from tests.servers.poll import eventually
from tests.servers.run import Server

Refusal = Literal["MISCONF", "NOREPLICAS", "READONLY"]
REFUSALS: Final[tuple[Refusal, ...]] = ("MISCONF", "NOREPLICAS", "READONLY")


@contextmanager
def refusing_writes(server: Server, why: Refusal) -> Iterator[None]:
    """Make every write to *server* fail with *why* inside the block."""
    with redis.Redis.from_url(server.url) as db:
        admin: Any = db
        try:
            _begin(server, admin, why)
            eventually(lambda: _refuses(admin, why), within_s=20)
            yield
        finally:
            _end(admin, why)


def refused(server: Server, why: Refusal) -> int:
    """Return how many commands *server* has refused with *why*, besides the one that saw it."""
    with redis.Redis.from_url(server.url) as db:
        counted: Any = db.info("errorstats")
        return int(counted.get(f"errorstat_{why}", {"count": 0})["count"]) - 1


def _begin(server: Server, admin: Any, why: Refusal) -> None:
    if why == "NOREPLICAS":
        admin.config_set("min-replicas-to-write", 1)
    elif why == "READONLY":
        # Nobody listens on port 1: it keeps its data, and waits.
        admin.config_set("replica-serve-stale-data", "yes")
        admin.execute_command("REPLICAOF", "127.0.0.1", "1")
    else:
        # A snapshot that cannot be written, since something else has its name.
        (server.dir / "dump.rdb").mkdir(exist_ok=True)
        admin.config_set("save", "3600 1")
        admin.config_set("stop-writes-on-bgsave-error", "yes")
        # Later, if the append-only file is rewritten just now.
        admin.execute_command("BGSAVE", "SCHEDULE")


def _end(admin: Any, why: Refusal) -> None:
    if why == "NOREPLICAS":
        admin.config_set("min-replicas-to-write", 0)
    elif why == "READONLY":
        admin.execute_command("REPLICAOF", "NO", "ONE")
    else:
        admin.config_set("stop-writes-on-bgsave-error", "no")


def _refuses(admin: Any, why: Refusal) -> bool:
    try:
        admin.delete("a key that is not there")
    except redis.RedisError as error:
        # redis-py removes the code of error kinds that it maps to classes.
        return why in str(error) or isinstance(error, redis.ReadOnlyError)
    return False
