"""GOMQ brokers with each transport, and a client that uses only the protocol.

``brokers, transport, broker, serve, dial = fixtures`` in a test module: `broker` has each transport
in turn, is started once for the module, and its Redis is empty. `serve` starts one for this test.
`dial` connects clients: without metadata, each from a port of its own, as existing ones are.
"""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import grpc
import pytest

from tambomq.errors import BrokerUnavailable
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.envoy.server import EnvoyGomqServer
from tambomq.gomq.model import Options
from tambomq.gomq.server.grpc_server import GomqServer
from tambomq.gomq.server.methods import METHODS, SERVICE
from tests.gomq.fakes import Run, loop_in_a_thread
from tests.servers import Server, eventually

KINDS: dict[str, type[GomqServer | EnvoyGomqServer]] = {
    "grpc": GomqServer,
    "envoy": EnvoyGomqServer,
}
WITHIN_S = 60.0
"""For calls that are to succeed, on a machine that has others to serve."""

Serve = Callable[..., "Broker"]
Dial = Callable[..., "Client"]


class Broker:
    """A running server with one transport, and the loop it runs on."""

    def __init__(self, server: GomqServer | EnvoyGomqServer, run: Run) -> None:
        self.server, self.run = server, run
        self.is_shared = False

    @property
    def port(self) -> int:
        """The port on 127.0.0.1."""
        return self.server.address[1]

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self.port}"

    def watchers(self) -> int:
        """How many calls to Watch are under way; -1 if the server is too busy to answer."""
        try:
            self.run(self.server.check())
        except BrokerUnavailable:
            return -1
        return self.server.stats.watchers


class Brokers:
    """Starts brokers on one loop, in a thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._stack = ExitStack()
        self._shared: dict[tuple[str, str], Broker] = {}

    @contextmanager
    def open(self, transport: str, url: str, **options: Any) -> Iterator[Broker]:
        """A broker with that transport; *options* are the server's, and those of `Options`."""
        limits = {name: options.pop(name) for name in Options.__slots__ if name in options}
        server = KINDS[transport](url, port=0, options=Options(**limits), **options)
        self._run(server.start())
        try:
            yield Broker(server, self._run)
        finally:
            self._run(server.stop(0))

    def shared(self, transport: str, url: str) -> Broker:
        """A broker that runs until the end of the module."""
        if (transport, url) not in self._shared:
            self._shared[transport, url] = broker = self._stack.enter_context(
                self.open(transport, url)
            )
            broker.is_shared = True
        return self._shared[transport, url]

    def close(self) -> None:
        """Stop the shared brokers."""
        self._stack.close()


def has(transport: str) -> bool:
    """Whether that transport is installed."""
    return transport != "envoy" or importlib.util.find_spec("pyvoy") is not None


def need(transport: str) -> None:
    """Skip the test unless that transport is installed."""
    if not has(transport):
        pytest.skip("the extra [envoy] is not installed")


class Client:
    """A channel, and calls by their names: what any gRPC client has."""

    def __init__(self, address: str, **options: Any) -> None:
        settings = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]
        credentials = options.pop("credentials", None)
        self.watched = False
        self.channel = (
            grpc.secure_channel(address, credentials, settings, **options)
            if credentials
            else grpc.insecure_channel(address, settings, **options)
        )

    def start(self, name: str, message: Any, *, within_s: float = WITHIN_S, **words: Any) -> Any:
        """The call under way; *words* are its metadata, *message* may be bytes."""
        method = METHODS[f"/{SERVICE}/{name}"]
        make = self.channel.unary_stream if method.streams else self.channel.unary_unary
        write = None if isinstance(message, bytes) else method.request.SerializeToString
        stub: Any = make(f"/{SERVICE}/{name}", write, method.reply.FromString)
        metadata = [(word.replace("_", "-"), text) for word, text in words.items()]
        self.watched = self.watched or method.streams
        begin = stub if method.streams else stub.future
        return begin(message, timeout=within_s, metadata=metadata)

    def status(self, name: str, message: Any, **options: Any) -> grpc.StatusCode:
        """How a call ends."""
        code: grpc.StatusCode = self.start(name, message, **options).code()
        return code

    def publish(self, key: str, *payloads: bytes) -> None:
        """Publish one after the other."""
        for payload in payloads:
            self._done("Publish", pb.PublishRecord(key=key, payload=payload))

    def subscribe(self, key: str, consumer: str, **words: Any) -> None:
        """Become a peer of *consumer*."""
        self._done("Subscribe", pb.Subscription(key=key, consumerID=consumer), **words)

    def unsubscribe(self, key: str, consumer: str, **words: Any) -> None:
        """Take the consumer's peers away from *key*."""
        self._done("Unsubscribe", pb.Subscription(key=key, consumerID=consumer), **words)

    def observe(self, consumer: str, **words: Any) -> list[bytes]:
        """What waits: payloads alone."""
        found = self.start("Observe", pb.Identification(consumerID=consumer), **words).result()
        return payloads(found)

    def observed(self, consumer: str, count: int) -> list[bytes]:
        """The next *count* payloads, in as many calls as it takes."""
        found: list[bytes] = []

        def enough() -> bool:
            found.extend(self.observe(consumer))
            return len(found) >= count

        eventually(enough, within_s=WITHIN_S)
        return found

    def watch(self, consumer: str, **options: Any) -> Any:
        """A stream of record sets."""
        return self.start("Watch", pb.Identification(consumerID=consumer), **options)

    def _done(self, name: str, message: Any, **words: Any) -> None:
        assert self.start(name, message, **words).result() == pb.Result(code=0)


def payloads(records: pb.RecordSet) -> list[bytes]:
    """What the records carry."""
    return [record.value.payload for record in records.records]


def raw_socket(address: str) -> socket.socket:
    """A connection without any bytes sent yet."""
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), timeout=WITHIN_S)


@contextmanager
def by_hand(
    address: str, name: str, message: bytes, *, ends: bool = True
) -> Iterator[socket.socket]:
    """A socket on which a call was written down byte by byte; nothing is read from it.

    One that does not end lacks its last byte.
    """
    headers = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/{name}"}
    headers |= {":authority": address, "content-type": "application/grpc", "te": "trailers"}
    # A literal without a place in the table: two strings, each behind its length.
    block = b"".join(b"\0" + _string(word) + _string(text) for word, text in headers.items())
    body = b"\0" + len(message).to_bytes(4, "big") + message
    data = _frame(0, 1, 1, body) if ends else _frame(0, 0, 1, body[:-1])
    with raw_socket(address) as call:
        call.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, b""))
        call.sendall(_frame(1, 4, 1, block) + data)
        yield call


def _string(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    head = len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big")
    return head + payload


@pytest.fixture(scope="module")
def brokers() -> Iterator[Brokers]:
    """A loop for the servers of one module."""
    with loop_in_a_thread() as run:
        opened = Brokers(run)
        try:
            yield opened
        finally:
            opened.close()


# Both at every change would take a minute; tests/gomq/envoy/test_server.py is for every change.
@pytest.fixture(params=["grpc", pytest.param("envoy", marks=pytest.mark.slow)])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    need(request.param)
    return str(request.param)


@pytest.fixture
def broker(transport: str, brokers: Brokers, server: Server) -> Broker:
    """A broker that tests share, on an empty Redis."""
    return brokers.shared(transport, server.url)


@pytest.fixture
def serve(transport: str, brokers: Brokers, server: Server) -> Iterator[Serve]:
    """A function from options, and optionally a URL, to a broker for this test alone."""
    with ExitStack() as stack:

        def start(url: str = "", **options: Any) -> Broker:
            return stack.enter_context(brokers.open(transport, url or server.url, **options))

        yield start


@pytest.fixture
def dial(serve: Serve) -> Iterator[Dial]:
    """A function from a broker to a client of it. After the test all clients are closed."""
    clients: list[tuple[Client, Broker]] = []

    def connect(broker: Broker, **options: Any) -> Client:
        client = Client(broker.address, **options)
        clients.append((client, broker))
        return client

    yield connect
    for client, _ in clients:
        client.channel.close()
    for broker in {broker for client, broker in clients if client.watched and broker.is_shared}:
        # It may need a moment to notice, and its watcher would be a peer in the next test.
        eventually(lambda broker=broker: broker.watchers() == 0, within_s=WITHIN_S)  # type: ignore[misc]


fixtures = brokers, transport, broker, serve, dial
