"""``tambo pipeline migrate`` prints what it would do, what it did, and what it left."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

import pytest
import redis

from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.cli.main import tambo
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.servers import Server

Run = Callable[..., Done]


@pytest.fixture
def run(server: Server) -> Run:
    return partial(call, tambo, "tambo", "pipeline", "migrate", url=server.url)


@pytest.fixture
def orders(rsmq: Rsmq) -> Rsmq:
    """Three messages that wait, one that is delayed, and one that is held."""
    rsmq.create_queue("orders")
    rsmq.send_messages("orders", [b"held", b"one", b"two", b"three"])
    rsmq.receive_message("orders", vt=600)
    rsmq.send_message("orders", b"later", delay=600)
    return rsmq


def test_a_dry_run_reports_and_moves_nothing(run: Run, orders: Rsmq, db: redis.Redis) -> None:
    done = run("rsmq:orders", "gomq:orders", "--dry-run")
    assert done.out.splitlines() == [
        "would move 3 that wait and 1 that is delayed from rsmq:orders to gomq:orders",
        "1 is in flight, and would be waited for",
        "GOMQ has no delays: delayed messages would stay",
    ]
    counts = json.loads(run("rsmq:orders", "gomq:orders", "--dry-run", "--json").out)
    assert (counts["waiting"], counts["delayed"], counts["held"]) == (3, 1, 1)
    assert orders.get_queue_attributes("orders").msgs == 5
    assert [key for key in db.scan_iter("*") if b"rsmq" not in key] == []


def test_it_reports_what_moved_and_what_stayed(run: Run, orders: Rsmq, db: redis.Redis) -> None:
    flags = ("--name", "order", "--wait", "0s")
    done = run("rsmq:orders", "chasqui:orders", *flags)
    moved, compared, stayed = done.out.splitlines()
    assert moved == "moved 4 messages from rsmq:orders to chasqui:orders"
    assert compared.startswith("4 left and 4 arrived since it began, with the same digest ")
    assert stayed == "1 stays: it is in flight; run it again later"
    keys = ChasquiKeys("orders")
    assert (db.xlen(keys.stream), db.zcard(keys.delayed)) == (3, 1)


def test_delayed_messages_stay_if_the_target_has_no_delays(run: Run, orders: Rsmq) -> None:
    done = json.loads(run("rsmq:orders", "gomq:orders", "--wait", "0s", "--json").out)
    assert (done["moved"], done["left"]) == (3, {"held": 1, "delayed": 1})


def test_namespaces_are_places_of_their_own(run: Run, orders: Rsmq, server: Server) -> None:
    done = run("rsmq:orders", "rsmq:orders", "--to-ns", "other", "--wait", "0s")
    assert "rsmq:orders was created" in done.out
    with Rsmq(server.url, ns="other") as other:
        assert [m.text for m in other.receive_messages("orders", 9)] == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("orders", "chasqui:b"), 2, "'orders' names no queue"),
        (("rsmq:orders", "kqueue:b"), 2, "'kqueue:b' names no queue"),
        (("rsmq:nope", "gomq:b"), 3, "queue 'nope' does not exist"),
        (("rsmq:orders", "rsmq:orders"), 2, "cannot be migrated to itself"),
        (("gomq:empty", "chasqui:b"), 3, "gomq:empty is empty: nothing was moved"),
        (("rsmq:orders", "gomq:b", "--to-url", "http://x"), 2, "redis://"),
    ],
)
def test_impossible_requests_are_reported(
    run: Run, orders: Rsmq, words: tuple[str, ...], code: int, said: str
) -> None:
    done = run(*words)
    assert (done.code, said in done.err) == (code, True), done
    assert len(done.err.splitlines()) == 1
    assert orders.get_queue_attributes("orders").msgs == 5


def test_wait_is_a_duration(run: Run, orders: Rsmq) -> None:
    done = run("rsmq:orders", "gomq:b", "--wait", "soon")
    assert done.code == 2
    assert "Invalid value for '--wait': 'soon' is not a duration" in done.err
    assert run("rsmq:orders", "gomq:b", "--wait", "5m", "--dry-run").code == 0
