"""An embedded server with messages in it, and what a restored one has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import redis

from tambomq.backup.source import embedded_source
from tambomq.backup.write import BackupResult, write_backup
from tambomq.chasqui import BlockingQueue
from tambomq.embedded.server import Embedded
from tambomq.rsmq import Rsmq

MESSAGES = 40


@contextmanager
def opened(data_dir: Path) -> Iterator[redis.Redis]:
    """A client of the embedded server of *data_dir*, which runs meanwhile."""
    with Embedded(data_dir, port=0) as server, redis.Redis.from_url(server.url) as client:
        yield client


def fill(url: str) -> None:
    """Send some messages of two protocols."""
    rsmq = Rsmq(url)
    rsmq.create_queue("orders")
    for number in range(MESSAGES):
        rsmq.send_message("orders", f"order {number}")
    rsmq.close()
    with BlockingQueue("mail", redis_url=url) as queue:
        queue.add("welcome", {"to": "ada"})
        queue.add("reminder", {"to": "ada"}, delay_ms=60_000)


def filled(data_dir: Path) -> Path:
    """Make *data_dir* the data of a server that was filled and stopped."""
    with Embedded(data_dir, port=0) as server:
        fill(server.url)
    return data_dir


def backed_up(data_dir: Path, target: Path, *, verify: bool = True) -> BackupResult:
    """Back up *data_dir* to *target*."""
    with embedded_source(data_dir) as source:
        return write_backup(source, target, version="1.2.3", verify=verify)


def bodies(data_dir: Path) -> list[bytes]:
    """What the queue has after the server has loaded *data_dir*."""
    with opened(data_dir) as client:
        ids = message_ids(client)
        return [body for body in client.hmget("rsmq:orders:Q", ids) if isinstance(body, bytes)]


def message_ids(client: redis.Redis) -> list[str]:
    """The ids in the queue."""
    return [id.decode() for id in client.zrange("rsmq:orders", 0, -1) if isinstance(id, bytes)]


def names_in(folder: Path) -> list[str]:
    """The names of the files in *folder*."""
    return sorted(path.name for path in folder.iterdir())
