"""Random programs on keys with journals: each observed message is journalled as delivered."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import pytest
import redis
from hypothesis.stateful import initialize, invariant

from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.journal import record_deliveries
from tambomq.journal import ops as journal_ops
from tambomq.journal.keys import JournalKeys
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Call, Script
from tambomq.store.sync import Store
from tests.gomq.model import Broker, Member
from tests.gomq.test_state_machine import (
    BACKLOG_HOLD_MS,
    EXAMPLES,
    MAX_COPIES,
    Programs,
    run_programs,
)
from tests.servers import Server

T = TypeVar("T")

RECORDING = JournalPolicy("gomq", ("*",))
KEYS = ("a", "a_b")


class Journalling(Store):
    """Makes calls as a server with journals makes them."""

    def run(self, call: Call[T]) -> T:
        script = call.verb.name if isinstance(call.verb, Script) else ""
        if script in ("observe", "observe_kept"):
            call = record_deliveries(RECORDING, call, cast("str", call.args[0]))
        return super().run(call)

    def outcomes(self, calls: Any) -> list[Any]:
        return super().outcomes([_telling(call) for call in calls])


def _telling(call: Call[Any]) -> Call[Any]:
    if isinstance(call.verb, Script) and call.verb.name == "unsubscribe":
        return record_deliveries(RECORDING, call, cast("str", call.args[1]))
    return call


class Witness(Broker):
    """Remembers in which order messages were observed, also those that were given back."""

    def __init__(self) -> None:
        super().__init__()
        self.delivered: dict[str, list[tuple[str, str]]] = {key: [] for key in KEYS}

    def _note(self, member: Member, taken: dict[str, list[str]]) -> dict[str, list[str]]:
        for key, messages in taken.items():
            self.delivered[key] += [(message, member.consumer) for message in messages]
        return super()._note(member, taken)


class RecordedPrograms(Programs):
    """The same programs, and journals beside them."""

    model: Witness

    def __init__(self) -> None:
        super().__init__()
        self.model = Witness()

    @initialize()
    def keys_have_journals(self) -> None:
        for key in KEYS:
            self.store.run(journal_ops.commit(JournalKeys("gomq", key), "reader", "0-0"))

    @invariant()
    def journals_say_what_was_observed(self) -> None:
        for key in KEYS:
            found: Any = self.db.xrange(JournalKeys("gomq", key).journal)
            entries = [(_message(fields[b"id"]), fields[b"n"].decode()) for _, fields in found]
            assert entries == self.model.delivered[key]

    def _messages(self, size: int) -> list[str]:
        return [_message(b"%d" % next(self.names)) for _ in range(size)]


def _message(id: bytes) -> str:
    return f'{{"id":"{id.decode()}"}}'


@pytest.mark.timeout(60 + EXAMPLES)
def test_no_program_makes_journals_and_model_differ(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", MAX_COPIES)
    monkeypatch.setattr(message_ops, "BACKLOG_HOLD_MS", BACKLOG_HOLD_MS)
    run_programs(RecordedPrograms, Journalling(server.url), db, EXAMPLES)
