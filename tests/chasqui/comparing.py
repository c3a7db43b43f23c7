"""The server and the model side by side: each step of a program changes and compares both."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, cast

import pytest
import redis
from hypothesis.stateful import RuleBasedStateMachine, invariant

from tambomq.chasqui.keys import GROUP, Keys
from tambomq.chasqui.ops import worker as worker_ops
from tambomq.chasqui.ops.add import Draft
from tambomq.chasqui.ops.worker import ConsumerContext, HandlerRun
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.errors import QueueFull, RemoteProtocolError
from tambomq.store.features import Features
from tambomq.store.sync import Store
from tests.chasqui import working
from tests.chasqui.model import Entry, Queue
from tests.chasqui.stored import rows

KEYS = Keys("q")
CAP = 6
NOW = 1000


class Compared(RuleBasedStateMachine):
    """Calls and server on one side, the model on the other."""

    store: ClassVar[Store]
    db: ClassVar[redis.Redis]
    has: ClassVar[Features]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushall()
        self.model = Queue(CAP)
        self.serial = 0
        self.store.run(worker_ops.create_group(self._context("c1")))

    # ── the comparison ───────────────────────────────────────────────────────

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        model, db = self.model, self.db
        self._learn()
        assert without_time(rows(db, KEYS.events)) == model.events
        assert dict(cast("Any", db.zrange(KEYS.delayed, 0, -1, withscores=True))) == model.delayed
        assert working.pending(db, KEYS) == {
            entry: (hold.consumer, hold.times) for entry, hold in model.held.items()
        }
        assert {key.decode() for key in cast("list[bytes]", db.keys())} == self._expected_keys()
        for id, member in model.indexes.items():
            assert db.get(KEYS.index(id)) == member
        for id, value in model.results.items():
            assert db.get(KEYS.result(id)) == value

    def _learn(self) -> None:
        """Compare both streams, and let the model know how the server calls their entries."""
        for key, known in ((KEYS.stream, self.model.stream), (KEYS.dlq, self.model.dlq)):
            found = rows(self.db, key)
            assert [fields for _, fields in found] == [entry.fields for entry in known]
            for entry, (id, _) in zip(known, found, strict=True):
                assert entry.id in ("", id)
                entry.id = id

    def _expected_keys(self) -> set[str]:
        model = self.model
        found = {KEYS.stream, *map(KEYS.marker, model.markers), *map(KEYS.index, model.indexes)}
        found |= {*map(KEYS.added, model.added), *map(KEYS.result, model.results)}
        found |= {KEYS.delayed} if model.delayed else set()
        found |= {KEYS.dlq} if model.had_letters else set()
        found |= {KEYS.events} if model.events else set()
        found |= {KEYS.promoter_lock} if model.leader else set()
        found |= {KEYS.paused} if model.is_paused else set()
        # Near its cap a queue needs them even if the server supports IDMP.
        found |= {KEYS.window(producer) for producer, ids in model.windows.items() if ids}
        return found

    # ── helpers ──────────────────────────────────────────────────────────────

    def _context(self, consumer: str) -> ConsumerContext:
        return ConsumerContext(KEYS, GROUP, consumer, self.has, 100_000)

    def _draft(self, name: str, id: str | None = None) -> Draft:
        self.serial += 1
        return Draft(id or f"fresh-{self.serial}", name, b"\x01", NOW, keyed=id is not None)

    def _fits(self, count: int, act: Callable[[], Any]) -> bool:
        """Whether there was room; the right error if there was none."""
        if self.model.free_slots >= count:
            act()
            return True
        with pytest.raises(QueueFull):
            act()
        return False

    def _some(self, picks: list[int]) -> list[Entry]:
        """Entries of the stream, each once, in any order."""
        self._learn()
        stream = self.model.stream
        places = dict.fromkeys(pick % len(stream) for pick in picks) if stream else ()
        return [stream[place] for place in places]

    def _ran(self, entry: Entry) -> HandlerRun:
        envelope = decode_envelope(entry.fields[1])
        return HandlerRun(entry.id, envelope.id, entry.name, envelope.attempt + 1, 5)

    def _completed(self, ran: HandlerRun) -> None:
        self.model.end(ran.entry)
        fields = ("attempt", ran.attempt, "duration_us", 5)
        self.model.add_event("completed", ran.id, ran.name, *fields)


def is_job(letter: Entry) -> bool:
    try:
        decode_envelope(letter.fields[1])
    except RemoteProtocolError:
        return False
    return True


def without_time(found: list[tuple[str, list[bytes]]]) -> list[list[bytes]]:
    assert all(fields[4] == b"ts" for _, fields in found)
    return [fields[:4] + fields[6:] for _, fields in found]
