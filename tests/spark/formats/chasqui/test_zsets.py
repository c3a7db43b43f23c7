"""ChasquiMQ's sorted sets, results and pending entries as tables, and where queues are found."""

from __future__ import annotations

from typing import Any

import pytest
import redis

from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.job import BackoffSpec, RetryOverride
from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.repeat import MissedFiresPolicy, RepeatPattern, RepeatSpec
from tambomq.chasqui.wire.envelope import encode_member
from tambomq.clock import now_ms
from tambomq.spark.core.table import ColumnBounds, Table
from tambomq.spark.formats.chasqui.columns import DELETED
from tambomq.spark.formats.chasqui.streams import PendingTable, names
from tambomq.spark.formats.chasqui.zsets import ResultTable, SortedSetTable
from tambomq.store.sync import Store
from tests.servers import Server
from tests.spark.chasqui_filling import KEYS, NOW, at, envelope, fill, put, recur, rows

# ── delayed ──────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("dialect", ["page", "engine"])
def test_a_delayed_job_of_either_dialect_is_read(
    dialect: str, store: Store, db: redis.Redis
) -> None:
    retry = RetryOverride(None, BackoffSpec.fixed(5))
    db.zadd(KEYS.delayed, {encode_member("welcome", envelope("a", 1, retry), dialect): NOW + 5})
    assert rows(SortedSetTable("delayed"), store) == [
        {
            "queue": "mail",
            "due_at": at(NOW + 5),
            "id": "a",
            "name": "welcome",
            "payload": b"\x01",
            "created_at": at(NOW),
            "attempt": 1,
            "max_attempts": None,
            "backoff": '{"kind":"fixed","delay_ms":5}',
            "error": None,
            "raw": None,
        }
    ]


def test_an_invalid_member_keeps_its_bytes(store: Store, db: redis.Redis) -> None:
    db.zadd(KEYS.delayed, {b"\xff": 1, b"\x01n\xc1": 2, encode_member("n", envelope(), "page"): 3})
    short, odd, sound = rows(SortedSetTable("delayed"), store)
    assert (short["name"], short["raw"]) == (None, b"\xff")
    assert (odd["name"], odd["raw"]) == ("n", b"\x01n\xc1")
    assert short["error"]
    assert odd["error"]
    assert (sound["id"], sound["error"], sound["raw"]) == ("a", None, None)
    assert len(rows(SortedSetTable("delayed", show_damaged=False), store)) == 1


def later(db: redis.Redis, count: int, score: Any) -> None:
    """Delay jobs, their ids as numbers."""
    members = {
        encode_member("n", envelope(str(place)), "page"): score(place) for place in range(count)
    }
    db.zadd(KEYS.delayed, members)


@pytest.mark.parametrize("same", [1, 700, 4000])
def test_every_member_is_read_once_however_many_are_due_at_once(
    same: int, store: Store, db: redis.Redis
) -> None:
    later(db, 4000, lambda place: NOW + place // same)
    found = [row["id"] for row in rows(SortedSetTable("delayed"), store)]
    assert sorted(found, key=int) == [str(place) for place in range(4000)]
    partition_count = SortedSetTable("delayed").cut(store, "mail", ColumnBounds(), 4)
    assert len(partition_count) == (4 if same < 4000 else 2)


def test_scores_that_no_clock_shows_are_read_too(store: Store, db: redis.Redis) -> None:
    scores = [float("-inf"), -0.5, 0.5, float("inf"), 1e300]
    later(db, 5, scores.__getitem__)
    found = {row["id"]: row["due_at"] for row in rows(SortedSetTable("delayed"), store)}
    assert found == {"0": None, "1": at(-1), "2": at(0), "3": None, "4": None}


def test_times_become_ranges_of_scores(store: Store, db: redis.Redis) -> None:
    later(db, 10, lambda place: NOW + place + 0.5)

    def selector(**limits: dict[str, Any]) -> list[str]:
        return [row["id"] for row in rows(SortedSetTable("delayed"), store, ColumnBounds(**limits))]

    assert selector(lowest={"due_at": NOW + 8}) == ["8", "9"]
    assert selector(highest={"due_at": NOW + 1}) == ["0", "1"]
    assert selector(lowest={"due_at": NOW + 3}, highest={"due_at": NOW + 3}) == ["3"]
    assert selector(only={"name": frozenset(("other",))}) == []


# ── repeatable specs ─────────────────────────────────────────────────────────


def test_a_spec_is_shown_with_all_that_is_known(store: Store, db: redis.Redis) -> None:
    pattern = RepeatPattern.cron("0 9 * * *", tz="Europe/Paris")
    policy, retry = MissedFiresPolicy.fire_all(7), RetryOverride(3)
    recur(db, RepeatSpec("k", "report", pattern, b"\x01", 10, NOW, NOW + 1, policy, retry))
    assert rows(SortedSetTable("repeat"), store) == [
        {
            "queue": "mail",
            "key": "k",
            "name": "report",
            "pattern": "cron:0 9 * * *:Europe/Paris",
            "every_ms": None,
            "cron": "0 9 * * *",
            "tz": "Europe/Paris",
            "next_fire_at": at(NOW),
            "payload": b"\x01",
            "fires_at_most": 10,
            "start_after": at(NOW),
            "end_before": at(NOW + 1),
            "fired": 3,
            "missed_fires": "fire-all",
            "max_catchup": 7,
            "max_attempts": 3,
            "backoff": None,
            "error": None,
            "raw": None,
        }
    ]


def test_a_real_producers_spec_is_read(server: Server, store: Store) -> None:
    with BlockingQueue("mail", redis_url=server.url) as queue:
        queue.add("n", 1, repeat={"kind": "every", "interval_ms": 60_000})
    [row] = rows(SortedSetTable("repeat"), store)
    assert (row["key"], row["every_ms"], row["fired"]) == ("n::every:60000", 60_000, 0)
    assert row["next_fire_at"] > at(now_ms())


def test_specs_that_cannot_be_read_say_why(store: Store, db: redis.Redis) -> None:
    listed: Any = {"gone": 1, "odd": 2, "list": 3, b"\xff": 4}
    db.zadd(KEYS.repeat, listed)
    db.hset(KEYS.spec("odd"), mapping={"spec": b"\xc1", "fired": "many"})
    db.lpush(KEYS.spec("list"), "x")
    found = {row["key"]: row for row in rows(SortedSetTable("repeat"), store)}
    assert all(row["error"] for row in found.values())
    assert (found["odd"]["raw"], found["odd"]["fired"]) == (b"\xc1", 0)
    assert found.keys() == {"gone", "odd", "list", "\N{REPLACEMENT CHARACTER}"}


# ── results ──────────────────────────────────────────────────────────────────


def test_results_are_found_among_other_keys(store: Store, db: redis.Redis) -> None:
    db.set(KEYS.result("a"), b"\x01", px=60_000)
    db.set(KEYS.result("b"), b"\x02")
    db.set(Keys("other").result("c"), b"\x03")
    db.mset({f"noise:{place}": "x" for place in range(3000)})
    found = {row["id"]: row for row in rows(ResultTable(), store)}
    assert {id: row["payload"] for id, row in found.items()} == {"a": b"\x01", "b": b"\x02"}
    assert at(now_ms()) < found["a"]["expires_at"] <= at(now_ms() + 60_000)
    assert found["b"]["expires_at"] is None


def test_results_whose_ids_are_known_are_not_searched_for(store: Store, db: redis.Redis) -> None:
    db.set(KEYS.result("a"), b"\x01")
    asked = ColumnBounds(only={"id": frozenset(("a", "gone", None))})
    before: Any = db.info("commandstats")
    assert [row["id"] for row in rows(ResultTable(), store, asked)] == ["a"]
    after: Any = db.info("commandstats")
    assert before.get("cmdstat_scan") == after.get("cmdstat_scan")


# ── pending ──────────────────────────────────────────────────────────────────


def test_pending_entries_come_with_their_jobs(store: Store, db: redis.Redis) -> None:
    put(db, 3)
    db.xgroup_create(KEYS.stream, GROUP, "0")
    db.xreadgroup(GROUP, "ada", {KEYS.stream: ">"}, count=2)
    db.xclaim(KEYS.stream, GROUP, "bob", 0, [f"{NOW + 1}-0"], idle=5000)
    db.xdel(KEYS.stream, f"{NOW}-0")
    lost, row = rows(PendingTable(), store)
    assert (lost["entry_id"], lost["consumer"], lost["error"]) == (f"{NOW}-0", "ada", DELETED)
    assert (lost["id"], lost["raw"]) == (None, None)
    assert (row["id"], row["name"], row["consumer"]) == ("1", "kind-1", "bob")
    assert (row["deliveries"], row["enqueued_at"]) == (2, at(NOW + 1))
    assert row["idle_ms"] >= 5000
    assert len(rows(PendingTable(show_damaged=False), store)) == 1
    assert rows(PendingTable("nobody"), store) == []


def test_many_pending_entries_are_cut_evenly(store: Store, db: redis.Redis) -> None:
    put(db, 4500)
    db.xgroup_create(KEYS.stream, GROUP, "0")
    db.xreadgroup(GROUP, "ada", {KEYS.stream: ">"}, count=4500)
    table = PendingTable()
    partition_count = table.cut(store, "mail", ColumnBounds(), 3)
    assert [sum(map(len, table.read(store, part, ColumnBounds()))) for part in partition_count] == [
        1500
    ] * 3
    assert [row["id"] for row in rows(table, store)] == [str(place) for place in range(4500)]
    late = ColumnBounds(lowest={"enqueued_at": NOW + 4490})
    assert len(rows(table, store, late)) == 10


def test_rows_added_after_the_plan_are_read_too(store: Store, db: redis.Redis) -> None:
    tables: list[Table] = [
        PendingTable(),
        SortedSetTable("delayed"),
        SortedSetTable("repeat"),
        ResultTable(),
    ]
    plans = [table.cut(store, "mail", ColumnBounds(), 4) for table in tables]
    fill(db)
    for table, partition_count in zip(tables, plans, strict=True):
        assert (
            sum(
                len(batch)
                for part in partition_count
                for batch in table.read(store, part, ColumnBounds())
            )
            == 1
        )


# ── queues ───────────────────────────────────────────────────────────────────


def test_each_queue_is_found_once(store: Store, db: redis.Redis) -> None:
    fill(db)
    fill(db, Keys("a:b*"))
    later(db, 1, lambda _: NOW)
    db.zadd(Keys("only-delayed").delayed, {"x": 1})
    db.zadd(Keys("only-repeat").repeat, {"x": 1})
    db.zadd(Keys("both").repeat, {"x": 1})
    db.zadd(Keys("both").delayed, {"x": 1})
    assert sorted(names(store)) == ["a:b*", "both", "mail", "only-delayed", "only-repeat"]
