"""A replay sends recorded messages once, in order and at their pace, and keeps their old ids."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import redis

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.errors import QueueError, SettingsError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire as gomq_wire
from tambomq.pipeline.address import address
from tambomq.pipeline.transfer import pace
from tambomq.pipeline.transfer.endpoints import QueueEndpoint
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of
from tambomq.pipeline.transfer.replay import RecordedMessage, replay
from tambomq.store.sync import Store
from tests.pipeline.dying import dies_after
from tests.servers import Server


def record(n: int, protocol: str = "rsmq", **others: Any) -> RecordedMessage:
    body = encode_payload({"n": n}) if protocol == "chasqui" else b"body %d" % n
    fields: dict[str, Any] = {
        "protocol": protocol,
        "queue": "orders",
        "source": "journal",
        "entry_id": f"{1000 + n}-0",
        "id": f"old-{n}",
        "name": "mail" if protocol == "chasqui" else "",
        "at_ms": 1000 + n,
        "delay_ms": 0,
        "body": body,
    }
    return RecordedMessage(**{**fields, **others})


class Clock:
    """A clock that advances only during sleeps."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return sum(self.slept)

    def sleep(self, seconds: float) -> None:
        self.slept.append(round(seconds, 3))


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


def end(store: Store, server: Server, target: str) -> QueueEndpoint:
    return endpoint_of(store, QueueLocation(address(target), server.url))


def test_jobs_are_replayed_with_their_data_and_new_ids_that_contain_the_old(
    store: Store, server: Server, db: redis.Redis
) -> None:
    done = replay([record(n, "chasqui") for n in range(700)], end(store, server, "chasqui:b"), "r")
    assert (done.sent, done.before, done.origins) == (700, 0, "")
    found: Any = db.xrange(ChasquiKeys("b").stream)
    jobs = [decode_envelope(fields[b"d"]) for _, fields in found]
    assert [decode_payload(job.payload) for job in jobs] == [{"n": n} for n in range(700)]
    assert [job.id for job in jobs[:2]] == ["old-0~r.1", "old-1~r.2"]
    assert {fields[b"n"] for _, fields in found} == {b"mail"}


def test_messages_are_replayed_in_order_and_their_old_ids_are_kept(
    store: Store, server: Server, db: redis.Redis
) -> None:
    done = replay([record(n) for n in range(700)], end(store, server, "rsmq:b"), "r")
    ids: Any = db.zrange("rsmq:b", 0, -1)
    bodies: Any = db.hmget("rsmq:b:Q", ids)
    old: Any = db.hmget(done.origins, ids)
    assert bodies == [b"body %d" % n for n in range(700)]
    assert old == [b"old-%d" % n for n in range(700)]


def test_a_republished_message_has_a_new_id_that_maps_to_the_old_one(
    store: Store, server: Server, db: redis.Redis
) -> None:
    rows = [record(0, "chasqui"), record(1, id="")]
    done = replay(rows, end(store, server, "gomq:b"), "r")
    elements: Any = db.lrange(gomq_keys.queue("b"), 0, -1)
    found = [gomq_wire.decode(each) for each in elements]
    assert [each.payload for each in found] == [b'{"n":0}', b"body 1"]
    old: Any = db.hmget(done.origins, [each.id for each in found])
    assert old == [b"old-0", b"rsmq:journal:orders:1001-0"]


@pytest.mark.parametrize("target", ["rsmq:b", "chasqui:b", "gomq:b"])
def test_killed_anywhere_and_run_again_each_is_sent_once(
    store: Store, server: Server, db: redis.Redis, target: str
) -> None:
    rows = [record(n) for n in range(1200)]
    sizes: dict[str, Callable[[], Any]] = {
        "rsmq": lambda: db.zcard("rsmq:b"),
        "chasqui": lambda: db.xlen(ChasquiKeys("b").stream),
        "gomq": lambda: db.llen(gomq_keys.queue("b")),
    }
    size = sizes[target.partition(":")[0]]
    for round_trips in range(1, 40):
        db.flushall()
        killed = dies_after(round_trips, lambda: replay(rows, end(store, server, target), "r"))
        replay(rows, end(store, server, target), "r")
        assert size() == 1200, round_trips
        if not killed:
            assert round_trips > 3
            return
    pytest.fail("it takes more trips than are tried")


def test_other_rows_under_the_same_id_are_refused(store: Store, server: Server) -> None:
    target = end(store, server, "gomq:b")
    replay([record(n) for n in range(10)], target, "r")
    with pytest.raises(QueueError, match="10 other rows"):
        replay([record(n) for n in range(5, 30)], target, "r")
    with pytest.raises(QueueError, match="10 other rows"):
        replay([record(n) for n in range(9)], target, "r")
    # More of the same is fine: the rest is sent.
    assert replay([record(n) for n in range(12)], target, "r").sent == 2


def test_rows_keep_their_distance_in_time(
    store: Store, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, sent = Clock(), list[int]()
    monkeypatch.setattr("tambomq.pipeline.transfer.replay.time", clock)
    rows = [record(n, at_ms=at) for n, at in enumerate((0, 10, 20, 2000, 2010, 10_000))]
    replay(rows, end(store, server, "gomq:b"), "r", speed=2.0, tick=sent.append)
    assert clock.slept == [1.0, 4.0]
    assert sent == [3, 5, 6]


def test_delays_shrink_with_the_speed(store: Store, server: Server, db: redis.Redis) -> None:
    rows = [record(0, delay_ms=600_000)]
    replay(rows, end(store, server, "chasqui:b"), "r", speed=2.0)
    scores: Any = db.zrange(ChasquiKeys("b").delayed, 0, -1, withscores=True)
    wait_s = scores[0][1] / 1000 - time.time()
    assert 200 < wait_s < 301
    replay(rows, end(store, server, "chasqui:c"), "r")
    assert db.xlen(ChasquiKeys("c").stream) == 1


@pytest.mark.parametrize("id", ["", "a b", "x" * 161])
def test_an_id_that_cannot_be_is_refused(store: Store, server: Server, id: str) -> None:
    with pytest.raises(SettingsError, match="--id"):
        replay([], end(store, server, "gomq:b"), id)


# ── how fast, how many, for how long ─────────────────────────────────────────


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (pace.rate, "200/s", 200.0),
        (pace.rate, "60/min", 1.0),
        (pace.rate, "5", 5.0),
        (pace.rate, "60/m", 1.0),
        (pace.share, "1%", 0.01),
        (pace.speed, "2x", 2.0),
        (pace.speed, "max", None),
    ],
)
def test_rates_shares_and_speeds_are_parsed(read: Any, text: str, value: object) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        *((pace.rate, text) for text in ("", "0/s", "-1/s", "5/day", "x")),
        *((pace.share, text) for text in ("1", "0%", "101%", "%")),
        *((pace.speed, text) for text in ("2", "0x", "fast", "-1x")),
    ],
)
def test_an_invalid_rate_share_or_speed_is_reported(read: Any, text: str) -> None:
    with pytest.raises(SettingsError, match="is written like"):
        read(text)


@pytest.mark.parametrize(("total", "share", "some"), [(1000, 0.01, 10), (5, 0.01, 1), (0, 1, 0)])
def test_a_share_of_a_small_number_is_at_least_one(total: int, share: float, some: int) -> None:
    assert pace.part_of(total, share) == some
