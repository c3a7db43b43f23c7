"""Settling received messages: the calls that are made, and their decoded replies."""

from __future__ import annotations

import hiredis
import pytest

from tambomq.errors import InvalidFormat, InvalidValue, QueueNotFound
from tambomq.rsmq import Message
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle as settle_ops
from tests.rsmq.plans import first_round_trip, run_plan, script

KEYS = Keys("ns")
OWN = ("ns:q", "ns:q:Q")
ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
HELD = Message(ID, b"body", rc=3, fr=1, visible_at=2, token="t")


def test_a_delete_may_carry_a_receipt() -> None:
    assert settle_ops.delete(KEYS, "q", ID).args == (ID, "")
    assert settle_ops.delete(KEYS, "q", ID, receipt="0").args == (ID, "0")
    assert settle_ops.hide(KEYS, "q", ID, 0.5).args == (0.5, ID, "")
    assert settle_ops.hide(KEYS, "q", ID, 60, receipt="3-t").args == (60, ID, "3-t")


def test_deletes_are_merged_into_one_repeatable_call() -> None:
    calls = [
        settle_ops.delete(KEYS, "q", ID),
        settle_ops.delete(KEYS, "q", HELD.id, receipt=HELD.receipt),
    ]
    merged = settle_ops.delete_together("q", calls)
    assert (script(merged), merged.keys) == ("delete", calls[0].keys)
    assert merged.args == (ID, "", ID, "3-t")
    assert merged.repeatable
    assert merged.decode([1, 0]) == [True, False]


def test_settling_calls_are_repeatable() -> None:
    assert settle_ops.delete(KEYS, "q", ID).repeatable
    assert settle_ops.hide(KEYS, "q", ID, 1).repeatable
    assert all(
        call.repeatable for call in first_round_trip(settle_ops.delete_batch(KEYS, "q", [ID]))
    )


def test_a_batch_of_deletes_takes_ids_and_messages_in_one_round_trip() -> None:
    one, two = first_round_trip(settle_ops.delete_batch(KEYS, "q", [HELD, *[ID] * 500]))
    assert one.args[:4] == (ID, "3-t", ID, "")
    assert (len(one.args), len(two.args)) == (1000, 2)
    (hide,) = first_round_trip(settle_ops.hide_batch(KEYS, "q", [HELD], 0.5))
    assert hide.args == (0.5, ID, "3-t")


def test_a_batch_of_deletes_reports_each_in_order() -> None:
    flags = [[True] * 500, [False]]
    assert run_plan(settle_ops.delete_batch(KEYS, "q", [ID] * 501), flags) == [True] * 500 + [False]
    with pytest.raises(StopIteration) as end:
        next(settle_ops.delete_batch(KEYS, "q", []))
    assert end.value.value == []


def test_ids_and_numbers_are_checked_before_anything_is_sent() -> None:
    with pytest.raises(InvalidFormat):
        settle_ops.delete(KEYS, "q", "short")
    with pytest.raises(InvalidFormat):
        next(settle_ops.delete_batch(KEYS, "q", ["short"]))
    with pytest.raises(InvalidValue):
        settle_ops.hide(KEYS, "q", ID, -1)


def test_a_burial_names_both_queues_and_the_receipt() -> None:
    call = settle_ops.bury(KEYS, "q", HELD, "grave", "why", realtime=True)
    assert script(call) == "bury"
    assert call.keys == (*OWN, "ns:QUEUES", "ns:grave", "ns:grave:Q", "ns:q:receipts")
    assert call.args == (ID, "3-t", "grave", b"why", "ns:rt:grave")
    assert (call.decode(1), call.decode(0)) == (True, False)
    with pytest.raises(QueueNotFound):
        call.decode(None)


def test_a_queue_is_never_its_own_dead_letter_queue() -> None:
    with pytest.raises(InvalidFormat, match="the queue itself"):
        settle_ops.bury(KEYS, "q", HELD, "q", "why")


def test_a_reason_is_cut_to_a_length_and_encoded_as_utf8() -> None:
    call = settle_ops.bury(KEYS, "q", HELD, "grave", "\udcff" + "x" * 10_000)
    reason = call.args[3]
    assert isinstance(reason, bytes)
    assert reason.startswith(b"\\udcffxxx")
    assert len(reason) < 5000


@pytest.mark.parametrize("id", [ID, r"\xff\\ 50%", "\\\\é"])
def test_a_delete_is_packed_as_its_words_are(id: str) -> None:
    call = settle_ops.delete(KEYS, "q", id)
    assert call.packed == hiredis.pack_command(call.parts)
    assert settle_ops.delete(KEYS, "q", id, receipt="1-a").packed is None
