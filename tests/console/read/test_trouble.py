from __future__ import annotations

from typing import Any

import pytest

from tambomq.console.model import Protocol, Trouble
from tambomq.console.read.queues.queue_sample import QueueSample
from tambomq.console.read.rates import Rates
from tambomq.console.read.trouble import TroubleFacts, trouble_of

NO_RATES, GROWING = Rates(), Rates(100, 32)


def trouble(
    protocol: Protocol = "chasqui", rates: Rates = NO_RATES, deaths: int = 0, **sample: Any
) -> Trouble | None:
    facts = {"depth": 1, "workers": 2, **sample}
    return trouble_of(
        TroubleFacts(protocol=protocol, sample=QueueSample(**facts), rates=rates, deaths=deaths)
    )


def why(found: Trouble | None) -> tuple[str, str, str]:
    assert found is not None
    return found.kind, found.severity, found.why


def test_a_queue_that_works_has_no_trouble() -> None:
    assert trouble(visible=500, oldest_s=3, runs=100, failed_runs=2, rates=Rates(5, 5, 0.1)) is None


def test_most_runs_fail() -> None:
    found = trouble(runs=40, failed_runs=38, rates=Rates(failed=12.6))
    assert why(found) == ("failing", "red", "38 of the last 40 runs failed, 13/s now.")


def test_some_runs_fail() -> None:
    found = trouble(runs=40, failed_runs=4, rates=Rates(failed=0.4))
    assert why(found) == ("failing", "amber", "4 of the last 40 runs failed, 0.4/s now.")


@pytest.mark.parametrize(
    ("runs", "failed_per_s"), [(9, 1.0), (40, 0.0)], ids=["few runs", "no failure lately"]
)
def test_few_or_old_failures_are_no_trouble(runs: int, failed_per_s: float) -> None:
    assert trouble(runs=runs, failed_runs=runs, rates=Rates(failed=failed_per_s)) is None


def test_jobs_wait_and_no_worker_reads() -> None:
    found = trouble(workers=0, visible=1204, oldest_s=1084)
    text = "1,204 jobs wait for 18 m 04 s, and no worker reads the queue."
    assert why(found) == ("no workers", "red", text)


def test_a_job_that_came_just_now_may_wait_for_a_worker() -> None:
    assert trouble(workers=0, visible=1, oldest_s=2) is None


def test_a_paused_queue_is_no_trouble() -> None:
    assert (
        trouble(workers=0, visible=9, depth=900, oldest_s=999, paused=True, rates=GROWING) is None
    )


def test_messages_wait_and_no_peer_is_subscribed() -> None:
    found = trouble("gomq", workers=0, visible=1)
    assert why(found) == ("no peers", "amber", "1 message waits, and no peer is subscribed.")


def test_consumers_of_rsmq_are_not_known_and_not_missed() -> None:
    assert trouble("rsmq", workers=None, visible=5000, oldest_s=5000) is None


def test_a_queue_grows_and_its_oldest_message_is_old() -> None:
    found = trouble(depth=5000, oldest_s=1084, rates=GROWING)
    text = "It grows 68/s, and its oldest message waits 18 m 04 s."
    assert why(found) == ("growing", "amber", text)


@pytest.mark.parametrize("sample", [{"depth": 99, "oldest_s": 999}, {"depth": 999, "oldest_s": 9}])
def test_a_small_or_young_backlog_may_grow(sample: dict[str, Any]) -> None:
    assert trouble(rates=GROWING, **sample) is None


def test_a_peer_is_silent() -> None:
    found = trouble("gomq", silent_peer=("risk-3", 251.0))
    text = "The peer risk-3 has not observed for 4 m 11 s."
    assert why(found) == ("peer silent", "amber", text)
    assert trouble("gomq", silent_peer=("risk-3", 20.0)) is None


def test_messages_die_in_a_burst() -> None:
    found = trouble(deaths=37)
    assert why(found) == ("dead letters", "red", "37 messages died in the last 5 minutes.")
    assert found is not None
    assert found.link == "dead_letters"
    assert trouble(deaths=9) is None


def test_no_leader_promotes() -> None:
    kind, severity, text = why(trouble(overdue_s=134.0))
    assert (kind, severity) == ("no leader", "red")
    assert text.startswith("A delayed job has been due for 2 m 14 s")


def test_a_consumer_is_slow() -> None:
    found = trouble("kqueue", slow_consumer=("127.0.0.1:5123", 6_500_000, 8 << 20))
    text = "The consumer 127.0.0.1:5123 is 6.2 MiB behind, of at most 8.0 MiB."
    assert why(found) == ("slow consumer", "amber", text)
    assert trouble("kqueue", slow_consumer=("127.0.0.1:5123", 1, 8 << 20)) is None


def test_keys_are_damaged() -> None:
    assert why(trouble(damaged=2))[:2] == ("damaged", "red")


def test_the_worst_trouble_is_shown() -> None:
    found = trouble(depth=5000, oldest_s=1084, rates=GROWING, deaths=37)
    assert why(found)[0] == "dead letters"
