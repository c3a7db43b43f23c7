"""`JournalReader` on a real server: what it reads, commits and forgets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.journal import JournalReader
from tambomq.rsmq import Rsmq
from tests.servers import Server


@pytest.fixture
def journal(server: Server) -> Iterator[JournalReader]:
    with Rsmq(server.url, journal=("orders",)) as rsmq:
        rsmq.create_queue("orders")
        rsmq.send_messages("orders", ["one", "two", "three"])
    with JournalReader(server.url, "rsmq", "orders", name="archive") as reader:
        yield reader


def test_entries_are_read_page_by_page(journal: JournalReader) -> None:
    first = journal.read(count=2)
    assert [each.record.body for each in first] == [b"one", b"two"]
    [last] = journal.read(first[-1].id)
    assert (last.record.event, last.record.body) == ("sent", b"three")
    assert last.id == journal.last_id()
    assert journal.read(last.id) == []


def test_commit_trims_what_all_readers_have_committed(journal: JournalReader) -> None:
    last = journal.read()[-1].id
    assert journal.commit(last) == 2
    assert journal.commit(last) == 0
    state = journal.state()
    assert state is not None
    assert [(each.name, each.committed) for each in state.readers] == [("archive", last)]


def test_forgotten_reader_is_not_waited_for(journal: JournalReader) -> None:
    journal.commit("0-0")
    assert journal.forget()
    assert not journal.forget()


def test_queue_without_journal_has_no_entries_and_no_state(server: Server) -> None:
    with JournalReader(server.url, "gomq", "nothing") as reader:
        assert (reader.read(), reader.last_id(), reader.state()) == ([], None, None)


def test_reader_without_a_name_cannot_commit(server: Server) -> None:
    with JournalReader(server.url, "rsmq", "orders") as reader:
        with pytest.raises(InvalidValue, match="JournalReader"):
            reader.commit("0-0")
        with pytest.raises(InvalidValue, match="JournalReader"):
            reader.forget()


@pytest.mark.parametrize("given", [("sqs", "orders"), ("rsmq", "")])
def test_names_that_cannot_be_are_refused(given: tuple[str, str]) -> None:
    with pytest.raises(InvalidFormat):
        JournalReader("redis://127.0.0.1:1", *given)
    with pytest.raises(InvalidFormat):
        JournalReader("redis://127.0.0.1:1", "rsmq", "orders", name="not a name")
