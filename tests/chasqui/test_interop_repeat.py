"""Repeatable specs that one implementation stores and the other's scheduler fires."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.peers import fixtures
from tests.peers.chasqui import Pair, Party, Scene
from tests.servers import eventually

pytestmark = pytest.mark.interop

chasquis, scene, pair = fixtures.chasqui

EVERY = {"kind": "every", "interval_ms": 300}
DAILY = {"kind": "cron", "expression": "30 9 * * MON-FRI", "tz": "America/New_York"}
EACH_SECOND = {"kind": "cron", "expression": "* * * * * *"}
TICK: dict[str, Any] = {"scheduler_tick_ms": 50}
DAY_MS = 24 * 3_600_000


def upsert(party: Party, name: str, data: Any, **options: Any) -> str:
    return str(party.do("upsert_repeatable_job", name, data, **options))


def next_fire_ms(scene: Scene, key: str) -> int:
    score: Any = scene.db.zscore(scene.keys.repeat, key)
    return int(score)


def is_armed(scene: Scene, key: str, after_ms: int) -> bool:
    return next_fire_ms(scene, key) > after_ms


# ── specs ────────────────────────────────────────────────────────────────────

SPECS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("a", {"repeat": {"kind": "every", "interval_ms": 90_000}}, "a::every:90000"),
    (
        "b",
        {"repeat": DAILY, "limit": 5, "missed_fires": {"kind": "fire-once"}},
        "b::cron:30 9 * * MON-FRI:America/New_York",
    ),
    (
        "",
        {
            "repeat": {"kind": "cron", "expression": "@daily"},
            "start_after_ms": 4_000_000_000_000,
            "end_before_ms": 4_100_000_000_000,
            "missed_fires": {"kind": "fire-all", "max_catchup": 3},
        },
        "::cron:@daily:UTC",
    ),
)


def test_specs_are_the_same_bytes_and_are_listed_alike(scene: Scene, pair: Pair) -> None:
    bodies = []
    for party in pair:
        keys = [upsert(party, name, {"k": [1]}, **options) for name, options, _ in SPECS]
        assert keys == [key for _, _, key in SPECS]
        bodies.append([scene.db.hget(scene.keys.spec(key), "spec") for key in keys])
    # The other has written over each of them.
    assert bodies[0] == bodies[1]
    listed = pair.producer.do("get_repeatable_jobs")
    assert len(listed) == 3
    assert listed == pair.consumer.do("get_repeatable_jobs")
    assert pair.producer.do("get_repeatable_jobs", 1) == listed[:1]


def test_a_spec_is_removed_by_the_other(scene: Scene, pair: Pair) -> None:
    key = upsert(pair.producer, "n", 1, repeat=DAILY)
    assert pair.consumer.do("remove_repeatable_by_key", key) is True
    assert pair.consumer.do("remove_repeatable_by_key", key) is False
    assert not scene.db.exists(scene.keys.spec(key), scene.keys.repeat)


def test_both_expect_the_next_fire_at_the_same_time(scene: Scene, pair: Pair) -> None:
    expressions = ("*/15 * * * *", "0 12 1 * *", "0 0 9 * * MON#2", "@weekly", "5 4 L * *")
    for zone in (None, "Europe/Berlin", "+05:30"):
        for expression in expressions:
            pattern = {"kind": "cron", "expression": expression, "tz": zone}
            scores = []
            for party in pair:
                key = upsert(party, "n", 1, repeat=pattern)
                # The engine keeps the milliseconds of the clock.
                scores.append(next_fire_ms(scene, key) // 1000)
            assert scores[0] == scores[1], (expression, zone)


# ── fires ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("pattern", [EVERY, EACH_SECOND], ids=["every", "cron"])
def test_a_spec_fires_as_often_as_its_limit_says(
    scene: Scene, pair: Pair, pattern: dict[str, Any]
) -> None:
    key = upsert(pair.producer, "tick", {"k": b"v"}, repeat=pattern, limit=2)
    pair.consumer.work(**TICK)
    eventually(lambda: not scene.db.exists(scene.keys.repeat), within_s=10)
    eventually(lambda: len(scene.ran()) == 2 and scene.is_empty())
    assert {(run.name, run.attempts_made) for run in scene.ran()} == {("tick", 0)}
    assert [run.data for run in scene.ran()] == [{"k": b"v"}] * 2
    assert len({run.id for run in scene.ran()}) == 2
    assert not scene.db.exists(scene.keys.spec(key))


def test_a_spec_counts_on_when_the_other_takes_over(scene: Scene, pair: Pair) -> None:
    upsert(pair.producer, "tick", 1, repeat=EVERY, limit=4)
    pair.consumer.work(**TICK)
    eventually(lambda: len(scene.ran()) >= 2)
    pair.consumer.stop()
    pair.producer.work(**TICK)
    eventually(lambda: not scene.db.exists(scene.keys.repeat), within_s=10)
    eventually(lambda: len(scene.ran()) == 4 and scene.is_empty())
    assert {run.worker for run in scene.ran()} == {"ours", "theirs"}


# ── missed fires ─────────────────────────────────────────────────────────────

MISSED: tuple[tuple[dict[str, Any] | None, int], ...] = (
    (None, 0),
    ({"kind": "skip"}, 0),
    ({"kind": "fire-once"}, 1),
    ({"kind": "fire-all", "max_catchup": 3}, 3),
    ({"kind": "fire-all", "max_catchup": 100}, 11),
)


@pytest.mark.parametrize(
    "pattern",
    [{"kind": "every", "interval_ms": DAY_MS}, {"kind": "cron", "expression": "0 3 * * *"}],
    ids=["every", "cron"],
)
def test_missed_fires_are_caught_up_by_the_policy_of_the_spec(
    scene: Scene, pair: Pair, pattern: dict[str, Any]
) -> None:
    due: dict[Any, Any] = {}
    for n, (policy, _) in enumerate(MISSED):
        more = {} if policy is None else {"missed_fires": policy}
        key = upsert(pair.producer, str(n), n, repeat=pattern, **more)
        due[key] = next_fire_ms(scene, key) - 11 * DAY_MS
    scene.db.zadd(scene.keys.repeat, due)
    pair.consumer.work(**TICK)
    wanted = [n for n, (_, count) in enumerate(MISSED) for _ in range(count)]
    eventually(lambda: sorted(run.data for run in scene.ran()) == wanted)
    # Each goes on at its next regular time; the engine keeps odd milliseconds of cron.
    for key, fire_ms in due.items():
        eventually(partial(is_armed, scene, key, fire_ms))
        assert next_fire_ms(scene, key) // 1000 - fire_ms // 1000 == 11 * DAY_MS // 1000
