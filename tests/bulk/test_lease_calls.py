"""Lease calls and plans, chunk by chunk, without a server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import pytest

from tambomq.bulk import lease_calls
from tambomq.bulk.lease_model import CHUNK, AckCounts, Claim, LeaseRequest, OpenClaim
from tambomq.errors import InvalidValue, LeaseLost, LeaseTaken, QueueError
from tambomq.store.call import Arg, Call, Plan

T = TypeVar("T")


def step(*words: Any) -> Call[Any]:
    """A call that says what it was made of."""
    return Call("STEP", (), words, list)


def followed(plan: Plan[T], answers: Iterable[Any]) -> tuple[list[tuple[Any, ...]], T]:
    """Return the calls of *plan*, one per round trip, and its result for *answers*."""
    asked: list[tuple[Any, ...]] = []
    replies = iter(answers)
    try:
        calls = next(plan)
        while True:
            (call,) = calls
            asked.append(call.args)
            calls = plan.send([next(replies)])
    except StopIteration as end:
        return asked, end.value


def test_a_claim_grows_by_chunks_until_there_is_enough() -> None:
    full = [Claim(CHUNK, CHUNK, "m"), Claim(CHUNK + 5, 5, "m")]
    asked, got = followed(lease_calls.claim_in_chunks(step, CHUNK + 5), full)
    assert asked == [(0, CHUNK), (CHUNK, 5)]
    assert got == Claim(CHUNK + 5, CHUNK + 5, "m")


def test_a_claim_ends_when_a_chunk_is_not_full() -> None:
    asked, got = followed(lease_calls.claim_in_chunks(step, 5 * CHUNK), [Claim(7, 7, "m")])
    assert (asked, got) == ([(0, CHUNK)], Claim(7, 7, "m"))


def test_an_open_claim_has_no_new_messages() -> None:
    _, got = followed(lease_calls.claim_in_chunks(step, 10), [Claim(3, 0, "old")])
    assert got == Claim(3, 0, "old")


def test_chunked_calls_cover_each_member_once() -> None:
    asked, total = followed(lease_calls.sum_over_members(step), [(CHUNK, 2), (CHUNK, 0), (9, 1)])
    assert (asked, total) == ([(0,), (CHUNK,), (2 * CHUNK,)], 3)


@pytest.mark.parametrize(("size", "trips"), [(0, 0), (1, 1), (CHUNK, 1), (CHUNK + 1, 2)])
def test_each_member_is_looked_at_once_to_prune(size: int, trips: int) -> None:
    asked, left = followed(lease_calls.prune_in_chunks(step("same"), size), [[5]] * trips)
    assert (len(asked), left) == (trips, 5 if trips else 0)


def test_outcomes_of_chunks_are_added_up() -> None:
    rounds = [[8, 1, 0, 1, 0], [0, 2, 3, 0, 1]]
    asked, got = followed(lease_calls.acknowledge_in_chunks(step("same")), rounds)
    assert (len(asked), got) == (2, AckCounts(done=3, retried=3, dead=1, lost=1))


def test_expired_claims_are_released_except_that_of_a_lease() -> None:
    plan = lease_calls.release_expired("leases", step, "mine")
    assert [call.parts for call in next(plan)] == [("SMEMBERS", "leases")]
    assert [call.args for call in plan.send([["a", "b", "mine"]])] == [("a",), ("b",)]
    with pytest.raises(StopIteration) as end:
        plan.send([0, 4])
    assert end.value.value == {"b": 4}


def test_without_leases_no_further_call_is_made() -> None:
    asked, got = followed(lease_calls.release_expired("leases", step, ""), [[]])
    assert (asked, got) == ([()], {})


def test_verdicts_on_a_claim_that_is_not_open_are_refused() -> None:
    request = LeaseRequest("q", "l", "one")
    verdicts: list[Arg] = ["a", b"", "b", b"r0"]
    call = lease_calls.write_verdicts(("ledger", "verdicts"), request, 3, "m", verdicts)
    assert call.args == ("one", 3, "m", "a", b"", "b", b"r0")
    call.decode([1])
    with pytest.raises(QueueError, match="claim 3 of lease 'l' on queue 'q' is not open: its"):
        call.decode([0])
    with pytest.raises(LeaseLost, match="driver two has it now"):
        call.decode([b"fenced", b"driver two"])


def test_a_claim_is_encoded_as_text_and_can_be_parsed() -> None:
    claim = OpenClaim("owner", 12, "token")
    assert OpenClaim.parse(claim.encode()) == claim
    for word in ("12", "12.token", "x.token.owner", "²..", ""):
        with pytest.raises(InvalidValue, match="claim must be as the leased stream has it"):
            OpenClaim.parse(word)


def test_a_lease_that_is_in_use_is_not_forgotten() -> None:
    call = lease_calls.forget(("leases", "ledger", "more"), "q", "l", "")
    assert (call.keys, call.decode([b"gone", 1]), call.decode([b"gone", 0])) == (
        ("leases", "ledger", "more"),
        True,
        False,
    )
    with pytest.raises(LeaseTaken, match="held by driver one"):
        call.decode([b"held", b"driver one"])
    with pytest.raises(QueueError, match="has claim 2 open"):
        call.decode([b"open", 2])
