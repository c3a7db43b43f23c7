"""A migration moves all messages once and in order, also if it is killed and resumed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.wire.envelope import decode_envelope, decode_member
from tambomq.chasqui.wire.msgpack import decode_payload, encode_payload
from tambomq.errors import QueueError, QueueNotFound, SettingsError
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire as gomq_wire
from tambomq.pipeline.address import Address, address, numbered
from tambomq.pipeline.transfer import migrate as migrating
from tambomq.pipeline.transfer.bodies import from_payload, to_payload
from tambomq.pipeline.transfer.endpoints import QueueCounts
from tambomq.pipeline.transfer.migrate import QueueLocation, endpoint_of, migrate, move_name
from tambomq.rsmq import Rsmq
from tambomq.store.sync import Store
from tests.pipeline.dying import dies_after
from tests.servers import Server

PROTOCOLS = ("rsmq", "chasqui", "gomq")
PAIRS = [*product(PROTOCOLS, PROTOCOLS)]
COUNT = 2300
"""Three batches."""
BODIES = [f"body {n}" for n in range(COUNT)]


class Queues:
    """Two queues of the same name, filled and looked at by clients that know nothing of moves."""

    def __init__(self, url: str, db: redis.Redis) -> None:
        self.url, self.db = url, db

    def fill(self, protocol: str, queue: str, bodies: list[str], later: int = 0) -> None:
        """Send *bodies*, and so many more that are due in ten minutes."""
        delayed = [f"later {n}" for n in range(later)]
        if protocol == "rsmq":
            with Rsmq(self.url) as rsmq:
                rsmq.create_queue(queue)
                rsmq.send_messages(queue, bodies)
                for each in delayed:
                    rsmq.send_message(queue, each, delay=600)
        elif protocol == "chasqui":
            with BlockingQueue(queue, redis_url=self.url) as jobs:
                jobs.add_bulk([{"name": "mail", "data": each} for each in bodies])
                for n, each in enumerate(delayed):
                    jobs.add("mail", each, delay=timedelta(minutes=10), job_id=f"known-{n}")
        else:
            elements = [gomq_wire.encode(f"x{n}", "d", b.encode()) for n, b in enumerate(bodies)]
            self.db.rpush(gomq_keys.queue(queue), *elements)

    def waiting(self, protocol: str, queue: str) -> list[str]:
        """Return the bodies that wait, in their order."""
        if protocol == "rsmq":
            with Rsmq(self.url) as rsmq:
                now = float(str(self.db.time()[0])) * 1000 + 5000
                ids: Any = self.db.zrangebyscore(f"rsmq:{queue}", "-inf", now)
                found: Any = self.db.hmget(f"rsmq:{queue}:Q", ids) if ids else []
                assert rsmq.get_queue_attributes(queue).msgs >= len(ids)
                return [body.decode() for body in found]
        if protocol == "chasqui":
            rows: Any = self.db.xrange(ChasquiKeys(queue).stream)
            return [_data(fields[b"d"]) for _, fields in rows]
        elements: Any = self.db.lrange(gomq_keys.queue(queue), 0, -1)
        return [gomq_wire.decode(each).payload.decode() for each in elements]

    def delayed(self, protocol: str, queue: str) -> dict[str, float]:
        """Return bodies that are due later, and in how many seconds."""
        now = float(str(self.db.time()[0]))
        if protocol == "rsmq":
            rows: Any = self.db.zrangebyscore(
                f"rsmq:{queue}", now * 1000 + 5000, "+inf", withscores=True
            )
            bodies: Any = {id: self.db.hget(f"rsmq:{queue}:Q", id) for id, _ in rows}
            return {bodies[id].decode(): score / 1000 - now for id, score in rows}
        members: Any = self.db.zrange(ChasquiKeys(queue).delayed, 0, -1, withscores=True)
        return {_data(decode_member(each)[1]): score / 1000 - now for each, score in members}


def _data(envelope: bytes) -> str:
    data: str = decode_payload(decode_envelope(envelope).payload)
    return data


@pytest.fixture
def queues(server: Server, db: redis.Redis) -> Queues:
    return Queues(server.url, db)


@pytest.fixture
def go(server: Server) -> Iterator[Callable[..., migrating.MigrationReport]]:
    """Migrate from one address to another."""
    stores: list[Store] = []

    def run(source: str, target: str, **options: Any) -> migrating.MigrationReport:
        store = Store(server.url)
        stores.append(store)
        ends = [QueueLocation(address(each), server.url) for each in (source, target)]
        named = {key: options.pop(key) for key in ("kind", "name") if key in options}
        return migrate(
            endpoint_of(store, ends[0]),
            endpoint_of(store, ends[1], **named),
            move_name(*ends),
            **{"wait_s": 0.0, **options},
        )

    yield run
    for store in stores:
        store.close()


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_bodies_arrive_in_order(
    queues: Queues, go: Callable[..., migrating.MigrationReport], source: str, target: str
) -> None:
    queues.fill(source, "a", BODIES)
    report = go(f"{source}:a", f"{target}:b")
    assert (report.moved, report.departed) == (COUNT, report.arrived)
    assert queues.waiting(target, "b") == BODIES
    assert queues.waiting(source, "a") == []
    left = [key for word in ("*:move:*", "MOVE_*", "TRANSIT_*") for key in queues.db.keys(word)]
    assert left == []


@pytest.mark.parametrize(("source", "target"), [*product(PROTOCOLS[:2], PROTOCOLS[:2])])
def test_delayed_messages_stay_delayed(
    queues: Queues, go: Callable[..., migrating.MigrationReport], source: str, target: str
) -> None:
    queues.fill(source, "a", BODIES[:3], later=5)
    assert go(f"{source}:a", f"{target}:b").moved == 8
    found = queues.delayed(target, "b")
    assert sorted(found) == [f"later {n}" for n in range(5)]
    assert all(500 < wait < 601 for wait in found.values())
    assert queues.delayed(source, "a") == {}


@pytest.mark.parametrize("source", PROTOCOLS[:2])
def test_delayed_messages_do_not_move_to_a_protocol_without_delays(
    queues: Queues, go: Callable[..., migrating.MigrationReport], source: str
) -> None:
    queues.fill(source, "a", BODIES[:3], later=5)
    report = go(f"{source}:a", "gomq:b")
    assert (report.moved, report.left.delayed) == (3, 5)
    assert len(queues.delayed(source, "a")) == 5


def test_a_delayed_job_can_still_be_cancelled_where_it_went(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("chasqui", "a", BODIES[:1], later=2)
    go("chasqui:a", "chasqui:b")
    with BlockingQueue("a", redis_url=queues.url) as old:
        assert not old.cancel_delayed("known-0")
    with BlockingQueue("b", redis_url=queues.url) as new:
        assert new.cancel_delayed("known-0")
    assert list(queues.delayed("chasqui", "b")) == ["later 1"]


def test_jobs_keep_their_names_ids_and_attempts(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("chasqui", "a", BODIES[:3])
    before: Any = queues.db.xrange(ChasquiKeys("a").stream)
    go("chasqui:a", "chasqui:b")
    after: Any = queues.db.xrange(ChasquiKeys("b").stream)
    assert [fields for _, fields in after] == [fields for _, fields in before]


def test_messages_become_jobs_with_the_name_and_values_that_were_asked_for(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("rsmq", "a", ['{"n": 1}', "no json"])
    go("rsmq:a", "chasqui:b", kind="json", name="order")
    rows: Any = queues.db.xrange(ChasquiKeys("b").stream)
    assert [fields[b"n"] for _, fields in rows] == [b"order", b"order"]
    assert queues.waiting("chasqui", "b") == [{"n": 1}, "no json"]


def test_messages_go_to_another_server_and_namespace(
    queues: Queues, server: Server, private_server: Server
) -> None:
    queues.fill("rsmq", "a", BODIES[:5], later=1)
    here, there = Store(server.url), Store(private_server.url)
    ends = (
        QueueLocation(address("rsmq:a"), server.url),
        QueueLocation(address("rsmq:a"), private_server.url, "x"),
    )
    report = migrate(
        endpoint_of(here, ends[0]), endpoint_of(there, ends[1]), move_name(*ends), wait_s=0
    )
    here.close()
    there.close()
    assert (report.moved, report.made) == (6, True)
    with Rsmq(private_server.url, ns="x") as rsmq:
        assert [m.text for m in rsmq.receive_messages("a", 10)] == BODIES[:5]
        assert rsmq.get_queue_attributes("a").msgs == 6


def test_damaged_entries_go_along(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.db.xadd(ChasquiKeys("a").stream, {"d": b"junk", "n": "mail"})
    queues.db.zadd(ChasquiKeys("a").delayed, {b"\x00\x00": 10**13})
    assert go("chasqui:a", "rsmq:b").moved == 2
    assert queues.waiting("rsmq", "b") == ["junk"]


# ── in flight ────────────────────────────────────────────────────────────────


def test_messages_in_flight_stay_and_are_reported(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("rsmq", "a", BODIES[:10])
    with Rsmq(queues.url) as rsmq:
        held = rsmq.receive_messages("a", 4, vt=100)
        report = go("rsmq:a", "rsmq:b")
        assert (report.moved, report.left) == (6, QueueCounts(0, 0, 4))
        rsmq.delete_messages("a", [each.id for each in held])
    assert queues.waiting("rsmq", "b") == BODIES[4:10]


def test_jobs_in_flight_stay_and_are_reported(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("chasqui", "a", BODIES[:10])
    stream = ChasquiKeys("a").stream
    queues.db.xgroup_create(stream, "default", "0")
    queues.db.xreadgroup("default", "me", {stream: ">"}, count=4)
    report = go("chasqui:a", "rsmq:b")
    assert (report.moved, report.left) == (6, QueueCounts(0, 0, 4))
    assert report.made
    assert queues.waiting("rsmq", "b") == BODIES[4:10]
    assert queues.waiting("chasqui", "a") == BODIES[:4]


def test_entries_that_were_given_back_are_moved_too(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("chasqui", "a", BODIES[:4])
    stream = ChasquiKeys("a").stream
    queues.db.xgroup_create(stream, "default", "0")
    queues.db.xreadgroup("default", "tambo-returned", {stream: ">"}, count=2)
    assert go("chasqui:a", "gomq:b").moved == 4
    assert queues.waiting("gomq", "b") == BODIES[:4]


def test_messages_that_become_visible_within_the_wait_are_moved_too(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("rsmq", "a", BODIES[:2])
    with Rsmq(queues.url) as rsmq:
        rsmq.receive_message("a", vt=1)
    report = go("rsmq:a", "gomq:b", wait_s=30.0)
    assert (report.moved, report.left) == (2, QueueCounts())


# ── killed anywhere ──────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_killed_anywhere_and_run_again_nothing_is_lost_or_doubled(
    queues: Queues, go: Callable[..., migrating.MigrationReport], source: str, target: str
) -> None:
    bodies = BODIES[:1100]
    for round_trips in range(1, 60):
        queues.db.flushall()
        later = 3 if "gomq" not in (source, target) else 0
        queues.fill(source, "a", bodies, later)
        killed = dies_after(round_trips, lambda: go(f"{source}:a", f"{target}:b"))
        report = go(f"{source}:a", f"{target}:b")
        assert queues.waiting(target, "b") == bodies, round_trips
        assert report.departed == report.arrived
        if later:
            assert len(queues.delayed(target, "b")) == later, round_trips
        if not killed:
            assert round_trips > 8
            return
    pytest.fail("it takes more trips than are tried")


def test_killed_again_and_again_all_arrives(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("rsmq", "a", BODIES)
    round_trips = 4
    while dies_after(round_trips, lambda: go("rsmq:a", "chasqui:b")):
        round_trips += 1
    assert queues.waiting("chasqui", "b") == BODIES


# ── refusals ─────────────────────────────────────────────────────────────────


def test_messages_that_the_target_refuses_stay_in_transit(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("chasqui", "a", ["x" * 2000, "y"])
    with Rsmq(queues.url) as rsmq:
        rsmq.create_queue("b", maxsize=1024)
        with pytest.raises(QueueError, match=r"2000 bytes exceeds.*2 messages are in transit"):
            go("chasqui:a", "rsmq:b")
        rsmq.set_queue_attributes("b", maxsize=4096)
    go("chasqui:a", "rsmq:b")
    assert queues.waiting("rsmq", "b") == ["x" * 2000, "y"]


def test_a_queue_that_is_not_there_is_not_migrated(
    go: Callable[..., migrating.MigrationReport],
) -> None:
    with pytest.raises(QueueNotFound):
        go("rsmq:a", "chasqui:b")


def test_a_queue_is_not_migrated_to_itself(go: Callable[..., migrating.MigrationReport]) -> None:
    with pytest.raises(SettingsError, match="to itself"):
        go("gomq:a", "gomq:a")


def test_messages_that_are_lost_on_the_way_are_noticed(
    queues: Queues, go: Callable[..., migrating.MigrationReport]
) -> None:
    queues.fill("rsmq", "a", BODIES[:3])

    def lose(_: int) -> None:
        for fence in queues.db.scan_iter("*fence*"):
            queues.db.hincrby(fence, "count", -1)

    with pytest.raises(QueueError, match="3 messages left rsmq:a and 2 arrived"):
        go("rsmq:a", "chasqui:b", tick=lose)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("orders", "expected one of rsmq:<queue>"),
        ("kqueue:orders", "expected one of"),
        ("rsmq:a b", "is not valid"),
        ("gomq:", "must not be empty"),
        ("chasqui:", "not empty"),
    ],
)
def test_an_invalid_address_is_reported(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        address(text)


def test_a_redrive_is_named_after_its_queue() -> None:
    assert numbered("chasqui:a/b/c", ("chasqui",)) == (Address("chasqui", "a/b"), "c")
    with pytest.raises(SettingsError, match="names no redrive"):
        numbered("chasqui:a", ("chasqui",))


# ── bodies ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"", b"text", "é".encode(), b"\xff\x00", b'{"a": 1}', b"12"])
def test_bytes_are_converted_to_a_payload_and_back_unchanged(body: bytes) -> None:
    assert from_payload(to_payload(body)) == body


@pytest.mark.parametrize(
    ("body", "kind", "value"),
    [
        (b'{"a": [1, null]}', "json", {"a": [1, None]}),
        (b"{", "json", "{"),
        (b"\x93\x01\x02\x03", "raw", [1, 2, 3]),
        (b"\xc1", "raw", b"\xc1"),
        (b"12", "text", "12"),
    ],
)
def test_bytes_become_values(body: bytes, kind: str, value: Any) -> None:
    assert decode_payload(to_payload(body, kind)) == value


def test_payloads_become_json_and_other_bytes_stay_unchanged() -> None:
    assert from_payload(encode_payload({"a": 1})) == b'{"a":1}'
    assert from_payload(b"\xc1") == b"\xc1"
