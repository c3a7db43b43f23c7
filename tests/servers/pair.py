"""A primary with a replica that can be frozen, for tests of what replicas confirm."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import redis

from tests.servers import binaries
from tests.servers.poll import eventually
from tests.servers.run import Server


class Pair:
    """A primary, and a replica that can be frozen."""

    def __init__(self, primary: Server, replica: Server) -> None:
        self.primary, self.replica = primary, replica

    @contextmanager
    def frozen_replica(self) -> Iterator[None]:
        """Let the replica acknowledge nothing until the block ends."""
        os.kill(self.replica.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(self.replica.pid, signal.SIGCONT)

    def ask(self, *words: str | int) -> object:
        """Send a command to the primary."""
        with redis.Redis.from_url(self.primary.url) as client:
            return client.execute_command(*words)

    def follows(self) -> bool:
        """Whether the replica has all data."""
        with redis.Redis.from_url(self.primary.url) as client:
            return bool(client.wait(1, 100))


@contextmanager
def running_pair() -> Iterator[Pair]:
    """A primary that syncs its file with each write, and its replica."""
    sooner = ("--repl-diskless-sync-delay", "0")
    synced = ("--appendonly", "yes", "--appendfsync", "always", *sooner)
    with Server(binaries.valkey(), *synced) as primary, Server(binaries.valkey(), *sooner) as other:
        with redis.Redis.from_url(other.url) as client:
            client.replicaof("127.0.0.1", primary.port)
        pair = Pair(primary, other)
        eventually(pair.follows, within_s=30)
        yield pair
