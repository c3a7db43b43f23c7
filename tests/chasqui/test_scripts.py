"""Edge cases of the scripts, called directly on real servers."""

from __future__ import annotations

from typing import cast

import pytest
import redis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.ops import leader as leader_ops
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import Draft, Policy, draft
from tambomq.chasqui.ops.leader import LeaderConfig
from tambomq.chasqui.ops.worker import ConsumerContext, Delivery
from tambomq.chasqui.wire.envelope import decode_member
from tambomq.errors import QueueFull, RemoteProtocolError, WrongType
from tambomq.store.features import Features, features
from tambomq.store.sync import Store
from tests.chasqui.leading import (
    HOLDER,
    emitted_events,
    entries,
    envelope,
    letters,
    member,
    on_each_server,
    rows,
    waiting,
)

NOW = 1_800_000_000_000
on_one_server = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


# ── delayed members ──────────────────────────────────────────────────────────

heads = st.sampled_from([b"\x94", b"\x80", b"\x9f", b"\xdc\0\4", b"\xdf", b"\x93\xa1x", b"\x7f"])
names = st.binary(max_size=6) | st.text(max_size=4).map(str.encode)
lengths = st.integers(0, 6) | st.sampled_from([0x93, 0x94, 255, 256, 257, 65_536, 2**24, 2**32 - 1])


@st.composite
def nearly(draw: st.DrawFn) -> bytes:
    """A member of either dialect, or one with a wrong length."""
    name: bytes = draw(names)
    rest: bytes = draw(heads | st.just(b"")) + draw(st.binary(max_size=6))
    size: int = draw(st.just(len(name)) | lengths)
    width: int = draw(st.sampled_from([1, 4]))
    prefix: bytes = (size % 256**width).to_bytes(width, "little")
    return prefix + name + rest


blobs = st.binary(max_size=9) | nearly() | st.binary(min_size=255, max_size=270)


def expected(blob: bytes) -> tuple[str, bytes, bytes]:
    """Where `wire` says that a member belongs, its name and its envelope."""
    try:
        name, body = decode_member(blob)
    except RemoteProtocolError as error:
        if "shorter than its name" in str(error):
            return "dlq", b"", blob
        return "unnamed", b"", b""
    return "stream", name.encode(), body


@on_one_server
@example([b"\0\0\0\0", b"\0\1\0\0" + b"n" * 256 + b"\x94", b"\1\1\0\0" + b"n" * 257 + b"\x94"])
@given(st.lists(blobs, unique=True, min_size=1, max_size=200))
def test_the_script_takes_members_apart_as_our_decoder_does(
    store: Store, db: redis.Redis, keys: Keys, given: list[bytes]
) -> None:
    db.delete(keys.stream, keys.dlq, keys.delayed)
    for blob in given:
        db.zadd(keys.delayed, {blob: 1})
        store.run(leader_ops.promote(LeaderConfig(keys, HOLDER, events_cap=0)))
        place, name, body = expected(blob)
        if place == "dlq":
            assert [letter[0] for letter in letters(db, keys)] == [blob]
        else:
            [fields] = entries(db, keys.stream)
            if place == "unnamed":
                # A name that is not UTF-8 is dropped; a worker runs the job without it.
                assert blob.endswith(fields[b"n"] + fields[b"d"])
            else:
                assert (fields.get(b"n", b""), fields[b"d"]) == (name, body)
        db.delete(keys.stream, keys.dlq)


@on_one_server
@example("long", 2**14, "page")
@given(st.text(min_size=1, max_size=40), st.integers(1, 500), st.sampled_from(["page", "engine"]))
def test_the_script_finds_the_id_of_a_job_as_we_write_it(
    store: Store, db: redis.Redis, keys: Keys, text: str, times: int, dialect: str
) -> None:
    id = text * times
    db.delete(keys.stream, keys.events)
    db.zadd(keys.delayed, {member(id, "n", dialect): 1})
    promotion = store.run(leader_ops.promote(LeaderConfig(keys, HOLDER)))
    assert promotion is not None
    # Longer ones are written in a form that is worth no code.
    assert promotion.ids == [id if len(id.encode()) < 2**16 else ""]
    assert emitted_events(db, keys) == [("waiting", promotion.ids[0])]


UNUSUAL = [
    b"\x81\xa2id\xa1a",
    b"\x94\xc4\1a\xc4\0\0\0",
    b"\xdc\0\4\xa1a\xc4\0\0\0",
    b"\x94",
    b"\x94\xd9",
]


@on_each_server
@pytest.mark.parametrize("body", UNUSUAL)
def test_an_id_in_an_unusual_encoding_is_not_searched_for(
    each: Store, each_db: redis.Redis, keys: Keys, body: bytes
) -> None:
    each_db.zadd(keys.delayed, {b"\0" + body: 1})
    promotion = each.run(leader_ops.promote(LeaderConfig(keys, HOLDER)))
    assert promotion is not None
    assert promotion.ids == [""]
    assert entries(each_db, keys.stream) == [{b"d": body}]


@on_each_server
def test_a_promotion_takes_a_batch_and_says_what_is_left(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    each_db.zadd(keys.delayed, {member(id): place for place, id in enumerate("abcde")})
    config = LeaderConfig(keys, HOLDER, batch=2)
    first = each.run(leader_ops.promote(config))
    assert first is not None
    assert (first.ids, first.delayed, first.wait_ms) == (["a", "b"], 3, 0)
    each.run(leader_ops.promote(config))
    last = each.run(leader_ops.promote(config))
    assert last is not None
    assert (last.ids, last.delayed, last.wait_ms) == (["e"], 0, None)


# ── room ─────────────────────────────────────────────────────────────────────


def drafts(policy: Policy, count: int) -> list[Draft]:
    return [draft(policy, NOW, "n", b"\x01") for _ in range(count)]


@on_each_server
def test_a_batch_that_does_not_fit_adds_nothing(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    policy = Policy(max_stream_len=5)
    assert each.run(add_ops.add_batch(keys, Features(), policy, "p", drafts(policy, 3))) == 3
    with pytest.raises(QueueFull):
        each.run(add_ops.add_batch(keys, Features(), policy, "p", drafts(policy, 3)))
    assert each_db.xlen(keys.stream) == 3
    assert each.run(add_ops.add_batch(keys, Features(), policy, "p", drafts(policy, 2))) == 5


@on_each_server
def test_a_replay_stops_at_the_length_cap(each: Store, each_db: redis.Redis, keys: Keys) -> None:
    for n in range(4):
        die(each_db, keys, f"{n}")
    policy = Policy(max_stream_len=3)
    plan = dlq_ops.replay(keys, policy, NOW, limit=9)
    assert each.follow(plan) == 3
    assert [id for id, _ in waiting(each_db, keys)] == ["0", "1", "2"]
    assert each_db.xlen(keys.dlq) == 1


def test_a_job_that_dies_again_at_once_is_replayed_once(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    die(db, keys, "a")
    plan = dlq_ops.replay(keys, Policy(), NOW, limit=9, where=lambda _: die(db, keys, "a"))
    assert store.follow(plan) == 1
    assert db.xlen(keys.dlq) == 1


def die(db: redis.Redis, keys: Keys, id: str) -> bool:
    return bool(db.xadd(keys.dlq, {"d": envelope(id), "source_id": "1-1", "reason": "x"}))


# ── the limiter ──────────────────────────────────────────────────────────────


@on_each_server
def test_a_window_grants_so_many_starts_and_no_more(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    assert each.run(worker_ops.limit(keys, 3, 60_000, 2)) == (2, 0)
    allowed, wait_ms = each.run(worker_ops.limit(keys, 3, 60_000, 2))
    assert allowed == 1
    assert 0 < wait_ms <= 60_000
    allowed, wait_ms = each.run(worker_ops.limit(keys, 3, 60_000, 1))
    assert allowed == 0
    assert 0 < wait_ms <= 60_000
    assert 0 < each_db.pttl(keys.limiter) <= 60_000


@pytest.mark.parametrize("ends_in_ms", [-1, 10**9])
def test_an_expired_or_impossible_limiter_window_is_replaced(
    store: Store, db: redis.Redis, keys: Keys, ends_in_ms: int
) -> None:
    now = int(db.time()[0]) * 1000
    db.hset(keys.limiter, mapping={"started": 99, "ends": now + ends_in_ms})
    assert store.run(worker_ops.limit(keys, 3, 60_000, 3)) == (3, 0)


def test_a_limit_that_was_lowered_grants_nothing_until_the_window_is_over(
    store: Store, keys: Keys
) -> None:
    assert store.run(worker_ops.limit(keys, 10, 60_000, 8)) == (8, 0)
    allowed, wait_ms = store.run(worker_ops.limit(keys, 5, 60_000, 1))
    assert allowed == 0
    assert wait_ms > 0


def test_asking_the_limiter_for_no_jobs_changes_nothing(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    assert store.run(worker_ops.limit(keys, 3, 60_000, 0)) == (0, 0)
    assert not db.exists(keys.limiter)


# ── entries in a consumer's hands ────────────────────────────────────────────


def contexts(store: Store, keys: Keys) -> tuple[ConsumerContext, ConsumerContext]:
    has: Features = store.follow(features())
    a, b = (ConsumerContext(keys, GROUP, consumer, has) for consumer in "ab")
    store.run(worker_ops.create_group(a))
    return a, b


def given_to(store: Store, db: redis.Redis, context: ConsumerContext, count: int) -> list[str]:
    """Entries that were added and delivered to *seat*."""
    for n in range(count):
        db.xadd(context.keys.stream, {"d": envelope(str(n))})
    return [each.entry for each in store.run(worker_ops.read(context, count, 1000, 60_000))]


def holders(db: redis.Redis, keys: Keys) -> dict[str, tuple[str, int, int]]:
    """Return consumer, idle time in ms and deliveries of each pending entry."""
    found = cast("list[dict[str, object]]", db.xpending_range(keys.stream, GROUP, "-", "+", 10_000))
    return {
        row["message_id"].decode(): (  # type: ignore[attr-defined]
            row["consumer"].decode(),  # type: ignore[attr-defined]
            cast("int", row["time_since_delivered"]),
            cast("int", row["times_delivered"]),
        )
        for row in found
    }


def forget(
    db: redis.Redis, context: ConsumerContext, entry: str, idle_ms: int, deliveries: int = 1
) -> None:
    """Set the idle time of *entry*, as if its consumer had been silent."""
    at = (context.keys.stream, context.group, context.consumer)
    db.xclaim(*at, 0, [entry], justid=True, idle=idle_ms, retrycount=deliveries)


@on_each_server
def test_only_entries_that_were_idle_for_too_long_are_claimed(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(each, keys)
    old, fresh = given_to(each, each_db, a, 2)
    forget(each_db, a, old, 90_000, deliveries=4)
    assert each.run(worker_ops.claim(b, 9, 60_000)) == [
        Delivery(old, [b"d", envelope("0")], deliveries=4)
    ]
    assert each.run(worker_ops.claim(b, 9, 60_000)) == []
    found = holders(each_db, keys)
    assert (found[old][0], found[old][2], found[fresh][0]) == ("b", 5, "a")


@on_each_server
def test_a_claim_of_deleted_entries_returns_nothing(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(each, keys)
    deleted, kept = given_to(each, each_db, a, 2)
    for entry in (deleted, kept):
        forget(each_db, a, entry, 90_000)
    each_db.xdel(keys.stream, deleted)
    assert [each.entry for each in each.run(worker_ops.claim(b, 9, 60_000))] == [kept]


def test_more_entries_than_one_script_can_return_are_claimed_in_steps(
    store: Store, db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(store, keys)
    with db.pipeline() as pipe:
        for _ in range(9_000):
            pipe.xadd(keys.stream, {"d": b"x"})
        pipe.execute()
    store.run(worker_ops.read(a, 9_000, 1000, 60_000))
    claimed = {each.entry for _ in range(9) for each in store.run(worker_ops.claim(b, 9_000, 0))}
    assert 1_000 <= len(claimed) <= 9_000


@on_each_server
def test_entries_lost_with_a_broken_connection_are_recovered(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(each, keys)
    known, lost = given_to(each, each_db, a, 2)
    given_to(each, each_db, b, 1)
    delivery = Delivery(lost, [b"d", envelope("1")], deliveries=0)
    assert each.run(worker_ops.recover(a, [known])) == [delivery]
    # It is the delivery that did not arrive, not one more.
    assert holders(each_db, keys)[lost][2] == 1
    assert each.run(worker_ops.recover(a, [known, lost])) == []


@on_each_server
def test_renewed_entries_cannot_be_claimed_and_lost_ones_are_reported(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(each, keys)
    mine, taken, done = given_to(each, each_db, a, 3)
    for entry in (mine, taken):
        forget(each_db, a, entry, 90_000, deliveries=2)
    forget(each_db, b, taken, 0)
    each_db.xack(keys.stream, GROUP, done)
    assert each.run(worker_ops.renew(a, [mine, taken, done, "99-99"])) == [taken, done, "99-99"]
    owner, idle_ms, deliveries = holders(each_db, keys)[mine]
    assert (owner, deliveries) == ("a", 2)
    assert idle_ms < 60_000
    assert holders(each_db, keys)[taken][0] == "b"


@on_each_server
def test_an_entry_that_is_given_back_can_be_claimed_at_once_as_undelivered(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, b = contexts(each, keys)
    mine, taken = given_to(each, each_db, a, 2)
    forget(each_db, b, taken, 0)
    assert each.run(worker_ops.give_back(a, [(mine, 0), (taken, 0)], 60_000)) == 1
    assert each.run(worker_ops.claim(b, 9, 60_000)) == [
        Delivery(mine, [b"d", envelope("0")], deliveries=0)
    ]


@on_each_server
def test_a_consumer_leaves_its_group_only_if_it_owns_no_entries(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    a, _ = contexts(each, keys)
    assert not each.run(worker_ops.leave(ConsumerContext(Keys("no such queue"), GROUP, "a")))
    [entry] = given_to(each, each_db, a, 1)
    assert not each.run(worker_ops.leave(a))
    each_db.xack(keys.stream, GROUP, entry)
    assert each.run(worker_ops.leave(a))
    assert each_db.xinfo_consumers(keys.stream, GROUP) == []
    assert rows(each_db, keys.stream)


def test_a_stream_of_a_wrong_type_raises(store: Store, db: redis.Redis, keys: Keys) -> None:
    db.set(keys.stream, "not ours")
    context = ConsumerContext(keys, GROUP, "a")
    with pytest.raises(WrongType):
        store.run(worker_ops.claim(context, 1, 1))
    assert store.run(worker_ops.renew(context, ["1-1"])) == ["1-1"]
    assert not store.run(worker_ops.leave(context))
