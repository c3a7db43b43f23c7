"""Foreign clients as fixtures, for the test modules that take them.

RSMQ: ``drivers, peers = fixtures.both``. ChasquiMQ: ``chasquis, scene, pair = fixtures.chasqui``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Self, TypeAlias

import pytest

from tambomq.chasqui.keys import Keys
from tambomq.ids import letters
from tests.peers.chasqui import Chasquis, Pair, Scene
from tests.peers.driver import PEERS, Driver, in_node, in_python
from tests.peers.rsmq import Command, Driven
from tests.peers.rsmq_ours import Ours, OursAsync
from tests.servers import Server

Quick: TypeAlias = Ours | OursAsync | Driven

OURS = ("ours", "ours-async")
FOREIGN = ("node", "pyrsmq")
QUICK = (*OURS, *FOREIGN)
"""The clients that take a millisecond or so for an operation; a command takes hundreds."""

WAYS = (("ours", "theirs"), ("theirs", "ours"))
"""The engines that produce and consume, in ChasquiMQ."""

COMMANDS = ("rsmqctl", "ours-rsmqctl")


class Drivers:
    """Foreign clients, each started when first asked for."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._started: dict[str, Driver] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def get(self, name: str) -> Driver:
        """The driver of client *name*; skips the test where it is not installed."""
        if name not in self._started:
            command = (
                in_node("npm_rsmq")
                if name == "node"
                else in_python("pyrsmq", str(PEERS / "pyrsmq" / "driver.py"))
            )
            self._started[name] = self._stack.enter_context(Driver(*command))
        return self._started[name]


class Peers:
    """Clients of one server, each connected when first asked for."""

    def __init__(self, server: Server, drivers: Drivers) -> None:
        self.server, self._drivers = server, drivers
        self._stack = ExitStack()
        self._known: dict[tuple[str, str, bool], Quick] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def get(self, name: str, *, ns: str = "rsmq", realtime: bool = False) -> Quick:
        """The client of that name. A driver has one at a time, the last one asked for."""
        key = (name, ns, realtime)
        if key not in self._known:
            self._known[key] = self._connect(name, ns=ns, realtime=realtime)
            self._stack.callback(self._known[key].close)
        return self._known[key]

    def ours(self, *, ns: str = "rsmq", realtime: bool = False) -> Ours:
        """Our client for threads."""
        peer = self.get("ours", ns=ns, realtime=realtime)
        assert isinstance(peer, Ours)
        return peer

    def foreign(self, name: str, *, ns: str = "rsmq", realtime: bool = False) -> Driven:
        """A foreign client."""
        peer = self.get(name, ns=ns, realtime=realtime)
        assert isinstance(peer, Driven)
        return peer

    def command(self, name: str) -> Command:
        """A client that is a command; it supports the default namespace only."""
        if name == "ours-rsmqctl":
            code = "from tambomq.cli.rsmq.rsmqctl import main; main()"
            return Command([sys.executable, "-c", code], self.server.url)
        command = in_python("rsmqctl", "-m", "rsmqctl.rsmqctl")
        return Command(command, self.server.url)

    def _connect(self, name: str, *, ns: str, realtime: bool) -> Quick:
        if name == "ours":
            return Ours(self.server.url, ns=ns, realtime=realtime)
        if name == "ours-async":
            return OursAsync(self.server.url, ns=ns, realtime=realtime)
        return Driven(self._drivers.get(name), self.server.port, ns=ns, realtime=realtime)


@pytest.fixture(scope="module")
def drivers() -> Iterator[Drivers]:
    """Foreign clients for the tests of one module."""
    with Drivers() as started:
        yield started


@pytest.fixture
def peers(drivers: Drivers, each_server: Server) -> Iterator[Peers]:
    """Clients of each kind of server in turn."""
    with Peers(each_server, drivers) as connected:
        yield connected


both = drivers, peers


@pytest.fixture(scope="module")
def chasquis() -> Iterator[Chasquis]:
    """ChasquiMQ clients and workers for the tests of one module."""
    with Chasquis() as started:
        yield started


@pytest.fixture
def scene(chasquis: Chasquis, running: Callable[[str], Server]) -> Iterator[Scene]:
    """A ChasquiMQ queue that no other test has, on a server that the engine can use."""
    with Scene(running("redis8").url, Keys(f"q-{letters(8)}"), chasquis) as opened:
        yield opened


@pytest.fixture(params=WAYS, ids="-to-".join)
def pair(request: pytest.FixtureRequest, scene: Scene) -> Pair:
    """One of us and one of them, both ways."""
    producer, consumer = request.param
    return Pair(scene.get(producer), scene.get(consumer))


chasqui = chasquis, scene, pair
