"""The bytes stored by each operation of a producer are those of the engine."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from tambomq.chasqui import BlockingQueue, blocking_queue, queue
from tambomq.chasqui.keys import Keys
from tambomq.chasqui.ops import add as add_ops
from tambomq.chasqui.ops import dlq as dlq_ops
from tambomq.chasqui.producer import producer as production
from tests.chasqui import vectors, working
from tests.chasqui.conftest import Connect
from tests.chasqui.stored import rows
from tests.chasqui.vectors import Vector

server = working.server

NOW = 1_800_000_000_000
CMD = Keys("cmd")
DIALECTS = {"page": 1, "engine": 4}
"""How many bytes have the length of a name."""


@pytest.fixture(autouse=True)
def _the_time_of_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (queue, blocking_queue):
        monkeypatch.setattr(module, "now_ms", lambda: NOW)


@pytest.fixture
def cmd(connect: Connect) -> BlockingQueue:
    """The queue that the recorded commands are of, in the engine's dialect."""
    return connect(CMD.queue, dialect="engine")


def written(name: str) -> list[list[bytes]]:
    """What the engine wrote in a recorded sequence: commands, as they change the data."""
    [found] = (each for each in vectors._load()["commands"] if each["name"] == f"command/{name}")
    words = [[_raw(word) for word in step["argv"]] for step in found["sequence"]]
    return [
        argv for argv in words if argv[0] in (b"XADD", b"ZADD", b"SET", b"HSET", b"DEL", b"ZREM")
    ]


def asked(name: str) -> list[bytes]:
    """The one command of a recorded sequence that changes nothing."""
    [found] = (each for each in vectors._load()["commands"] if each["name"] == f"command/{name}")
    [step] = found["sequence"]
    return [_raw(word) for word in step["argv"]]


def _raw(word: str | bytes) -> bytes:
    return word.encode() if isinstance(word, str) else word


def having(given: str, prefix: str) -> list[Any]:
    """Vectors that were made with this input, and one that says something."""
    found = vectors.vectors(prefix)
    return [each for each in found if each.values[0].inputs.get(given) not in (None, {})]


def entry(argv: list[bytes]) -> list[bytes]:
    """The fields that an XADD writes."""
    return argv[argv.index(b"*") + 1 :]


def entries(db: redis.Redis, key: str) -> list[list[bytes]]:
    return [fields for _, fields in rows(db, key)]


def names(db: redis.Redis) -> set[str]:
    """All keys, but those that stand for IDMP where a server has none, and for batches."""
    found = {key.decode() for key in cast("list[bytes]", db.keys())}
    return {name for name in found if ":idmp:" not in name}


def zset(db: redis.Redis, key: str) -> list[tuple[bytes, bytes]]:
    """Members and scores, as the server prints them."""
    asked = "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')"
    flat = cast("list[bytes]", db.eval(asked, 1, key))
    return list(zip(flat[::2], flat[1::2], strict=True))


def in_dialect(member: bytes, dialect: str) -> bytes:
    """A member of the engine, as *dialect* has it."""
    return member[:1] + member[4:] if dialect == "page" else member


# ── the commands of the engine ───────────────────────────────────────────────


def test_an_add_writes_what_the_engine_writes(cmd: BlockingQueue, db: redis.Redis) -> None:
    cmd.add("", 1, job_id="j1")
    cmd.add("foo", 1, job_id="j2")
    want = [entry(argv) for name in ("add_unnamed", "add_named") for argv in written(name)]
    assert entries(db, CMD.stream) == want
    assert names(db) == {CMD.stream}


def test_a_batch_writes_what_the_engine_writes(
    cmd: BlockingQueue, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded = written("add_bulk_named")
    monkeypatch.setattr(production, "ulids", lambda *_: [argv[4].decode() for argv in recorded])
    cmd.add_bulk([{"name": "a", "data": 1}, {"name": "", "data": 2}])
    assert entries(db, CMD.stream) == [entry(argv) for argv in recorded]
    assert names(db) == {CMD.stream}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_delayed_add_writes_a_member(
    connect: Connect, db: redis.Redis, monkeypatch: pytest.MonkeyPatch, dialect: str
) -> None:
    [[_, _, score, member]] = written("add_delayed_plain")
    id = member[8:34].decode()
    monkeypatch.setattr(add_ops, "ulid", lambda _: id)
    connect(CMD.queue, dialect=dialect).add("nm", 1, delay_ms=60_000)
    assert zset(db, CMD.delayed) == [(in_dialect(member, dialect), score)]
    assert names(db) == {CMD.delayed, CMD.events}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_delayed_add_by_id_writes_a_marker_and_an_index_too(
    connect: Connect, db: redis.Redis, dialect: str
) -> None:
    marker, delay, index = written("add_delayed_idempotent")
    later = connect(CMD.queue, dialect=dialect)
    for _ in range(2):
        later.add("nm", 1, delay_ms=60_000, job_id="d1")
    member = in_dialect(delay[3], dialect)
    assert zset(db, CMD.delayed) == [(member, delay[2])]
    assert (marker[1], index[1]) == (CMD.marker("d1").encode(), CMD.index("d1").encode())
    assert db.get(CMD.marker("d1")) == marker[2] == b"1"
    assert db.get(CMD.index("d1")) == member
    for key in (CMD.marker("d1"), CMD.index("d1")):
        assert int(marker[-1]) - 30 <= db.ttl(key) <= int(marker[-1]) == 3660
    assert names(db) == {CMD.delayed, CMD.marker("d1"), CMD.index("d1"), CMD.events}


def test_cancelling_deletes_the_member_the_marker_and_the_index(
    cmd: BlockingQueue, db: redis.Redis
) -> None:
    cmd.add("nm", 1, delay_ms=60_000, job_id="d1")
    cmd.cancel_delayed("d1")
    deleted = {argv[1].decode() for argv in written("cancel_hit")}
    assert deleted == {CMD.delayed, CMD.marker("d1"), CMD.index("d1")}
    assert names(db) == {CMD.events}


def test_an_upsert_writes_a_score_and_a_body(cmd: BlockingQueue, db: redis.Redis) -> None:
    cmd.add("jn", 1, repeat={"kind": "every", "interval_ms": 60_000})
    scored, hashed = written("upsert_repeatable")
    assert zset(db, CMD.repeat) == [(scored[3], scored[2])]
    assert db.hgetall(hashed[1]) == {hashed[2]: hashed[3]}
    assert names(db) == {CMD.repeat, hashed[1].decode()}
    cmd.remove_repeatable_by_key("jn::every:60000")
    assert {argv[1] for argv in written("remove_repeatable")} == {scored[1], hashed[1]}
    assert names(db) == set()


def test_a_replay_writes_what_the_engine_writes(cmd: BlockingQueue, db: redis.Redis) -> None:
    [recorded] = written("replay_dlq")
    letter: dict[Any, Any] = {"d": entry(recorded)[1], "n": "unrec", "source_id": "1-0"}
    db.xadd(CMD.dlq, {**letter, "reason": "unrecoverable"})
    assert cmd.replay_dlq() == 1
    assert entries(db, CMD.stream) == [entry(recorded)]
    assert entries(db, CMD.dlq) == []


def test_reads_use_the_commands_of_the_engine() -> None:
    for name, call in (
        ("peek_dlq", dlq_ops.peek(CMD, 20)),
        ("get_result", add_ops.result(CMD, "j1")),
    ):
        assert [str(part).encode() for part in call.parts] == asked(name)


# ── the structures of the engine ─────────────────────────────────────────────


@pytest.mark.parametrize("vector", having("data", "envelope.payload/"))
def test_a_payload_is_stored_as_the_engine_stores_it(
    connect: Connect, db: redis.Redis, keys: Keys, vector: Vector
) -> None:
    given = vector.inputs
    connect().add(given["name"], given["data"], job_id=given["job_id"])
    assert entries(db, keys.stream) == [[b"d", vector.blob, b"n", b"job"]]


@pytest.mark.parametrize("vector", having("retry", "envelope.retry/"))
def test_options_are_stored_as_the_engine_stores_them(
    connect: Connect, db: redis.Redis, keys: Keys, vector: Vector
) -> None:
    retry = vector.inputs["retry"]
    options = {"attempts": retry.get("max_attempts"), "backoff": retry.get("backoff")}
    connect().add("", 1, job_id=vector.inputs["job_id"], **options)
    assert entries(db, keys.stream) == [[b"d", vector.blob]]


@pytest.mark.parametrize("vector", vectors.vectors("stream_entry/"))
def test_an_entry_is_stored_as_the_engine_stores_it(
    connect: Connect, db: redis.Redis, keys: Keys, vector: Vector
) -> None:
    for dedup in ("window", "strict"):
        adds = connect(dedup=dedup)
        adds.add(vector.inputs.get("name", ""), 1, job_id=vector.inputs["job_id"])
    assert entries(db, keys.stream) == [vector.fields] * 2


@pytest.mark.parametrize(
    ("dialect", "vector"),
    [
        pytest.param(dialect, *found.values, id=f"{dialect}-{found.id}")
        for found in vectors.vectors("delayed_member/")
        for dialect in DIALECTS
        # A page member cannot hold it, which test_bad_input shows.
        if (dialect, found.id) != ("page", "delayed_member/name_256")
    ],
)
def test_a_member_is_stored_as_the_engine_stores_it(
    connect: Connect, db: redis.Redis, keys: Keys, vector: Vector, dialect: str
) -> None:
    given, name = vector.inputs, vector.inputs["opts"].get("name", "")
    connect(dialect=dialect).add(name, 1, delay_ms=given["delay_ms"], job_id=given["opts"]["id"])
    member = in_dialect(vector.blob, dialect)
    assert zset(db, keys.delayed) == [(member, str(vector.recorded["score"]).encode())]
    assert db.get(keys.index("d-1")) == member
    assert member[DIALECTS[dialect] :].startswith(name.encode())


@pytest.mark.parametrize("vector", vectors.vectors("repeat_spec/"))
def test_a_spec_is_stored_as_the_engine_stores_it(
    connect: Connect, db: redis.Redis, keys: Keys, vector: Vector
) -> None:
    given = dict(vector.inputs["spec"])
    connect(dialect="engine").upsert_repeatable_job(
        given["job_name"],
        {"k": 1},
        repeat=given["pattern"],
        limit=given.get("limit"),
        start_after_ms=given.get("start_after_ms"),
        end_before_ms=given.get("end_before_ms"),
        job_id=given["key"] or None,
        missed_fires=given.get("missed_fires"),
    )
    key = vector.recorded["resolved_key"]
    assert db.hgetall(keys.spec(key)) == {b"spec": vector.blob}
    [(member, score)] = zset(db, keys.repeat)
    assert member == key.encode()
    assert int(score) == vector.recorded["repeat_zset_score"]


# ── what the engine does not write ───────────────────────────────────────────


def test_events_of_a_producer_have_their_fields_in_order(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    loud = connect(announce=True)
    loud.add("nm", 1, job_id="a")
    loud.add("", 1, job_id="b")
    loud.add("nm", 1, job_id="c", delay_ms=60_000)
    loud.add("", 1, job_id="d", delay_ms=1)
    now = str(NOW).encode()
    assert entries(db, keys.events) == [
        [b"e", b"waiting", b"id", b"a", b"ts", now, b"n", b"nm"],
        [b"e", b"waiting", b"id", b"b", b"ts", now],
        [b"e", b"delayed", b"id", b"c", b"ts", now, b"n", b"nm", b"delay_ms", b"60000"],
        [b"e", b"delayed", b"id", b"d", b"ts", now, b"delay_ms", b"1"],
    ]


def test_only_what_ends_by_itself_has_a_time_to_live(
    connect: Connect, db: redis.Redis, keys: Keys
) -> None:
    strict = connect(dedup="strict", announce=True)
    strict.add("n", 1, job_id="a")
    strict.add("n", 1, job_id="b", delay_ms=60_000)
    strict.add("n", 1, repeat={"kind": "every", "interval_ms": 60_000}, job_id="k")
    strict.pause()
    mortal = {name for name in names(db) if db.ttl(name) != -1}
    assert mortal == {keys.added("a"), keys.marker("b"), keys.index("b")}
    assert names(db) - mortal == {
        *(keys.stream, keys.delayed, keys.events, keys.repeat, keys.spec("k"), keys.paused),
    }
