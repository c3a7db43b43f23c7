"""A primary that another server replaces, with as much of its data as a test wants."""

from __future__ import annotations

from contextlib import ExitStack
from types import TracebackType
from typing import Self

import redis

from tests.servers import binaries
from tests.servers.fake_sentinel import FakeSentinel, url_of
from tests.servers.run import Server


class ReplacedServer:
    """Two servers and a sentinel, which names the first until `replace`."""

    def __init__(self) -> None:
        self.first, self.second = Server(binaries.valkey()), Server(binaries.valkey())
        self.sentinel = FakeSentinel(self.first)
        self._open = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as made:
            for each in (self.first, self.second, self.sentinel):
                made.enter_context(each)
            self._open = made.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._open.close()

    @property
    def url(self) -> str:
        """The URL of the primary, whichever it is."""
        return url_of(self.sentinel)

    def copy(self) -> None:
        """Give the second server what the first has now: all later writes get lost."""
        with self.client(self.first) as first, self.client(self.second) as second:
            for key in first.scan_iter():
                second.restore(key, 0, first.dump(key), replace=True)

    def replace(self) -> None:
        """Name the second server as the primary. The first goes on taking writes."""
        self.sentinel.primary = self.second

    def is_left(self) -> bool:
        """Whether no client of ours is connected to the first any more."""
        with self.client(self.first) as db:
            return all(each["name"] != "tambomq" for each in db.client_list())

    def client(self, server: Server) -> redis.Redis:
        """Return an independent client of one server."""
        return redis.Redis.from_url(server.url, protocol=2)
