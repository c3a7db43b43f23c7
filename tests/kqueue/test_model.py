from __future__ import annotations

from typing import Any

from tambomq.kqueue.frames import LIMITS, encode_message, scan
from tambomq.kqueue.model import FRAMES, MAX_NAME_BYTES, MAX_NAMES, TrafficCounters
from tests.kqueue.serving import Served


class AnyRoute(dict[bytes, Any]):
    """Every queue has two consumers of its own."""

    def __missing__(self, name: bytes) -> frozenset[Any]:
        self[name] = found = frozenset((name, name + b"2"))
        return found


def count(counters: TrafficCounters, *names: bytes) -> None:
    data = b"".join(encode_message(name, b"body") for name in names)
    runs, _ = scan(data, 0, AnyRoute(), LIMITS)
    counters.count(data, runs)


def counts(counters: TrafficCounters) -> dict[str, tuple[int, int]]:
    return {each.name: (each.received, each.delivered) for each in counters.list_queues({}, 0)}


def test_messages_of_small_reads_are_counted_one_by_one() -> None:
    counters = TrafficCounters()
    count(counters, b"a", b"b", b"a", b"a")
    assert counts(counters) == {"a": (3, 6), "b": (1, 2)}


def test_a_large_read_is_counted_by_some_of_its_frames() -> None:
    counters = TrafficCounters()
    count(counters, *[b"a"] * 1000)
    count(counters, *[b"b", b"c"] * 5 * FRAMES)
    found = counts(counters)
    assert found["a"] == (1000, 2000)
    assert sum(received for received, _ in found.values()) == 1000 + 10 * FRAMES


def test_there_is_a_limit_to_the_names_and_their_length() -> None:
    counters = TrafficCounters()
    count(counters, b"x" * (MAX_NAME_BYTES + 1))
    for number in range(MAX_NAMES + 10):
        count(counters, b"%d" % number)
    assert len(counts(counters)) == MAX_NAMES


def test_idle_queues_make_way_for_new_ones() -> None:
    counters = TrafficCounters()
    count(counters, b"idle", b"busy")
    counters.forget_idle()
    count(counters, b"busy")
    counters.forget_idle()
    assert counts(counters) == {"busy": (2, 4)}


def test_a_name_that_is_no_text_is_escaped() -> None:
    counters = TrafficCounters()
    count(counters, b"\xff")
    assert list(counts(counters)) == ["\\xff"]


def test_a_server_lists_its_queues_and_connections(served: Served) -> None:
    with (
        served.consumer(b"a") as one,
        served.consumer(b"") as everything,
        served.producer() as producer,
    ):
        producer.send((b"a", b"1"), (b"b", b"2"))
        one.messages(1)
        everything.messages(2)
        queues = served.call(served.server.list_queues)
        assert [(q.name, q.received, q.delivered, q.subscribers) for q in queues] == [
            ("a", 1, 2, 2),
            ("b", 1, 1, 1),
        ]
        found = served.call(lambda: served.server.list_connections(10))
        assert sorted((each.role, *each.subscriptions) for each in found) == [
            ("consumer", "*"),
            ("consumer", "a"),
            ("producer",),
        ]
        assert all(each.address.startswith("127.0.0.1:") for each in found)
        assert len(served.call(lambda: served.server.list_connections(1))) == 1
