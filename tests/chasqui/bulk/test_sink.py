"""Chunks of jobs are added once and whole, and lie in the server as `add` would have put them."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.bulk import sink as sink_ops
from tambomq.chasqui.job import BackoffSpec, RetryOverride
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops.add import Draft, Policy, draft
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.clock import now_ms
from tambomq.errors import ForeignLeader, JournalFull, QueueFull, WrongType
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalBounds, JournalPolicy
from tambomq.store.sync import Store
from tests.chasqui.stored import delayed, emitted_events, jobs, rows
from tests.journal.looking import records
from tests.servers import Server

FIRST = (0, "0/0/0", "one", 60)
POLICY = Policy()
LATER = 4_000_000_000_000


def job(data: Any = 1, name: str = "", **options: Any) -> Draft:
    allowing = Policy(max_delay_s=0)
    return draft(allowing, now_ms(), name, encode_payload(data), **options)


def add(
    store: Store, keys: Keys, *drafts: Draft, token: Any = FIRST, policy: Policy = POLICY
) -> int:
    return store.run(sink_ops.add(keys, policy, "query", token, drafts))


def everything(db: redis.Redis) -> set[bytes]:
    return set(cast("list[bytes]", db.keys()))


CHUNKS = {
    "fresh": lambda: [job(1, "n"), job(2, "n")],
    "named": lambda: [job(1, "n"), job(2)],
    "keyed": lambda: [job(1, job_id="a"), job(2, job_id="b")],
    "delayed": lambda: [job(1, run_at_ms=LATER), job(2, job_id="b", run_at_ms=LATER), job(3)],
}


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_chunk_that_is_added_twice_is_there_once(
    each: Store, each_db: redis.Redis, keys: Keys, kind: str
) -> None:
    drafts = CHUNKS[kind]()
    assert (add(each, keys, *drafts), add(each, keys, *drafts)) == (1, 0)
    stored = [envelope.id for _, envelope in jobs(each_db, keys)]
    stored += [envelope.id for _, envelope, _ in delayed(each_db, keys)]
    assert sorted(stored) == sorted(draft.id for draft in drafts)
    assert each_db.hgetall(keys.fence("query")) == {b"0/0/0": b"one"}
    assert 0 < each_db.ttl(keys.fence("query")) <= 60


@pytest.mark.parametrize("kind", CHUNKS)
def test_other_rows_under_a_token_or_a_batch_that_is_over_are_not_added(
    each: Store, each_db: redis.Redis, keys: Keys, kind: str
) -> None:
    drafts = CHUNKS[kind]()
    each_db.hset(keys.fence("query"), mapping={"9/0/0": "one", "floor": 9})
    assert add(each, keys, *drafts, token=(9, "9/0/0", "two", 60)) == -1
    assert add(each, keys, *drafts, token=(8, "8/0/0", "two", 60)) == -2
    assert everything(each_db) == {keys.fence("query").encode()}


def test_a_sink_stores_the_same_bytes_as_add(
    each: Store, each_server: Server, each_db: redis.Redis, keys: Keys
) -> None:
    data, backoff = {"to": "ada"}, {"kind": "fixed", "delay_ms": 5}
    theirs = Keys("theirs")
    with BlockingQueue("theirs", redis_url=each_server.url) as queue:
        queue.add("mail", data)
        queue.add("", data, attempts=3, backoff=backoff)
        queue.add("mail", data, job_id="k")
        queue.add("late", data, delay_ms=60_000, job_id="d")
    now, payload = now_ms(), encode_payload(data)
    retry = RetryOverride(3, BackoffSpec("fixed", 5))
    plain = [
        draft(POLICY, now, "mail", payload),
        draft(POLICY, now, "", payload, retry=retry),
    ]
    rest = [
        draft(POLICY, now, "mail", payload, job_id="k"),
        draft(POLICY, now, "late", payload, job_id="d", run_at_ms=now + 60_000),
    ]
    add(each, keys, *plain)
    add(each, keys, *rest, token=(0, "0/0/1", "two", 60))

    def shapes(of: Keys) -> list[Any]:
        found = [(fields[0], fields[2:], len(fields[1])) for _, fields in rows(each_db, of.stream)]
        bodies = [(n, e.payload, e.attempt, e.retry) for n, e in jobs(each_db, of)]
        late = [(n, e.id, e.payload, e.retry) for n, e, _ in delayed(each_db, of)]
        return [found, bodies, late, emitted_events(each_db, of)]

    assert shapes(keys) == shapes(theirs)
    assert each_db.get(keys.index("d")) == cast("Any", each_db.zrange(keys.delayed, 0, 0))[0]
    ours, known = (each_db.ttl(each.marker("d")) for each in (keys, theirs))
    assert abs(ours - known) < 60


def test_an_id_of_the_callers_counts_once(
    each: Store, each_server: Server, each_db: redis.Redis, keys: Keys
) -> None:
    add(each, keys, job(1, job_id="a"), job(2, job_id="a"), job(3, job_id="b"))
    late = [job(n, job_id="late", run_at_ms=LATER) for n in range(2)]
    add(each, keys, *late, token=(0, "0/0/1", "two", 60))
    assert [envelope.id for _, envelope in jobs(each_db, keys)] == ["a", "b"]
    assert [envelope.id for _, envelope, _ in delayed(each_db, keys)] == ["late"]
    with BlockingQueue(keys.queue, redis_url=each_server.url) as queue:
        assert queue.cancel_delayed("late")


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_chunk_that_does_not_fit_is_refused_as_a_whole(
    each: Store, each_db: redis.Redis, keys: Keys, kind: str
) -> None:
    each_db.xadd(keys.stream, {"d": "x"})
    with pytest.raises(QueueFull):
        add(each, keys, *CHUNKS[kind](), policy=Policy(max_stream_len=1))
    assert everything(each_db) == {keys.stream.encode()}


def test_the_oldest_jobs_are_trimmed_with_that_policy(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    drafts = [job(n) for n in range(1000)]
    policy = Policy(max_stream_len=100, overflow="trim")
    assert add(each, keys, *drafts, policy=policy) == 1
    assert 100 <= each_db.xlen(keys.stream) < 1000
    assert emitted_events(each_db, keys)[-1][0] == "trimmed"


def test_delayed_jobs_that_the_leader_could_not_read_are_refused_with_all_others(
    each: Store, each_db: redis.Redis, keys: Keys
) -> None:
    each_db.set(keys.promoter_lock, "engine-1")
    with pytest.raises(ForeignLeader):
        add(each, keys, job(1), job(2, run_at_ms=LATER), policy=Policy(dialect="page"))
    assert everything(each_db) == {keys.promoter_lock.encode()}
    assert add(each, keys, job(1, job_id="a")) == 1
    engine = Policy(dialect="engine")
    late = job(2, run_at_ms=LATER)
    assert add(each, keys, late, token=(0, "0/0/1", "two", 60), policy=engine) == 1


@pytest.mark.parametrize("key", ["stream", "delayed", "fence"])
def test_a_key_of_another_type_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, keys: Keys, key: str
) -> None:
    broken = keys.fence("query") if key == "fence" else getattr(keys, key)
    each_db.set(broken, "no such thing")
    with pytest.raises(WrongType):
        add(each, keys, *CHUNKS["delayed"]())
    assert everything(each_db) == {broken.encode()}


def test_a_call_is_repeated_after_a_lost_reply() -> None:
    for drafts in (CHUNKS["fresh"](), CHUNKS["delayed"]()):
        assert sink_ops.add(Keys("q"), POLICY, "query", FIRST, drafts).repeatable


def recorded(max_entries: int) -> Policy:
    """The policy of queues that have journals with such a bound."""
    return Policy(journal=JournalPolicy("chasqui", ("*",), JournalBounds(max_entries)))


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_chunk_is_recorded_as_often_as_it_is_added(
    each: Store, each_server: Server, keys: Keys, kind: str
) -> None:
    drafts, policy = CHUNKS[kind](), recorded(4)
    assert [add(each, keys, *drafts, policy=policy) for _ in range(2)] == [1, 0]
    found = records(each_server.url, "chasqui", keys.queue)
    assert [(each.id, each.name, each.body) for each in found] == [
        (draft.id, draft.name, draft.payload) for draft in drafts
    ]
    assert [bool(each.delay_ms) for each in found] == [bool(draft.run_at_ms) for draft in drafts]


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_full_journal_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, keys: Keys, kind: str
) -> None:
    drafts = [*CHUNKS[kind](), *CHUNKS[kind]()]
    with pytest.raises(JournalFull):
        add(each, keys, *drafts, policy=recorded(3))
    journal = JournalKeys("chasqui", keys.queue)
    assert everything(each_db) == {journal.state.encode()}
    assert each_db.hgetall(journal.state) == {b"refused": b"%d" % len(drafts)}


@pytest.mark.parametrize("kind", CHUNKS)
def test_a_journal_of_another_type_refuses_the_whole_chunk(
    each: Store, each_db: redis.Redis, keys: Keys, kind: str
) -> None:
    journal = JournalKeys("chasqui", keys.queue).journal
    each_db.set(journal, "no such thing")
    with pytest.raises(WrongType):
        add(each, keys, *CHUNKS[kind](), policy=recorded(100))
    assert everything(each_db) == {journal.encode()}
