"""Random programs on a queue with changing bounds: nothing exceeds them, and nothing is lost.

After each step the queue and its dead letters are exactly what the plain model says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import pytest
import redis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tambomq.errors import BatchIncomplete, QueueFull
from tambomq.rsmq import Rsmq
from tambomq.rsmq.ops import messages as message_ops
from tests import profiles
from tests.rsmq.model import Queue, Stored

EXAMPLES = profiles.programs()
CHUNK = 3
FAR_MS = 3_600_000

bodies = st.binary(max_size=6)
picks = st.integers(0, 50)


class BoundedPrograms(RuleBasedStateMachine):
    """Client and server on one side, the model on the other."""

    client: ClassVar[Rsmq]
    db: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushall()
        self.client.create_queue("q", vt=3600)
        self.queue, self.dead = Queue(3600, 0, 65536), Queue(3600, 0, -1)
        self.refused = self.overflowed = self.expired = 0

    @initialize(batch=st.lists(bodies, max_size=5))
    def begin(self, batch: list[bytes]) -> None:
        self.send_batch(batch)

    @rule(
        most=st.sampled_from([None, None, -1, 1, 3, 8]),
        size=st.sampled_from([None, None, -1, 4, 12, 30]),
        ttl_s=st.sampled_from([None, None, -1, 1800]),
        overflow=st.sampled_from(["refuse", "dead-letter"]),
    )
    def set_bounds(
        self, most: int | None, size: int | None, ttl_s: int | None, overflow: str
    ) -> None:
        found = self.client.set_queue_bounds(
            "q", max_messages=most, max_bytes=size, message_ttl_s=ttl_s, overflow=overflow
        )
        known = self.queue
        known.max_messages = known.max_messages if most is None else most
        known.max_bytes = known.max_bytes if size is None else size
        known.ttl_ms = known.ttl_ms if ttl_s is None else max(-1, ttl_s * 1000)
        known.dead_letters = overflow == "dead-letter" and known.is_bounded
        if not known.is_bounded:
            self.refused = self.overflowed = self.expired = 0
        assert (found.max_messages, found.max_bytes) == (known.max_messages, known.max_bytes)

    @rule(body=bodies)
    def send(self, body: bytes) -> None:
        self._send([body], lambda: [self.client.send_message("q", body)])

    @rule(batch=st.lists(bodies, max_size=7))
    def send_batch(self, batch: list[bytes]) -> None:
        if batch:
            self._send(batch, lambda: self.client.send_messages("q", batch))

    def _send(self, batch: list[bytes], act: Callable[[], Sequence[str | None]]) -> None:
        try:
            ids = act()
        except QueueFull:
            ids = [None] * len(batch)
        except BatchIncomplete as part:
            ids = part.ids
        for first in range(0, len(batch), CHUNK):
            chunk = list(zip(ids[first : first + CHUNK], batch[first:], strict=False))
            fit = self.queue.admits([body for _, body in chunk])
            if fit < len(chunk) and not self.queue.dead_letters:
                assert {id for id, _ in chunk} == {None}
                self.refused += len(chunk)
                continue
            for place, (id, body) in enumerate(chunk):
                assert id is not None
                if place < fit:
                    self.queue.send(id, body, self._score("q", id))
                else:
                    self._bury(id, body, "queue full")
                    self.overflowed += 1

    @rule(count=st.integers(1, 4), pop=st.booleans())
    def receive(self, count: int, pop: bool) -> None:
        self._expire()
        popped = self.client.pop_message("q") if pop else None
        if pop:
            id, stored, _ = self.queue.pop(self._now())
            assert (popped and popped.id) == id
            assert stored is None or popped is not None
            return
        received = self.client.receive_messages("q", count)
        taken = []
        for first in range(0, count, CHUNK):
            more, _ = self.queue.receive(min(CHUNK, count - first), FAR_MS, self._now())
            taken += more
        assert [message.id for message in received] == taken
        for message in received:
            self.queue.messages[message.id].score = message.visible_at

    @rule()
    def receive_one(self) -> None:
        self._expire()
        message = self.client.receive_message("q")
        taken, _ = self.queue.receive(1, FAR_MS, self._now())
        assert [message.id] == taken if message else not taken
        if message:
            self.queue.messages[message.id].score = message.visible_at

    @rule()
    def sweep(self) -> None:
        expired = self._expire()
        assert self.client.sweep_expired("q") == expired

    @rule(pick=picks, by_another_library=st.booleans())
    def delete(self, pick: int, by_another_library: bool) -> None:
        if ids := self.queue.order():
            id = ids[pick % len(ids)]
            del self.queue.messages[id]
            if by_another_library:
                self.db.zrem("rsmq:q", id)
                self.db.hdel("rsmq:q:Q", id, f"{id}:rc", f"{id}:fr")
            else:
                assert self.client.delete_message("q", id)

    @rule(pick=picks, ago_ms=st.sampled_from([FAR_MS, 60_000, -FAR_MS]))
    def time_passes(self, pick: int, ago_ms: int) -> None:
        if ids := self.queue.order():
            id, score = ids[pick % len(ids)], self._now() - ago_ms
            self.db.zadd("rsmq:q", {id: score})
            self.queue.messages[id].score = score

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        for name, known in (("q", self.queue), ("q-dead", self.dead)):
            stored = cast("dict[bytes, bytes]", self.db.hgetall(f"rsmq:{name}:Q"))
            held = {id for id in known.messages if stored.get(id.encode()) is not None}
            assert held == {key.decode() for key in stored if len(key) == 32}
            assert held == known.messages.keys()
            listed = cast("Any", self.db.zrange(f"rsmq:{name}", 0, -1))
            assert {id.decode() for id in listed} == held
        reasons = cast("dict[bytes, bytes]", self.db.hgetall("rsmq:q-dead:Q"))
        for id, letter in self.dead.messages.items():
            assert reasons[f"{id}:why".encode()].decode().startswith(letter.why or "?")
        assert bool(self.db.exists("rsmq:q:bounds")) is self.queue.is_bounded
        bounds = self.client.get_queue_attributes("q").bounds
        counted = (bounds.refused, bounds.overflowed, bounds.expired)
        assert counted == (self.refused, self.overflowed, self.expired)
        if self.queue.max_bytes > 0:
            assert bounds.bytes >= self.queue.body_bytes
        else:
            assert not self.db.exists("rsmq:q:bounds:sizes")

    def _expire(self) -> int:
        expired = self.queue.expired(self._now())
        for id in expired:
            self._bury(id, self.queue.messages.pop(id).body or b"", "expired")
        self.expired += len(expired)
        return len(expired)

    def _bury(self, id: str, body: bytes, why: str) -> None:
        self.dead.messages[id] = Stored(body, 0, why=why)

    def _now(self) -> int:
        whole, micros = self.db.time()
        return whole * 1000 + micros // 1000

    def _score(self, queue: str, id: str) -> int:
        score = self.db.zscore(f"rsmq:{queue}", id)
        assert score is not None
        return int(score)


@pytest.mark.timeout(60 + EXAMPLES)
def test_no_program_exceeds_a_bound_or_loses_a_message(
    rsmq: Rsmq, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "CHUNK", CHUNK)
    BoundedPrograms.client, BoundedPrograms.db = rsmq, db
    run_state_machine_as_test(
        BoundedPrograms,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
