"""Spark SQL chooses and rewrites dead letters, and the commands tell what became of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui.ops import Policy
from tambomq.cli import pipeline_redrive
from tambomq.cli.main import tambo
from tambomq.errors import SettingsError
from tambomq.pipeline import redrive
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.grave_rsmq import RsmqGrave
from tambomq.pipeline.issued import Issued
from tambomq.pipeline.redrive import Order
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.cli.transcript import Done, call
from tests.journal.looking import records
from tests.pipeline.dying_letters import bury, dead, ids, waiting
from tests.servers import Server

Run = Callable[..., Done]


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def grave(store: Store, server: Server) -> ChasquiGrave:
    return ChasquiGrave(store, server.url, "orders", Policy())


@pytest.fixture
def dlq(spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The commands, with the session of all tests."""
    monkeypatch.setattr(pipeline_redrive, "open_spark", lambda *_: spark)
    return partial(call, tambo, "tambo", "pipeline", "dlq", url=server.url)


def test_sql_chooses_in_order_and_rewrites(
    spark: SparkSession, grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 50)
    others = bury(db, 20, first=50, name="sms")
    order = Order(
        where="name = 'email' AND reason = 'retries_exhausted' -- those",
        rewrite="concat('{\"was\":', value, '}')",
        attempts="keep",
        canary=0.1,
    )
    plan = redrive.plan(grave, lambda: spark, order)
    assert (len(plan.picks), plan.told.canary, plan.is_known) == (50, 5, False)
    redrive.run(grave, plan, Order(tolerance=1.0, canary=0.1, canary_wait_s=0))
    assert waiting(db) == [(f"job-{n}", {"was": {"n": n}}, 3) for n in range(50)]
    assert dead(db) == others


def test_who_goes_on_does_not_take_those_that_died_since(
    spark: SparkSession, grave: ChasquiGrave, db: redis.Redis
) -> None:
    bury(db, 30)
    first = redrive.plan(grave, lambda: spark, Order(where="id LIKE 'job-%'", id="again"))
    grave.begin(first.told)
    grave.move(first.told, first.picks[:10])
    bury(db, 5, first=100)
    issued = Issued()
    issued.note(grave.address, first.told)
    rest = redrive.plan(grave, lambda: spark, Order(id="again"), issued)
    assert (len(rest.picks), rest.is_known) == (20, True)
    assert redrive.run(grave, rest, Order()).moved == 30
    assert ids(dead(db)) == [f"job-{n}" for n in range(100, 105)]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (Order(where="name = 'email' AND"), r"SQL: .*PARSE_SYNTAX_ERROR.*line \d"),
        (Order(where="nam = 'email'"), r"SQL: .*`nam` cannot be resolved.*`name`.*line 1 pos 0"),
        (Order(where="id = 'x' AND 5 = nam"), r"SQL: .*line 1 pos 17"),
        (Order(where="name"), "SQL: "),
        (Order(rewrite="nope(value)"), "SQL: .*nope"),
        (Order(rewrite="attempt"), "must be text or bytes, not long"),
        (Order(rewrite="cast(null AS STRING)"), "is null; nothing was moved"),
        (Order(rewrite="'no json'"), "is no JSON.*nothing was moved"),
    ],
)
def test_mistakes_are_told_in_one_line_and_move_nothing(
    spark: SparkSession, grave: ChasquiGrave, db: redis.Redis, order: Order, said: str
) -> None:
    bury(db, 1)
    with pytest.raises(SettingsError, match=said) as fault:
        redrive.plan(grave, lambda: spark, order)
    assert "\n" not in str(fault.value)
    assert (len(dead(db)), waiting(db), grave.known()) == (1, [], [])


def test_sql_chooses_messages_by_why_they_died(
    spark: SparkSession, store: Store, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    rsmq.create_queue("q-dead", maxsize=-1)
    for n, id in enumerate(rsmq.send_messages("q-dead", [f"eur {n}" for n in range(9)])):
        db.hset("rsmq:q-dead:Q", f"{id}:why", "TimeoutError" if n % 3 else "KeyError")
    tomb = RsmqGrave(store, RsmqKeys(), "q")
    order = Order(where="reason = 'KeyError'", rewrite="replace(decode(body, 'UTF-8'), 'e', 'E')")
    redrive.run(tomb, redrive.plan(tomb, lambda: spark, order), order)
    assert [m.text for m in rsmq.receive_messages("q", 10)] == ["Eur 0", "Eur 3", "Eur 6"]
    assert rsmq.get_queue_attributes("q-dead").msgs == 6


# ── the commands ─────────────────────────────────────────────────────────────


def test_the_command_records_if_it_is_told_to(dlq: Run, server: Server, db: redis.Redis) -> None:
    bury(db, 3)
    assert dlq("redrive", "chasqui:orders", "--journal", "--where", "id <> 'job-1'").code == 0
    found = [(each.id, each.event) for each in records(server.url, "chasqui", "orders")]
    assert found == [("job-0", "sent"), ("job-2", "sent")]


def test_the_way_there_and_back(dlq: Run, db: redis.Redis) -> None:
    buried = bury(db, 200)
    where = ("--where", "name = 'email'")
    planned = dlq("redrive", "chasqui:orders", *where, "--canary", "1%", "--dry-run")
    assert planned.out.startswith("would move 200 letters of chasqui:orders, such as ")
    assert "2 would go ahead" in planned.out
    assert (dead(db), db.exists("{chasqui:orders}:redrives")) == (buried, 0)
    done = dlq("redrive", "chasqui:orders", *where, "--id", "one", "--rate", "100000/s")
    assert (done.code, done.err) == (0, "redrive chasqui:orders/one: 200 letters\n")
    assert "moved 200 of 200 letters" in done.out
    listed = json.loads(dlq("redrives", "--json").out)
    assert [(row["id"], row["state"], row["moved"]) for row in listed] == [
        ("chasqui:orders/one", "done", 200)
    ]
    back = dlq("undo", "chasqui:orders/one")
    assert back.out == "200 put back, 0 are in workers' hands, 0 are gone\n"
    assert dead(db) == buried
    assert "undone" in dlq("redrives", "chasqui:orders").out


def test_a_canary_that_fails_is_told(dlq: Run, db: redis.Redis) -> None:
    bury(db, 10)
    flags = ("--canary", "10%", "--canary-wait", "0s")
    done = dlq("redrive", "chasqui:orders", *flags, "--id", "two")
    assert done.code == 1
    assert "of 1 that went ahead: 1 waiting" in done.out
    assert "stopped after 1 of 10 letters" in done.out
    assert "go on: tambo pipeline dlq redrive chasqui:orders --id two" in done.out
    again = json.loads(dlq("redrive", "chasqui:orders", "--id", "two", "--json").out)
    assert (again["state"], again["moved"]) == ("done", 10)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("redrive", "chasqui:orders", "--where", "name = 'x'"), 3, "no dead letters that name"),
        (("redrive", "chasqui:orders", "--where", "name ="), 2, "SQL: "),
        (("redrive", "orders"), 2, "names no queue"),
        (("redrive", "gomq:orders"), 2, "expected one of chasqui:<queue>, rsmq:<queue>"),
        (("redrive", "rsmq:nope"), 3, "does not exist"),
        (("redrive", "chasqui:orders", "--rate", "fast"), 2, "like 200/s"),
        (("redrive", "chasqui:orders", "--set", "name = 'x'"), 2, "--set wants payload ="),
        (("redrive", "chasqui:orders", "--dead", "x"), 2, "--dead is for RSMQ"),
        (("undo", "chasqui:orders/nope"), 1, "knows of no redrive 'nope'"),
        (("undo", "orders"), 2, "names no redrive"),
        (("redrives",), 3, "no redrives"),
        (("chasqui:empty",), 3, "no dead letters"),
    ],
)
def test_what_cannot_be_is_told(
    dlq: Run, db: redis.Redis, words: tuple[str, ...], code: int, said: str
) -> None:
    bury(db, 1)
    done = dlq(*words)
    assert (done.code, said in done.err) == (code, True), done
    assert len(done.err.splitlines()) == 1
    assert len(dead(db)) == 1


def test_letters_are_counted_by_what_they_died_of(dlq: Run, db: redis.Redis, rsmq: Rsmq) -> None:
    bury(db, 30)
    bury(db, 12, name="sms", reason="unrecoverable")
    rsmq.create_queue("q-dead", maxsize=-1)
    id = rsmq.send_message("q-dead", b"x")
    db.hset("rsmq:q-dead:Q", f"{id}:why", "KeyError: 'a17'")
    found: dict[str, Any] = json.loads(dlq("--json").out)
    kinds = [(k["queue"], k["count"], k["reason"], k["name"], k["error"]) for k in found["kinds"]]
    error = "ValueError: order <n> of '…' failed"
    assert kinds == [
        ("chasqui:orders", 30, "retries_exhausted", "email", error),
        ("chasqui:orders", 12, "unrecoverable", "sms", error),
        ("rsmq:q", 1, "", "", "KeyError: '…'"),
    ]
    assert [len(kind["samples"]) for kind in found["kinds"]] == [3, 3, 1]
    assert dlq("rsmq:q").out.splitlines()[1].split()[:3] == ["rsmq:q", "1", "-"]
