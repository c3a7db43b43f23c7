"""The result of failovers: what is lost, what is stored twice, and for how long nothing worked."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.chaos.failovers.result import Failover, Result, Sent

FAILOVERS = [Failover("kill", 10.0, 11.5, 13.0), Failover("freeze", 20.0, 21.0, 23.0)]
TIMES = [9.0, 9.9, 12.1, 12.2, 19.5, 20.1, 22.6, 22.7]


def result_of(*, durable: str, stored: list[int], replicas: int = 1) -> Result:
    result = Result(durable, replicas, 2000, 7)
    result.failovers = FAILOVERS
    confirmed = {f"rsmq:{number}": time for number, time in enumerate(TIMES)}
    texts = Counter(f"rsmq:{number}" for number in stored)
    result.sent = [Sent("rsmq", 9, 20.0, confirmed, {"NotDurable": 1}, texts)]
    return result


def test_the_time_without_service_is_the_longest_gap_until_the_next_failover() -> None:
    result = result_of(durable="memory", stored=list(range(8)))
    assert result.gaps == pytest.approx([7.3, 2.5])
    result.failovers = FAILOVERS[1:]
    assert result.gaps == pytest.approx([2.5])


def test_clients_have_followed_at_the_first_confirmed_send_after_the_promotion() -> None:
    result = result_of(durable="memory", stored=list(range(8)))
    assert result.followed == pytest.approx([0.6, 1.6])
    assert json.loads(json.dumps(result.json))["followed_s"]["p95"] == pytest.approx(1.6)


def test_a_confirmed_message_that_is_not_stored_is_lost() -> None:
    result = result_of(durable="memory", stored=[2, 3, 4, 6, 7])
    assert result.sent[0].lost == ["rsmq:0", "rsmq:1", "rsmq:5"]
    assert [each.count for each in result.losses] == [2, 1]
    assert [each.first_s for each in result.losses] == pytest.approx([-1.0, 0.1])
    assert [each.last_s for each in result.losses] == pytest.approx([-0.1, 0.1])
    assert not result.broken


def test_duplicates_are_counted_and_unconfirmed_messages_are_not() -> None:
    (sent,) = result_of(durable="memory", stored=[*range(8), 3, 3, 8]).sent
    assert (sent.lost, sent.doubles) == ([], 2)


@pytest.mark.parametrize(
    ("durable", "replicas", "broken"),
    [("replicas:1", 1, True), ("replicas:1", 2, False), ("replicas:2", 2, True)],
)
def test_a_loss_breaks_the_promise_if_all_replicas_had_confirmed(
    durable: str, replicas: int, broken: bool
) -> None:
    kept = result_of(durable=durable, stored=list(range(8)), replicas=replicas)
    assert not kept.broken
    result = result_of(durable=durable, stored=list(range(7)), replicas=replicas)
    assert result.broken is broken


def test_a_result_is_shown_as_lines_and_as_json() -> None:
    result = result_of(durable="replicas:1", stored=list(range(7)))
    text = "\n".join(result.lines)
    assert "lost 1, which must not be" in text
    assert "NotDurable 1" in text
    shown = json.loads(json.dumps(result.json))
    assert (shown["lost"], shown["broken"]) == (1, True)
    assert shown["without_service_s"]["p50"] == pytest.approx(2.5)
    assert shown["without_service_s"]["p95"] == pytest.approx(7.3)
