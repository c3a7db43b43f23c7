"""Why a message is not running, decided from plain values: each gate, each state, each protocol."""

from __future__ import annotations

from typing import Any

import pytest

from tambomq.console.messages.explain import explain
from tambomq.console.messages.situation import Holder, QueueLine, Situation

NOW = 1_896_080_400_000  # 2030-01-31 09:00:00 UTC


def situation(protocol: Any = "chasqui", state: Any = "visible", **more: Any) -> Situation:
    if protocol == "chasqui":
        more = {"workers": 1, "paused": False, "promoter": "tambo-1", **more}
    return Situation(protocol=protocol, queue="payments", now_ms=NOW, state=state, **more)


def verdicts(it: Situation) -> dict[str, str]:
    return {gate.name: gate.verdict for gate in explain(it).gates}


def test_a_retry_waits_for_its_due_time_and_then_for_the_line() -> None:
    it = situation(
        state="delayed",
        runs=5,
        max_runs=8,
        due_ms=NOW + 134_000,
        error="HTTPStatusError: 503",
        line=QueueLine(waiting=4212, per_s=72),
        workers=0,
        failing=0.96,
    )
    found = explain(it)
    assert found.headline == "It waits for its 6th run, due in 2 m 14 s."
    assert found.detail == (
        "Run 5 of 8 failed: HTTPStatusError: 503. "
        "Of the queue's recent runs 96% failed, so this one may too."
    )
    assert verdicts(it) == {
        "Due time": "holds",
        "Promoter": "open",
        "Pause": "open",
        "Workers": "next",
        "Line": "next",
    }
    line = found.gates[-1].now
    assert line == "4,212 messages wait now, about 58 s at 72 per second"


def test_a_first_run_is_delayed() -> None:
    found = explain(situation(state="delayed", due_ms=NOW + 5000))
    assert found.headline == "It is delayed: its first run is due in 5 s."


def test_a_due_job_without_a_promoter_says_what_to_start() -> None:
    it = situation(state="delayed", due_ms=NOW - 180_000, promoter="")
    assert explain(it).headline == "It was due 3 m ago, and no process puts due jobs in line."
    assert "start one" in explain(it).detail
    assert verdicts(it)["Promoter"] == "holds"


def test_a_due_job_with_a_promoter_joins_the_line() -> None:
    it = situation(state="delayed", due_ms=NOW - 10)
    assert explain(it).headline == "It is due and joins the line in a moment."


def test_a_paused_queue_holds_what_waits() -> None:
    it = situation(paused=True, workers=None, line=QueueLine(ahead=3))
    assert explain(it).headline == "It waits because the queue is paused."
    assert verdicts(it) == {"Due time": "open", "Pause": "holds", "Line": "next"}


def test_without_workers_nothing_runs() -> None:
    it = situation(workers=0, silent_workers=2, line=QueueLine(ahead=0))
    assert explain(it).headline == "It waits because no worker is alive."
    assert explain(it).gates[2].now == "No worker is alive; 2 are silent"


def test_the_limiter_says_when_more_may_start() -> None:
    it = situation(
        limit_started=100,
        limit_ends_ms=NOW + 400,
        limited_until_ms=NOW + 400,
        line=QueueLine(ahead=0),
    )
    assert explain(it).headline == (
        "It waits for the rate limiter, which lets more start in 400 ms."
    )
    assert verdicts(it)["Limiter"] == "holds"


def test_a_limiter_that_let_everything_start_is_open() -> None:
    it = situation(limit_started=3, limit_ends_ms=NOW + 400, limited_until_ms=NOW - 1)
    assert verdicts(it)["Limiter"] == "open"


@pytest.mark.parametrize(
    ("line", "headline"),
    [
        (QueueLine(ahead=1, per_s=2), "behind 1 other, about 500 ms at 2 per second."),
        (QueueLine(ahead=5000, is_exact=False), "behind more than 5,000 others."),
        (QueueLine(ahead=7, per_s=0), "behind 7 others, and none has started of late."),
    ],
)
def test_the_headline_has_the_jobs_ahead_and_the_expected_wait(
    line: QueueLine, headline: str
) -> None:
    assert explain(situation(line=line)).headline == f"It waits in line {headline}"


def test_the_next_in_line_is_held_by_nothing() -> None:
    it = situation(line=QueueLine(ahead=0))
    assert explain(it).headline == "It is the next in line: a worker takes it in a moment."
    assert set(verdicts(it).values()) == {"open"}


def test_a_job_that_runs_says_on_which_worker() -> None:
    holder = Holder(name="pay-3", silent_s=2, takeover_s=30)
    found = explain(situation(state="in_flight", runs=2, holder=holder))
    assert found.headline == "It runs on pay-3, for the 2nd time."
    assert found.gates[0].verdict == "open"


def test_a_job_that_its_worker_has_not_begun_does_not_run() -> None:
    holder = Holder(name="pay-3", silent_s=2, takeover_s=30)
    ahead: dict[str, Any] = {"state": "in_flight", "holder": holder, "is_read_ahead": True}
    found = explain(situation(**ahead))
    assert found.headline == "It waits for a free place of its worker."
    assert found.detail == "pay-3 has fetched it ahead, and starts it then."
    limited = situation(**ahead, limit_started=2, limited_until_ms=NOW + 4000)
    assert (
        explain(limited).headline == "It waits for the rate limiter, which lets more start in 4 s."
    )
    assert verdicts(limited) == {
        "Lease": "open",
        "Pause": "open",
        "Limiter": "holds",
        "Place": "next",
    }
    paused = situation(**ahead, paused=True)
    assert explain(paused).headline == "It waits because the queue is paused."


def test_a_silent_worker_is_taken_over_from() -> None:
    holder = Holder(name="pay-3", silent_s=125, takeover_s=30)
    found = explain(situation(state="in_flight", workers=0, holder=holder))
    assert found.headline == "Its worker pay-3 has been silent for 2 m 05 s."
    assert "No worker is alive now" in found.detail
    assert found.gates[0].verdict == "holds"


@pytest.mark.parametrize(
    ("state", "words"),
    [("held", "nightly has it, for 40 s"), ("away", "its query is gone")],
)
def test_a_spark_lease_holds_what_it_claimed(state: str, words: str) -> None:
    holder = Holder(name="host:7", until_ms=NOW + 40_000, lease="nightly", lease_state=state)
    for protocol in ("chasqui", "rsmq"):
        found = explain(situation(protocol, "in_flight", holder=holder))
        assert words in found.headline


def test_a_dead_letter_says_of_what_it_died_and_when() -> None:
    it = situation(
        state="dead", runs=8, reason="retries_exhausted", error="boom", ended_ms=NOW - 300_000
    )
    assert explain(it).headline == "It is a dead letter: retries_exhausted."
    assert explain(it).detail == (
        "Run 8 failed: boom. It died 5 m ago. It runs again only if it is replayed."
    )


@pytest.mark.parametrize(
    ("ended", "headline"),
    [
        ("completed", "It completed 5 m ago, after 1.2 s."),
        ("cancelled", "It was cancelled 5 m ago: a duplicate."),
        ("dead", "It died 5 m ago: a duplicate, and is no longer among the dead letters."),
        ("delivered", "It was delivered 5 m ago."),
        ("deleted", "It was deleted 5 m ago, which is how a consumer says that it is done."),
        ("gone", "It has left the queue, and nothing recorded says how."),
    ],
)
def test_the_headline_of_an_ended_message_says_how_it_ended(ended: Any, headline: str) -> None:
    it = situation(
        state="done", ended=ended, ended_ms=NOW - 300_000, duration_s=1.2, reason="a duplicate"
    )
    assert explain(it).headline == headline


# --- other protocols ---


def test_an_rsmq_message_is_hidden_until_its_timeout_ends() -> None:
    holder = Holder(until_ms=NOW + 12_000)
    found = explain(situation("rsmq", "in_flight", runs=3, holder=holder))
    assert found.headline == (
        "A consumer has received it for the 3rd time and it is hidden: visible again in 12 s."
    )
    assert (found.gates[0].name, found.gates[0].now) == ("Visibility timeout", "Ends in 12 s")


def test_an_rsmq_message_with_a_delay_says_when_it_is_visible() -> None:
    found = explain(situation("rsmq", "delayed", due_ms=NOW + 30_000))
    assert found.headline == "It was sent with a delay and becomes visible in 30 s."


def test_a_visible_rsmq_message_waits_for_a_consumer_that_rsmq_does_not_know() -> None:
    found = explain(situation("rsmq", due_ms=NOW - 5, line=QueueLine(ahead=0)))
    assert found.headline == "It is visible and the next to be received."
    assert "RSMQ does not know its consumers" in found.detail
    behind = explain(situation("rsmq", due_ms=NOW - 5, line=QueueLine(ahead=2)))
    assert behind.headline == "It waits in line behind 2 others."


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"consumers": 0}, "no consumer is subscribed to the key"),
        ({"workers": 0}, "no peer of a consumer is connected"),
        ({"backlog_held_until_ms": NOW + 500}, "share the backlog"),
        ({"full_peer": "alice_p1"}, "alice_p1 does not observe"),
        ({"unsettled": True}, "messages of departed peers"),
        ({"line": QueueLine(ahead=4)}, "behind 4 others"),
        ({}, "It waits for its peers to observe."),
    ],
)
def test_the_headline_says_what_an_undispatched_gomq_message_waits_for(
    more: dict[str, Any], words: str
) -> None:
    values = {"consumers": 1, "workers": 1, "line": QueueLine(ahead=0), **more}
    assert words in explain(situation("gomq", **values)).headline


def test_a_silent_gomq_peer_is_named() -> None:
    holder = Holder(name="risk/risk-3", silent_s=251, takeover_s=30)
    it = situation("gomq", holder=holder, line=QueueLine(ahead=0))
    assert explain(it).headline == "The peer risk/risk-3 has not observed for 4 m 11 s."
    assert verdicts(it)["Peer"] == "holds"
    lively = situation("gomq", holder=Holder(name="a/b", silent_s=1, takeover_s=30))
    assert explain(lively).headline == "It waits for a/b to observe."


def test_a_gomq_batch_waits_to_be_acknowledged() -> None:
    holder = Holder(name="a/b", silent_s=3, takeover_s=30)
    found = explain(situation("gomq", "in_flight", holder=holder))
    assert found.headline.startswith("a/b has received it and not acknowledged the batch.")


@pytest.mark.parametrize(
    ("receivers", "words"),
    [(0, "so it went to none"), (3, "went to 3 consumers at once"), (None, "It was sent 5 s ago.")],
)
def test_a_kqueue_message_is_gone_once_it_is_sent(receivers: int | None, words: str) -> None:
    it = situation("kqueue", "done", ended_ms=NOW - 5000, receivers=receivers)
    assert words in explain(it).headline
