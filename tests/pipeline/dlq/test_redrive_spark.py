"""Spark SQL chooses and rewrites dead letters, and the commands report the outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui.ops.add import Policy
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import redrive as pipeline_redrive
from tambomq.errors import SettingsError
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.issued import IssuedRedrives
from tambomq.pipeline.dlq.redrive import RedriveOptions
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.sync import Store
from tests.cli.transcript import Done, call
from tests.journal.looking import records
from tests.pipeline.dying_letters import add_dead_letters, dead, ids, waiting
from tests.servers import Server

Run = Callable[..., Done]


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def dlq(store: Store, server: Server) -> ChasquiDlq:
    return ChasquiDlq(store, server.url, "orders", Policy())


@pytest.fixture
def command(spark: SparkSession, server: Server, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The commands, with the session of all tests."""
    monkeypatch.setattr(pipeline_redrive, "open_spark", lambda *_: spark)
    return partial(call, tambo, "tambo", "pipeline", "dlq", url=server.url)


def test_sql_chooses_in_order_and_rewrites(
    spark: SparkSession, dlq: ChasquiDlq, db: redis.Redis
) -> None:
    add_dead_letters(db, 50)
    others = add_dead_letters(db, 20, first=50, name="sms")
    order = RedriveOptions(
        condition="name = 'email' AND reason = 'retries_exhausted' -- those",
        rewrite="concat('{\"was\":', value, '}')",
        attempts="keep",
        canary=0.1,
    )
    plan = redrive.plan(dlq, lambda: spark, order)
    assert (len(plan.selections), plan.redrive.canary, plan.is_known) == (50, 5, False)
    redrive.run(dlq, plan, RedriveOptions(tolerance=1.0, canary=0.1, canary_wait_s=0))
    assert waiting(db) == [(f"job-{n}", {"was": {"n": n}}, 3) for n in range(50)]
    assert dead(db) == others


def test_a_resumed_redrive_leaves_out_later_dead_letters(
    spark: SparkSession, dlq: ChasquiDlq, db: redis.Redis
) -> None:
    add_dead_letters(db, 30)
    first = redrive.plan(
        dlq, lambda: spark, RedriveOptions(condition="id LIKE 'job-%'", id="again")
    )
    dlq.begin(first.redrive)
    dlq.move(first.redrive, first.selections[:10])
    add_dead_letters(db, 5, first=100)
    issued = IssuedRedrives()
    issued.note(dlq.address, first.redrive)
    rest = redrive.plan(dlq, lambda: spark, RedriveOptions(id="again"), issued)
    assert (len(rest.selections), rest.is_known) == (20, True)
    assert redrive.run(dlq, rest, RedriveOptions()).moved == 30
    assert ids(dead(db)) == [f"job-{n}" for n in range(100, 105)]


@pytest.mark.parametrize(
    ("order", "said"),
    [
        (RedriveOptions(condition="name = 'email' AND"), r"SQL: .*PARSE_SYNTAX_ERROR.*line \d"),
        (
            RedriveOptions(condition="nam = 'email'"),
            r"SQL: .*`nam` cannot be resolved.*`name`.*line 1 pos 0",
        ),
        (RedriveOptions(condition="id = 'x' AND 5 = nam"), r"SQL: .*line 1 pos 17"),
        (RedriveOptions(condition="name"), "SQL: "),
        (RedriveOptions(rewrite="nope(value)"), "SQL: .*nope"),
        (RedriveOptions(rewrite="attempt"), "must be text or bytes, not long"),
        (RedriveOptions(rewrite="cast(null AS STRING)"), "is null; nothing was moved"),
        (RedriveOptions(rewrite="'no json'"), "is no JSON.*nothing was moved"),
    ],
)
def test_mistakes_are_reported_in_one_line_and_move_nothing(
    spark: SparkSession,
    dlq: ChasquiDlq,
    db: redis.Redis,
    order: RedriveOptions,
    said: str,
) -> None:
    add_dead_letters(db, 1)
    with pytest.raises(SettingsError, match=said) as fault:
        redrive.plan(dlq, lambda: spark, order)
    assert "\n" not in str(fault.value)
    assert (len(dead(db)), waiting(db), dlq.known()) == (1, [], [])


def test_sql_chooses_messages_by_why_they_died(
    spark: SparkSession, store: Store, rsmq: Rsmq, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    rsmq.create_queue("q-dead", maxsize=-1)
    for n, id in enumerate(rsmq.send_messages("q-dead", [f"eur {n}" for n in range(9)])):
        db.hset("rsmq:q-dead:Q", f"{id}:why", "TimeoutError" if n % 3 else "KeyError")
    rsmq_dlq = RsmqDlq(store, RsmqKeys(), "q")
    order = RedriveOptions(
        condition="reason = 'KeyError'", rewrite="replace(decode(body, 'UTF-8'), 'e', 'E')"
    )
    redrive.run(rsmq_dlq, redrive.plan(rsmq_dlq, lambda: spark, order), order)
    assert [m.text for m in rsmq.receive_messages("q", 10)] == ["Eur 0", "Eur 3", "Eur 6"]
    assert rsmq.get_queue_attributes("q-dead").msgs == 6


# ── the commands ─────────────────────────────────────────────────────────────


def test_the_command_journals_with_the_flag(command: Run, server: Server, db: redis.Redis) -> None:
    add_dead_letters(db, 3)
    assert command("redrive", "chasqui:orders", "--journal", "--where", "id <> 'job-1'").code == 0
    found = [(each.id, each.event) for each in records(server.url, "chasqui", "orders")]
    assert found == [("job-0", "sent"), ("job-2", "sent")]


def test_dead_letters_are_redriven_and_put_back(command: Run, db: redis.Redis) -> None:
    letters_before = add_dead_letters(db, 200)
    condition = ("--where", "name = 'email'")
    planned = command("redrive", "chasqui:orders", *condition, "--canary", "1%", "--dry-run")
    assert planned.out.startswith("would move 200 letters of chasqui:orders, such as ")
    assert "2 would go ahead" in planned.out
    assert (dead(db), db.exists("{chasqui:orders}:redrives")) == (letters_before, 0)
    done = command("redrive", "chasqui:orders", *condition, "--id", "one", "--rate", "100000/s")
    assert (done.code, done.err) == (0, "redrive chasqui:orders/one: 200 letters\n")
    assert "moved 200 of 200 letters" in done.out
    listed = json.loads(command("redrives", "--json").out)
    assert [(row["id"], row["state"], row["moved"]) for row in listed] == [
        ("chasqui:orders/one", "done", 200)
    ]
    back = command("undo", "chasqui:orders/one")
    assert back.out == "200 put back, 0 are running, 0 are consumed\n"
    assert dead(db) == letters_before
    assert "undone" in command("redrives", "chasqui:orders").out


def test_a_canary_that_fails_is_reported(command: Run, db: redis.Redis) -> None:
    add_dead_letters(db, 10)
    flags = ("--canary", "10%", "--canary-wait", "0s")
    done = command("redrive", "chasqui:orders", *flags, "--id", "two")
    assert done.code == 1
    assert "canary of 1: 1 waiting" in done.out
    assert "stopped after 1 of 10 letters" in done.out
    assert "resume it: tambo pipeline dlq redrive chasqui:orders --id two" in done.out
    again = json.loads(command("redrive", "chasqui:orders", "--id", "two", "--json").out)
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
        (("undo", "chasqui:orders/nope"), 1, "has no redrive 'nope'"),
        (("undo", "orders"), 2, "names no redrive"),
        (("redrives",), 3, "no redrives"),
        (("chasqui:empty",), 3, "no dead letters"),
    ],
)
def test_impossible_requests_are_reported(
    command: Run, db: redis.Redis, words: tuple[str, ...], code: int, said: str
) -> None:
    add_dead_letters(db, 1)
    done = command(*words)
    assert (done.code, said in done.err) == (code, True), done
    assert len(done.err.splitlines()) == 1
    assert len(dead(db)) == 1


def test_letters_are_counted_by_what_they_died_of(
    command: Run, db: redis.Redis, rsmq: Rsmq
) -> None:
    add_dead_letters(db, 30)
    add_dead_letters(db, 12, name="sms", reason="unrecoverable")
    rsmq.create_queue("q-dead", maxsize=-1)
    id = rsmq.send_message("q-dead", b"x")
    db.hset("rsmq:q-dead:Q", f"{id}:why", "KeyError: 'a17'")
    found: dict[str, Any] = json.loads(command("--json").out)
    kinds = [(k["queue"], k["count"], k["reason"], k["name"], k["error"]) for k in found["kinds"]]
    error = "ValueError: order <n> of '…' failed"
    assert kinds == [
        ("chasqui:orders", 30, "retries_exhausted", "email", error),
        ("chasqui:orders", 12, "unrecoverable", "sms", error),
        ("rsmq:q", 1, "", "", "KeyError: '…'"),
    ]
    assert [len(kind["samples"]) for kind in found["kinds"]] == [3, 3, 1]
    assert command("rsmq:q").out.splitlines()[1].split()[:3] == ["rsmq:q", "1", "-"]
