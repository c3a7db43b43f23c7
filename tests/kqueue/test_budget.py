"""All clients together hold no more memory than they may, and no frame takes for ever."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidValue
from tambomq.kqueue import KqueueServer, Limits, budget
from tambomq.kqueue.budget import Unfinished
from tambomq.kqueue.connection import Connection
from tambomq.kqueue.room import Room
from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message, subscribe, u32
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw, Served
from tests.servers import eventually

KIB, MIB = 1 << 10, 1 << 20


# ── whom it hits ─────────────────────────────────────────────────────────────


def held(*frames: tuple[str, int, float]) -> Unfinished[str]:
    unfinished: Unfinished[str] = Unfinished()
    for client, size, began in frames:
        unfinished.update(client, size, began, is_new=True)
    return unfinished


def test_a_frame_that_grows_keeps_the_time_of_its_first_byte() -> None:
    unfinished = held(("a", 10, 1.0), ("b", 10, 2.0))
    unfinished.update("a", 500, 9.0, is_new=False)
    assert (unfinished.total, unfinished.oldest) == (510, 1.0)
    assert unfinished.began_by(1.5) == ["a"]


def test_the_next_frame_of_a_client_has_its_own_time() -> None:
    unfinished = held(("a", 10, 1.0), ("b", 10, 2.0))
    unfinished.update("a", 10, 9.0, is_new=True)
    assert unfinished.began_by(8.0) == ["b"]


def test_a_frame_that_is_complete_counts_no_more() -> None:
    unfinished = held(("a", 10, 1.0), ("b", 20, 2.0))
    unfinished.update("a", 0, 3.0, is_new=False)
    unfinished.forget("b")
    unfinished.forget("never seen")
    assert (unfinished.total, unfinished.oldest, unfinished.began_by(99.0)) == (0, None, [])


def test_a_frame_that_the_server_did_not_read_has_its_time_again() -> None:
    unfinished = held(("a", 10, 1.0), ("b", 20, 2.0))
    unfinished.restart("a", 5.0)
    unfinished.restart("never seen", 5.0)
    assert (unfinished.total, unfinished.began_by(4.0)) == (30, ["b"])


def test_the_oldest_large_frame_goes_first_and_the_small_ones_last() -> None:
    unfinished = held(("small", 10, 1.0), ("old", 900, 2.0), ("young", 1000, 3.0))
    assert [client for client, _ in unfinished.victims()] == ["old", "young", "small"]


def test_nobody_is_chosen_while_the_limit_is_kept() -> None:
    assert budget.choose([60, 40], [iter(()), iter(())], 100) == []


def test_those_are_chosen_who_hold_most_of_what_most_is_held_of() -> None:
    names = iter([("reader", 300)])
    frames = iter([("sender", 400), ("other", 100)])
    assert budget.choose([500, 300], [frames, names], 700) == ["sender"]


def test_a_message_that_waits_for_many_counts_once() -> None:
    waiting = {"a": 100, "b": 90, "c": 50}
    groups = {"a": "orders", "b": "orders", "c": "mail"}
    assert budget.shared_total(waiting, groups) == 150
    assert list(budget.largest_of_shared(waiting, groups)) == [("a", 10), ("b", 90), ("c", 50)]


@given(st.dictionaries(st.integers(), st.integers(1, 99)), st.integers(1, 500))
def test_what_is_left_fits_whoever_is_chosen(sizes: dict[int, int], limit: int) -> None:
    waiting = iter(list(budget.largest(sizes)))
    chosen = budget.choose([sum(sizes.values())], [waiting], limit)
    assert sum(sizes.values()) - sum(sizes[each] for each in chosen) <= limit


def test_a_connection_tells_what_it_keeps_and_whether_that_is_a_new_frame() -> None:
    frame = message(b"orders", b"a body")
    said = b"produce" + frame + frame
    connection: Connection[str] = Connection({b"orders": "somebody"})
    for at in range(len(said)):
        connection.receive(said[at : at + 1])
        since = (at + 1 - 7) % len(frame) if at >= 7 else (at + 1) % 7
        assert connection.unfinished == since
        if since:
            assert connection.is_new_frame is (since == 1)


def test_a_budget_below_the_longest_message_is_refused() -> None:
    with pytest.raises(InvalidValue, match="at least the longest message, 2000 bytes"):
        KqueueServer(limits=Limits(message_bytes=2_000), max_memory_bytes=1_999)


# ── a server under attack ────────────────────────────────────────────────────


@contextmanager
def honest(port: int) -> Iterator[tuple[Raw, Raw]]:
    with Raw(port).say(b"produce") as producer, Raw(port).say(b"consume") as consumer:
        yield producer, consumer.say(subscribe(b"honest"))


def is_served(served: Served | ServerProcess, pair: tuple[Raw, Raw], count: int = 20) -> None:
    producer, consumer = pair
    served.comes_to(lambda stats: stats.subscriptions >= 1)
    producer.send(*[(b"honest", b"%d" % number) for number in range(count)])
    assert consumer.messages(count) == [(b"honest", b"%d" % number) for number in range(count)]


def test_unfinished_frames_of_all_clients_together_are_bounded(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=4 * MIB)
    begun = b"produce" + message(b"a", b"x" * MIB)[: -64 * KIB]
    with ExitStack() as clients, honest(served.port) as pair:
        slow = clients.enter_context(served.connect(b"produce", message(b"honest", b"late")[:-1]))
        served.comes_to(lambda stats: stats.producers == 2)
        hostile = [clients.enter_context(served.producer()) for _ in range(12)]
        served.comes_to(lambda stats: stats.producers == 14)
        for client in hostile:
            with suppress(OSError):
                client.say(begun.removeprefix(b"produce"))
        # Four at once would be more than fits.
        served.comes_to(lambda stats: stats.producers <= 2 + 4 and stats.over_budget >= 8)
        assert served.call(lambda: served.server._room.unfinished.total) <= 4 * MIB
        is_served(served, pair)
        slow.say(b"e")
        assert pair[1].message() == (b"honest", b"late")
        assert served.stats.protocol_errors == 0


def test_a_frame_that_is_not_complete_in_time_ends_its_connection(serve: Serve) -> None:
    served = serve(frame_s=0.3)
    announced = [b"produce*", b"produce*" + u32(1) + b"a" + u32(9), b"consume>" + u32(9) + b"a"]
    with ExitStack() as clients, honest(served.port) as pair:
        idle = [clients.enter_context(served.connect(b"produce"))]
        dripping = [clients.enter_context(served.connect(each)) for each in announced]
        for client in dripping:
            assert client.is_hung_up()
        served.comes_to(lambda stats: stats.frame_timeouts == 3)
        is_served(served, pair)
        # Who has begun no frame may be silent for as long as it likes.
        idle[0].send((b"honest", b"still there"))
        assert pair[1].message() == (b"honest", b"still there")


def test_bytes_that_drip_do_not_prolong_the_time_of_a_frame(serve: Serve) -> None:
    served = serve(frame_s=0.5)
    with served.connect(b"produce*" + u32(1) + b"a" + u32(MIB)) as client:
        with suppress(OSError):
            while not served.stats.frame_timeouts:
                client.say(b"x")
        assert client.is_hung_up()
        assert served.stats.frame_timeouts == 1


def test_a_producer_that_the_server_keeps_waiting_is_not_too_late(serve: Serve) -> None:
    served = serve(frame_s=600.0, slow="block", max_buffer_bytes=KIB)
    body, room = b"x" * MIB, served.server._room
    with served.consumer(b"a") as consumer, served.producer() as producer:
        # More than the network keeps for the two of them: the last one is not complete.
        sending = threading.Thread(target=_say, args=(producer, message(b"a", body) * 64))
        sending.start()
        with served.connect(b"produce*") as too_slow:
            eventually(lambda: served.call(lambda: _ten_minutes_later(room)))
            assert too_slow.is_hung_up()
        assert served.stats.frame_timeouts == 1
        assert consumer.messages(64) == [(b"a", body)] * 64
        sending.join()


def _say(client: Raw, data: bytes) -> None:
    with suppress(OSError):
        client.say(data)


def _ten_minutes_later(room: Room) -> bool:
    """Let much time have passed, once two frames are unfinished and one is not being read."""
    waiting = room.unfinished.began_by(1e12)
    if sorted(peer.is_paused() for peer in waiting) != [False, True]:
        return False
    for peer in waiting:
        room.unfinished.restart(peer, -1e12)
    room._limit_time()
    return True


def test_names_of_subscriptions_are_bounded_for_all_consumers_together(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=8 * MIB)
    with ExitStack() as clients, honest(served.port) as pair:
        is_served(served, pair)
        for number in range(4):
            flood = [subscribe(b"%d-%d" % (number, each)) for each in range(6_000)]
            clients.enter_context(served.connect(b"consume", *flood))
        served.comes_to(lambda stats: stats.over_budget >= 2 and stats.subscriptions <= 12_001)
        is_served(served, pair)


def test_what_waits_for_all_consumers_together_is_bounded(serve: Serve) -> None:
    served = serve(limits=Limits(message_bytes=MIB), max_memory_bytes=16 * MIB)
    body = b"x" * MIB
    with ExitStack() as clients, honest(served.port) as pair:
        is_served(served, pair)
        assert served.server._server is not None
        for listening in served.server._server.sockets:
            # Those it accepts inherit it: little waits in the network.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * KIB)
        deaf = [clients.enter_context(served.consumer(b"%d" % each)) for each in range(12)]
        producer = clients.enter_context(served.producer())
        for _ in range(5):
            producer.send(*[(b"%d" % each, body) for each in range(len(deaf))])
        served.comes_to(lambda stats: stats.received >= 5 * 12)
        stats = served.stats
        # Each alone may have 8 MiB.
        assert (stats.over_budget >= 1, stats.disconnected) == (True, 0)
        is_served(served, pair)


@pytest.mark.parametrize("policy", ["disconnect", "block"])
def test_one_message_for_many_is_held_once(policy: str) -> None:
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
    """As many sockets in this process as the system allows."""
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
                clients.enter_context(Raw(server.port)).say(b"produce") for _ in range(count)
            ]
            for at in range(0, 2 * size, size):
                for number, client in enumerate(hostile):
                    with suppress(OSError):
                        client.say(frame[at : at + size])
                    if number % 500 == 0:
                        is_served(server, pair)
            stats = server.comes_to(lambda stats: stats.over_budget > count // 2)
            assert (stats.disconnected, stats.protocol_errors) == (0, 0)
            assert server.memory.peak < 512 * MIB
            is_served(server, pair)
        server.comes_to(lambda stats: stats.connections == 2)
