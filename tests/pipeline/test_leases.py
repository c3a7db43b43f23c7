"""Leases as people see them, and how they end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import redis

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.chasqui.bulk.lease import ChasquiLeaseOps
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import leases as module
from tambomq.gomq.bulk.lease import GomqLeaseOps
from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.store.sync import Store
from tests.cli.transcript import Done, call
from tests.servers import Server

KEYS = Keys()
REQUEST = LeaseRequest("q", "nightly", "token", "process 1 on here")
Run = Callable[..., Done]


@pytest.fixture
def run(server: Server) -> Run:
    return partial(call, tambo, "tambo", "pipeline", "leases", url=server.url)


@pytest.fixture
def claimed(rsmq: Rsmq, server: Server) -> Rsmq:
    """Three messages, two of which a query has taken."""
    rsmq.create_queue("q")
    rsmq.send_messages("q", [b"a", b"b", b"c"])
    store = Store(server.url)
    store.run(RsmqLeaseOps(KEYS).attach(REQUEST))
    store.follow(RsmqLeaseOps(KEYS).claim(REQUEST, 1, "token", 2))
    store.close()
    return rsmq


def die(db: redis.Redis, *, long_ago: bool) -> None:
    names = ("until", "hidden_until") if long_ago else ("until",)
    db.hset(KEYS.ledger("q", "nightly"), mapping=dict.fromkeys(names, 1))


def test_without_leases_the_list_is_exit_3(run: Run, rsmq: Rsmq) -> None:
    assert run("list").code == 3
    assert json.loads(run("list", "--json").out) == []


def test_a_lease_is_shown_with_what_it_has(run: Run, claimed: Rsmq) -> None:
    [lease] = json.loads(run("list", "--json").out)
    assert (lease["queue"], lease["lease"], lease["state"]) == ("rsmq:q", "nightly", "held")
    assert (lease["claim"], lease["messages"], lease["acked"]) == (1, 2, 0)
    assert "process 1 on here" in run("list").out
    assert run("list", "rsmq:q").code == 0
    assert run("list", "rsmq:other").code == 3


def test_a_lease_whose_holder_is_alive_cannot_be_released(
    run: Run, claimed: Rsmq, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "RESIGNS_WITHIN_S", 0.05)
    for words in (("release", "rsmq:q", "nightly"), ("forget", "rsmq:q", "nightly")):
        done = run(*words, "--yes")
        assert done.code == 1
        assert "process 1 on here" in done.err


@pytest.mark.parametrize("words", [("release",), ("forget", "--give-back")])
def test_a_query_that_is_just_ending_is_waited_for(
    run: Run,
    claimed: Rsmq,
    db: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
) -> None:
    def ends_meanwhile() -> Iterator[float]:
        die(db, long_ago=True)
        yield 0.0

    monkeypatch.setattr(module, "backoff_delays", ends_meanwhile)
    command, *options = words
    assert run(command, "rsmq:q", "nightly", *options, "--yes").code == 0


def test_messages_of_a_dead_query_are_given_back(run: Run, claimed: Rsmq, db: redis.Redis) -> None:
    die(db, long_ago=True)
    done = run("release", "--dead", "--yes")
    assert (done.code, done.out) == (0, "rsmq:q nightly: 2 messages given back\n")
    assert len(claimed.receive_messages("q", 5)) == 3
    assert run("release", "--dead", "--yes").code == 3


def test_a_lease_is_forgotten(run: Run, claimed: Rsmq, db: redis.Redis) -> None:
    die(db, long_ago=False)
    assert run("forget", "rsmq:q", "nightly", "--yes").code == 1
    assert run("forget", "rsmq:q", "nightly", "--give-back", "--yes").code == 0
    assert not db.exists(KEYS.ledger("q", "nightly"))
    assert len(claimed.receive_messages("q", 5)) == 3
    assert run("forget", "rsmq:q", "nightly", "--yes").code == 3


def test_leases_of_all_protocols_are_found(run: Run, server: Server, db: redis.Redis) -> None:

    store = Store(server.url)
    store.run(ChasquiLeaseOps().attach(REQUEST))
    store.run(GomqLeaseOps().attach(REQUEST))
    store.close()
    assert db.exists(ChasquiKeys("q").leases)
    found = [each["queue"] for each in json.loads(run("list", "--json").out)]
    assert found == ["chasqui:q", "gomq:q"]


@pytest.mark.parametrize(
    "words", [("release",), ("release", "rsmq:q"), ("release", "rsmq:q", "l", "--dead")]
)
def test_an_incomplete_release_command_says_what_to_give(run: Run, words: tuple[str, ...]) -> None:
    assert "give a queue and a lease, or --dead" in run(*words, "--yes").err


def test_a_queue_of_no_protocol_is_refused(run: Run) -> None:
    assert "names no queue" in run("list", "smtp:q").err
