"""Limits that all clients of a server share: memory, and the time of a frame."""

from __future__ import annotations

import logging
import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from tambomq.errors import InvalidValue
from tambomq.kqueue import KqueueServer, Limits
from tambomq.kqueue.broker import BrokerState
from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message, subscribe, u32
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw, Served
from tests.servers import eventually

KIB, MIB = 1 << 10, 1 << 20


def test_a_budget_below_the_longest_message_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least the longest message, 2000 bytes"):
        KqueueServer(limits=Limits(message_bytes=2_000), max_memory_bytes=1_999)


@contextmanager
def honest(port: int) -> Iterator[tuple[Raw, Raw]]:
    with Raw(port).send_bytes(b"produce") as producer, Raw(port).send_bytes(b"consume") as consumer:
        yield producer, consumer.send_bytes(subscribe(b"honest"))


def is_served(served: Served | ServerProcess, pair: tuple[Raw, Raw], count: int = 20) -> None:
    producer, consumer = pair
    served.comes_to(lambda stats: stats.subscriptions >= 1)
    producer.send(*[(b"honest", b"%d" % number) for number in range(count)])
    assert consumer.messages(count) == [(b"honest", b"%d" % number) for number in range(count)]


def test_partial_frames_of_all_clients_together_are_bounded(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=4 * MIB)
    partial = b"produce" + message(b"a", b"x" * MIB)[: -64 * KIB]
    with ExitStack() as clients, honest(served.port) as pair:
        slow = clients.enter_context(served.connect(b"produce", message(b"honest", b"late")[:-1]))
        served.comes_to(lambda stats: stats.producers == 2)
        hostile = [clients.enter_context(served.producer()) for _ in range(12)]
        served.comes_to(lambda stats: stats.producers == 14)
        for client in hostile:
            with suppress(OSError):
                client.send_bytes(partial.removeprefix(b"produce"))
        # Four of them exceed the limit.
        served.comes_to(lambda stats: stats.producers <= 2 + 4 and stats.over_budget >= 8)
        assert served.call(lambda: served.server._broker.partial_frames.total) <= 4 * MIB
        is_served(served, pair)
        slow.send_bytes(b"e")
        assert pair[1].message() == (b"honest", b"late")
        assert served.stats.protocol_errors == 0


def test_a_frame_that_is_not_complete_in_time_closes_its_connection(serve: Serve) -> None:
    served = serve(frame_s=0.3)
    announced = [b"produce*", b"produce*" + u32(1) + b"a" + u32(9), b"consume>" + u32(9) + b"a"]
    with ExitStack() as clients, honest(served.port) as pair:
        idle = [clients.enter_context(served.connect(b"produce"))]
        dripping = [clients.enter_context(served.connect(each)) for each in announced]
        for client in dripping:
            assert client.is_closed()
        served.comes_to(lambda stats: stats.frame_timeouts == 3)
        is_served(served, pair)
        # A client without a partial frame may be idle for any time.
        idle[0].send((b"honest", b"still there"))
        assert pair[1].message() == (b"honest", b"still there")


def test_single_bytes_do_not_extend_the_time_of_a_frame(serve: Serve) -> None:
    served = serve(frame_s=0.5)
    with served.connect(b"produce*" + u32(1) + b"a" + u32(MIB)) as client:
        with suppress(OSError):
            while not served.stats.frame_timeouts:
                client.send_bytes(b"x")
        assert client.is_closed()
        assert served.stats.frame_timeouts == 1


def test_a_producer_that_the_server_has_paused_does_not_time_out(serve: Serve) -> None:
    served = serve(frame_s=600.0, slow="block", max_buffer_bytes=KIB)
    body, broker = b"x" * MIB, served.server._broker
    with served.consumer(b"a") as consumer, served.producer() as producer:
        # More than the socket buffers hold: the last message is incomplete.
        sending = threading.Thread(target=_say, args=(producer, message(b"a", body) * 64))
        sending.start()
        with served.connect(b"produce*") as too_slow:
            eventually(lambda: served.call(lambda: _ten_minutes_later(broker)))
            assert too_slow.is_closed()
        assert served.stats.frame_timeouts == 1
        assert consumer.messages(64) == [(b"a", body)] * 64
        sending.join()


def _say(client: Raw, data: bytes) -> None:
    with suppress(OSError):
        client.send_bytes(data)


def _ten_minutes_later(broker: BrokerState) -> bool:
    """Simulate that ten minutes passed, once two frames are incomplete and one peer is paused."""
    waiting = broker.partial_frames.started_by(1e12)
    if sorted(peer.is_paused() for peer in waiting) != [False, True]:
        return False
    for peer in waiting:
        broker.partial_frames.restart(peer, -1e12)
    broker._disconnect_stalled()
    return True


def test_subscriptions_of_all_consumers_together_are_bounded(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=8 * MIB)
    with ExitStack() as clients, honest(served.port) as pair:
        is_served(served, pair)
        for number in range(4):
            flood = [subscribe(b"%d-%d" % (number, each)) for each in range(6_000)]
            clients.enter_context(served.connect(b"consume", *flood))
        served.comes_to(lambda stats: stats.over_budget >= 2 and stats.subscriptions <= 12_001)
        is_served(served, pair)


def test_write_buffers_of_all_consumers_together_are_bounded(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=16 * MIB)
    body = b"x" * MIB
    with ExitStack() as clients, honest(served.port) as pair:
        is_served(served, pair)
        assert served.server._server is not None
        for listening in served.server._server.sockets:
            # Accepted sockets inherit it: socket buffers hold little.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        deaf = [clients.enter_context(served.consumer(b"%d" % each)) for each in range(12)]
        producer = clients.enter_context(served.producer())
        for _ in range(5):
            producer.send(*[(b"%d" % each, body) for each in range(len(deaf))])
        served.comes_to(lambda stats: stats.received >= 5 * 12)
        stats = served.stats
        # The limit of a single client is 8 MiB.
        assert (stats.over_budget >= 1, stats.disconnected) == (True, 0)
        is_served(served, pair)


@pytest.mark.parametrize("policy", ["disconnect", "block"])
def test_one_message_for_many_consumers_is_counted_once(policy: str) -> None:
    options = {"limits": Limits(message_bytes=MIB), "max_memory_bytes": 16 * MIB, "slow": policy}
    with Served("uvloop", **options) as served, ExitStack() as clients:
        slow = [clients.enter_context(served.consumer(b"a")) for _ in range(12)]
        producer = clients.enter_context(served.producer())
        sent = 6
        producer.send(*[(b"a", b"x" * MIB)] * sent)
        served.comes_to(lambda stats: stats.received == sent)
        assert served.stats.over_budget == 0
        for client in slow:
            assert len(client.messages(sent)) == sent


@pytest.fixture
def many_files() -> Iterator[None]:
    """Raise the limit of open files of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
@pytest.mark.usefixtures("many_files")
def test_ten_thousand_hostile_connections_take_less_than_512_mb(loop: str) -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 11_000:
        pytest.skip("this system allows a process fewer than 11,000 files")
    count = 10_000
    size = 64 * KIB
    frame = message(b"a", b"x" * 16 * MIB)
    with ServerProcess(loop, max_connections=count + 100) as server, honest(server.port) as pair:
        is_served(server, pair)
        with ExitStack() as clients:
            hostile = [
                clients.enter_context(Raw(server.port)).send_bytes(b"produce") for _ in range(count)
            ]
            for at in range(0, 2 * size, size):
                for number, client in enumerate(hostile):
                    with suppress(OSError):
                        client.send_bytes(frame[at : at + size])
                    if number % 500 == 0:
                        is_served(server, pair)
            stats = server.comes_to(lambda stats: stats.over_budget > count // 2)
            assert (stats.disconnected, stats.protocol_errors) == (0, 0)
            assert server.memory.peak < 512 * MIB
            is_served(server, pair)
        server.comes_to(lambda stats: stats.connections == 2)


def test_a_flood_of_bad_clients_is_logged_once_a_second(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "tambomq.kqueue")
    for _ in range(50):
        with served.connect(b"garbage") as client:
            assert client.is_closed()
    assert served.stats.protocol_errors == 50
    assert 1 <= len(caplog.records) < 25
    assert "unknown role" in caplog.text
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_idle_connections_have_no_read_buffer(served: Served) -> None:
    clients = [served.producer() for _ in range(20)]
    try:
        for client in clients:
            client.send((b"a", b"x" * 100_000))
        served.comes_to(lambda stats: stats.received == 20)
        assert all(peer._connection._partial is None for peer in served.peers)
    finally:
        for client in clients:
            client.close()
