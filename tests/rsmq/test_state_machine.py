"""Random programs: after each step the server holds exactly what the plain model says.

``--hypothesis-profile`` says how many programs of up to 40 steps are run: `tests.profiles`.
"""

from __future__ import annotations

from collections import defaultdict
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
    precondition,
    rule,
    run_state_machine_as_test,
)

from tambomq.errors import MessageTooLong, QueueExists, QueueNotFound
from tambomq.rsmq import Message, Rsmq
from tambomq.rsmq.keys import ATTRIBUTES
from tambomq.rsmq.ops import messages as message_ops
from tambomq.rsmq.ops import settle as settle_ops
from tests import profiles
from tests.rsmq.model import Queue, Stored

EXAMPLES = profiles.programs()
# Small, so that a batch of seven takes three scripts.
CHUNK = 3
FAR = 3600

queues = st.sampled_from(["a", "a", "a", "a", "b", "a-dead"])
seconds = st.sampled_from([0, FAR])
maybe_seconds = st.sampled_from([None, 0, FAR])
bodies = st.binary(max_size=5) | st.just(b"x" * 1025)
picks = st.integers(0, 50)


class Programs(RuleBasedStateMachine):
    """Client and server on one side, the model on the other."""

    client: ClassVar[Rsmq]
    db: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushall()
        self.model: dict[str, Queue] = {}
        self.held: defaultdict[str, list[Message]] = defaultdict(list)

    @initialize(vt=seconds, batch=st.lists(bodies, min_size=1, max_size=5))
    def begin(self, vt: int, batch: list[bytes]) -> None:
        self.create("a", vt, 0, -1)
        self.send_batch("a", batch, None)
        self.receive("a", CHUNK, 0)

    # ── queues ───────────────────────────────────────────────────────────────

    @rule(queue=queues, vt=seconds, delay=seconds, maxsize=st.sampled_from([-1, 1024]))
    def create(self, queue: str, vt: int, delay: int, maxsize: int) -> None:
        if queue in self.model:
            with pytest.raises(QueueExists):
                self.client.create_queue(queue, vt=vt, delay=delay, maxsize=maxsize)
        else:
            self.client.create_queue(queue, vt=vt, delay=delay, maxsize=maxsize)
            self.model[queue] = Queue(vt, delay, maxsize)

    @rule(queue=queues, really=st.integers(0, 3))
    def drop(self, queue: str, really: int) -> None:
        if queue not in self.model or not really:
            self._existing(queue, lambda: self.client.delete_queue(queue))
            self.model.pop(queue, None)

    @rule(queue=queues, vt=maybe_seconds, delay=maybe_seconds)
    def change(self, queue: str, vt: int | None, delay: int | None) -> None:
        maxsize = 1024 if vt == delay else None
        reported = self._existing(
            queue,
            lambda: self.client.set_queue_attributes(queue, vt=vt, delay=delay, maxsize=maxsize),
        )
        if reported is not None:
            known = self.model[queue]
            known.vt = known.vt if vt is None else vt
            known.delay = known.delay if delay is None else delay
            known.maxsize = known.maxsize if maxsize is None else maxsize
            self._agrees(known, reported)

    @rule(queue=queues)
    def attributes(self, queue: str) -> None:
        reported = self._existing(queue, lambda: self.client.get_queue_attributes(queue))
        if reported is not None:
            self._agrees(self.model[queue], reported)

    @rule(queue=queues)
    def stats(self, queue: str) -> None:
        reported = self._existing(queue, lambda: self.client.get_queue_stats(queue))
        if reported is None:
            return
        stored = self.model[queue].messages.values()
        whole = [message for message in stored if message.body is not None]
        hidden = [message for message in whole if message.score > self._now()]
        assert reported.visible == len(whole) - len(hidden)
        assert reported.in_flight == sum(message.rc > 0 for message in hidden)
        assert reported.delayed == sum(message.rc == 0 for message in hidden)
        assert reported.members_without_body == len(stored) - len(whole)
        assert reported.body_bytes == sum(len(message.body or b"") for message in whole)
        assert reported.bodies_without_member == reported.stray_fields == 0

    @rule(queue=queues, really=st.integers(0, 3))
    def purge(self, queue: str, really: int) -> None:
        if not really:
            reported = self._existing(queue, lambda: self.client.purge_queue(queue))
            if reported is not None:
                assert reported == len(self.model[queue].messages)
                self.model[queue].messages.clear()
                self.model[queue].recorded = False

    # ── send and receive ─────────────────────────────────────────────────────

    @rule(queue=queues, body=bodies, delay=maybe_seconds)
    def send(self, queue: str, body: bytes, delay: int | None) -> None:
        self._send(
            queue, [body], delay, lambda: [self.client.send_message(queue, body, delay=delay)]
        )

    @rule(queue=queues, batch=st.lists(bodies, max_size=7), delay=maybe_seconds)
    def send_batch(self, queue: str, batch: list[bytes], delay: int | None) -> None:
        if batch:
            self._send(
                queue, batch, delay, lambda: self.client.send_messages(queue, batch, delay=delay)
            )
        else:
            assert self.client.send_messages(queue, batch, delay=delay) == []

    def _send(
        self, queue: str, batch: list[bytes], delay: int | None, act: Callable[[], list[str]]
    ) -> None:
        known = self.model.get(queue)
        if known is not None and not all(map(known.fits, batch)):
            with pytest.raises(MessageTooLong):
                act()
            return
        before = self._now()
        ids = self._existing(queue, act)
        if ids is None or known is None:
            return
        after = self._now()
        wait_ms = 1000 * (known.delay if delay is None else delay)
        for id, body in zip(ids, batch, strict=True):
            score = self._score(queue, id)
            assert before + wait_ms <= score <= after + wait_ms
            known.send(id, body, score)
        assert [id for id in known.order() if id in ids] == ids

    @rule(queue=queues, count=st.integers(1, 7), vt=maybe_seconds)
    def receive(self, queue: str, count: int, vt: int | None) -> None:
        known, before = self.model.get(queue), self._now()
        hide_s = known.vt if known and vt is None else vt
        if hide_s == 0:
            # A second script would receive again what the first has received.
            count = min(count, CHUNK)
        received = self._existing(queue, lambda: self.client.receive_messages(queue, count, vt=vt))
        if received is None or known is None or hide_s is None:
            return
        taken: list[str] = []
        for first in range(0, count, CHUNK):
            more, aside = known.receive(min(CHUNK, count - first), hide_s * 1000, before)
            taken += more
            self._read_back(queue, aside)
        assert [message.id for message in received] == taken
        for message in received:
            assert 0 <= message.visible_at - hide_s * 1000 - before <= self._now() - before
            self._same(message, self._first_received(known, message))
        known.recorded = known.recorded or bool(received)
        self.held[queue] += received

    @rule(queue=queues)
    def pop(self, queue: str) -> None:
        known, before = self.model.get(queue), self._now()
        if known is None:
            self._existing(queue, lambda: self.client.pop_message(queue))
            return
        popped = self.client.pop_message(queue)
        id, stored, aside = known.pop(before)
        self._read_back(queue, aside)
        assert (popped and popped.id) == id
        if popped and stored:
            assert (popped.body, popped.rc) == (stored.body, stored.rc + 1)
            assert popped.fr == stored.fr or (stored.rc == 0 and popped.fr == popped.visible_at)

    @rule(queue=queues, first=st.integers(0, 3), count=st.integers(1, 5))
    def peek(self, queue: str, first: int, count: int) -> None:
        seen = self._existing(queue, lambda: self.client.peek_messages(queue, count, first=first))
        if seen is None:
            return
        stored = self.model[queue].messages
        listed = self.model[queue].order()[first : first + count]
        assert [m.id for m in seen] == [id for id in listed if stored[id].body is not None]
        for message in seen:
            self._same(message, stored[message.id])

    # ── settle ───────────────────────────────────────────────────────────────

    @rule(queue=queues, pick=picks)
    def delete(self, queue: str, pick: int) -> None:
        id = self._any_id(queue, pick)
        deleted = self._existing(queue, lambda: self.client.delete_message(queue, id))
        if deleted is not None:
            assert deleted is self.model[queue].delete(id, None)

    @rule(queue=queues, chosen=st.lists(picks, min_size=1, max_size=5))
    def delete_held(self, queue: str, chosen: list[int]) -> None:
        if held := self._some_held(queue, chosen):
            deleted = self._existing(queue, lambda: self.client.delete_messages(queue, held))
            if deleted is not None:
                assert deleted == [self.model[queue].delete(m.id, m.receipt) for m in held]

    @rule(queue=queues, pick=picks, vt=seconds, with_receipt=st.booleans())
    def hide(self, queue: str, pick: int, vt: int, with_receipt: bool) -> None:
        held = self._some_held(queue, [pick])
        id = held[0].id if held else self._any_id(queue, pick)
        receipt = held[0].receipt if held and with_receipt else None
        done = self._existing(
            queue, lambda: self.client.change_message_visibility(queue, id, vt, receipt=receipt)
        )
        if done is not None:
            assert done is self.model[queue].holds(id, receipt)
            self._read_back(queue, [id] if done else [])

    @rule(queue=queues, pick=picks, why=st.text(max_size=5))
    def bury(self, queue: str, pick: int, why: str) -> None:
        held = self._some_held(queue, [pick])
        if not held:
            return
        dead, keys = f"{queue}-dead", self.client._keys
        call = settle_ops.bury(keys, queue, held[0], dead, why)
        moved = self._existing(queue, lambda: self.client._store.run(call))
        if moved is None:
            return
        known, id = self.model[queue], held[0].id
        stored = known.messages.get(id)
        assert moved is (
            known.holds(id, held[0].receipt) and stored is not None and stored.body is not None
        )
        if moved and stored is not None:
            del known.messages[id]
            dead_letters = self.model.setdefault(dead, Queue(known.vt, 0, -1))
            dead_letters.totalsent += 1
            dead_letters.messages[id] = Stored(stored.body, self._score(dead, id), why=why)

    # ── events outside the client ────────────────────────────────────────────

    @precondition(lambda self: self.model)
    @rule(queue=queues, pick=picks, score=st.sampled_from([1, 2, 3, 99_999_999_999_999]))
    def time_passes(self, queue: str, pick: int, score: int) -> None:
        known, id = self.model.get(queue), self._any_id(queue, pick)
        if known and id in known.messages:
            self.db.zadd(f"rsmq:{queue}", {id: score})
            known.messages[id].score = score

    @rule(queue=queues, pick=picks)
    def a_body_is_lost(self, queue: str, pick: int) -> None:
        known, id = self.model.get(queue), self._any_id(queue, pick)
        if known and id in known.messages and pick % 3 == 0:
            self.db.hdel(f"rsmq:{queue}:Q", id)
            known.messages[id].body = None

    # ── the comparison ───────────────────────────────────────────────────────

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        keys = {f"rsmq:{name}:Q".encode() for name in self.model}
        keys |= {f"rsmq:{name}".encode() for name, known in self.model.items() if known.messages}
        keys |= {b"rsmq:QUEUES"} if self.model else set()
        keys |= {
            f"rsmq:{name}:receipts".encode() for name, known in self.model.items() if known.recorded
        }
        # Tokens of attribute changes are kept for an hour.
        stored_keys = {key for key in cast("list[bytes]", self.db.keys()) if b":set:" not in key}
        assert stored_keys == keys
        assert self.client.list_queues() == sorted(self.model)
        for name, known in self.model.items():
            stored = cast("dict[bytes, bytes]", self.db.hgetall(f"rsmq:{name}:Q"))
            created, modified = int(stored.pop(b"created")), int(stored.pop(b"modified"))
            assert created <= modified
            assert stored == known.fields()
            listed = cast("Any", self.db.zrange(f"rsmq:{name}", 0, -1, withscores=True))
            assert dict(listed) == known.scores()

    # ── helpers ──────────────────────────────────────────────────────────────

    def _existing(self, queue: str, act: Callable[[], Any]) -> Any:
        """Return the result of *act*; without such a queue check its error and return `None`."""
        if queue in self.model:
            return act()
        with pytest.raises(QueueNotFound):
            act()
        return None

    def _now(self) -> int:
        whole, micros = self.db.time()
        return whole * 1000 + micros // 1000

    def _score(self, queue: str, id: str) -> int:
        score = self.db.zscore(f"rsmq:{queue}", id)
        assert score is not None
        return int(score)

    def _read_back(self, queue: str, ids: Sequence[str]) -> None:
        for id in ids:
            self.model[queue].messages[id].score = self._score(queue, id)

    def _any_id(self, queue: str, pick: int) -> str:
        ids = self.model[queue].order() if queue in self.model else []
        ids.append("x" * 32)
        return ids[pick % len(ids)]

    def _some_held(self, queue: str, chosen: Sequence[int]) -> list[Message]:
        """Received messages, mostly of those that still exist."""
        stored = self.model[queue].messages if queue in self.model else {}
        held = self.held[queue][-1:] + [m for m in self.held[queue] if m.id in stored]
        return [held[pick % len(held)] for pick in chosen if held]

    def _first_received(self, known: Queue, message: Message) -> Stored:
        stored = known.messages[message.id]
        stored.score = message.visible_at
        stored.fr = stored.fr or message.fr
        assert message.token not in ("", stored.token)
        stored.token = message.token
        return stored

    def _same(self, message: Message, stored: Stored) -> None:
        assert (message.body, message.rc, message.fr) == (stored.body, stored.rc, stored.fr)
        assert (message.visible_at, message.receipt) == (stored.score, stored.receipt)

    def _agrees(self, known: Queue, reported: Any) -> None:
        assert (reported.vt, reported.delay, reported.maxsize) == (
            known.vt,
            known.delay,
            known.maxsize,
        )
        assert (reported.totalsent, reported.totalrecv) == (known.totalsent, known.totalrecv)
        assert reported.msgs == len(known.messages)
        # A message that becomes visible in this millisecond still counts as hidden.
        now = self._now()
        hidden = [message.score for message in known.messages.values() if message.score > now - 50]
        assert len([score for score in hidden if score > now]) <= reported.hiddenmsgs <= len(hidden)


@pytest.mark.timeout(60 + EXAMPLES)
def test_no_program_makes_server_and_model_differ(
    rsmq: Rsmq, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ATTRIBUTES[-2:] == ("created", "modified")
    monkeypatch.setattr(message_ops, "CHUNK", CHUNK)
    monkeypatch.setattr(settle_ops, "CHUNK", CHUNK)
    Programs.client, Programs.db = rsmq, db
    run_state_machine_as_test(
        Programs,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
