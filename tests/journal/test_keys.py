"""Names of journal keys, and which names are valid."""

from __future__ import annotations

import fnmatch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import InvalidFormat
from tambomq.journal.keys import PROTOCOLS, JournalKeys, any_of, queue_of

queues = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def test_a_journal_is_named_after_its_queue() -> None:
    keys = JournalKeys("gomq", "orders")
    assert keys.journal == "{tambo:gomq:orders}:journal"
    assert keys.state == "{tambo:gomq:orders}:journal:state"


@given(st.sampled_from(PROTOCOLS), queues)
def test_a_journal_is_found_again_by_its_key(protocol: str, queue: str) -> None:
    key = JournalKeys(protocol, queue).journal
    assert queue_of(protocol, key) == queue
    assert fnmatch.fnmatchcase(key, any_of(protocol))


def test_other_keys_are_not_taken_for_journals() -> None:
    for key in ("{tambo:rsmq:q}:journal", "{tambo:gomq:q}:other", "{tambo:gomq:}:journal", "q"):
        assert queue_of("gomq", key) is None


@pytest.mark.parametrize(("protocol", "queue"), [("amqp", "q"), ("", "q"), ("rsmq", "")])
def test_an_invalid_protocol_or_queue_is_refused(protocol: str, queue: str) -> None:
    with pytest.raises(InvalidFormat):
        JournalKeys(protocol, queue)


def test_text_that_utf_8_cannot_encode_is_refused() -> None:
    with pytest.raises(InvalidFormat, match="any text"):
        JournalKeys("rsmq", "\ud800")
