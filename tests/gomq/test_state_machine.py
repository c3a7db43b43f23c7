"""Random programs: after each step the server holds exactly what the plain model says.

``--hypothesis-profile`` says how many programs of up to 40 steps are run: `tests.profiles`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
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

from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.store.sync import Store
from tests import profiles
from tests.gomq.model import Broker, Member
from tests.servers import Server

EXAMPLES = profiles.programs(0.6)
# So few that one dispatch is not enough.
MAX_COPIES = 9
# So long that none passes by itself.
BACKLOG_HOLD_MS = 3_600_000
OPTIONS = Options()
# Times, what waits for a second, and journals where there are some: see test_recorded_programs.py.
BESIDE = ("LASTACTION_", "HELD", "{tambo:")

keys = st.sampled_from(["a", "a", "a_b"])
consumers = st.sampled_from(["x", "x", "y_z"])
peers = st.sampled_from(["p", "q", "127.0.0.1:5467"])
members = st.builds(Member, consumers, peers)
limits = st.sampled_from([0, 1, 2, 3, 50])
# Which batch a caller says has arrived: the one it was handed last, none, or one of old.
acks = st.sampled_from(["last", "last", "", "old"])


class Programs(RuleBasedStateMachine):
    """Redis on one side, the model on the other."""

    store: ClassVar[Store]
    db: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushdb()
        self.model = Broker()
        self.silent: set[str] = set()
        self.names: Iterator[int] = count(1)

    @initialize(
        early=st.lists(members, max_size=2),
        late=st.lists(members, max_size=2),
        some=st.integers(0, 6),
    )
    def begin(self, early: list[Member], late: list[Member], some: int) -> None:
        for member in early:
            self.subscribe("a", member)
        self.publish("a", some)
        self.dispatch_all("a")
        for member in late:
            self.subscribe("a", member)
        self.publish("a", some)
        self.dispatch_all("a")

    # ── publish and dispatch ─────────────────────────────────────────────────

    @rule(key=keys, size=st.integers(1, 5))
    def publish(self, key: str, size: int) -> None:
        messages = self._messages(size)
        if messages:
            self.store.run(message_ops.push(key, [message.encode() for message in messages]))
        self.model.publish(key, messages)

    @rule(one=st.integers(0, 3), other=st.integers(0, 3))
    def publish_to_both(self, one: int, other: int) -> None:
        batches = {"a": self._messages(one), "a_b": self._messages(other)}
        for key, messages in batches.items():
            self.model.publish(key, messages)
        batches = {key: messages for key, messages in batches.items() if messages}
        if batches:
            raw = {key: [m.encode() for m in messages] for key, messages in batches.items()}
            assert self.store.run(message_ops.push_all(raw)) == one + other

    @rule(key=keys)
    def a_stranger_pushes(self, key: str) -> None:
        messages = self._messages(1)
        self.db.rpush(f"QUEUE_{key}", *messages)
        self.model.publish(key, messages)

    @rule(key=keys)
    def dispatch(self, key: str) -> None:
        receivers, waiting = len(self.model.receivers(key)), len(self.model.main.get(key, ()))
        if waiting and key in self.model.held:
            receivers = 0
        done = self.store.run(message_ops.dispatch(key))
        moved = min(waiting, max(1, MAX_COPIES // receivers)) if receivers else 0
        assert done == message_ops.DispatchResult(moved, waiting - moved, receivers)
        self.model.dispatch(key, moved)

    @rule(key=keys)
    def dispatch_all(self, key: str) -> None:
        self.a_second_passes()
        while self.model.receivers(key) and self.model.main.get(key):
            self.dispatch(key)

    @rule()
    def look_for_what_others_pushed(self) -> None:
        due = [key for key, queue in self.model.main.items() if queue and self.model.receivers(key)]
        _, found = self.store.run(message_ops.pending())
        assert sorted(found) == sorted(due)

    # ── come and go ──────────────────────────────────────────────────────────

    @rule(key=keys, member=members, hold=st.booleans())
    def subscribe(self, key: str, member: Member, hold: bool = False) -> None:
        hold_ms = message_ops.BACKLOG_HOLD_MS if hold else 0
        new = self.store.run(message_ops.subscribe(key, *member, OPTIONS, hold_ms=hold_ms))
        assert new is self.model.subscribe(key, member, hold=hold)
        self.silent.discard(member.peer)

    @rule()
    def a_second_passes(self) -> None:
        self.db.delete("HELD")
        self.model.held.clear()

    @rule(key=keys, member=members, ack=acks)
    def unsubscribe(self, key: str, member: Member, ack: str) -> None:
        acked = self._acked(member, ack)
        plan = leave_ops.unsubscribe(key, member.consumer, peer=member.peer, acked=acked)
        back = self.store.follow(plan)
        assert back == self.model.unsubscribe(key, member.consumer, acked)

    @rule(consumer=consumers, silent=st.sets(peers, min_size=1))
    def peers_are_silent_for_too_long(self, consumer: str, silent: set[str]) -> None:
        for peer in silent:
            self.db.set(f"LASTACTION_{peer}", 1)
        self.silent |= silent
        done = self.store.follow(leave_ops.reap(consumer, OPTIONS))
        assert (done.peers, done.returned) == self.model.reap(consumer, self.silent)

    @rule(consumer=consumers)
    def reap(self, consumer: str) -> None:
        done = self.store.follow(leave_ops.reap(consumer, OPTIONS))
        assert (done.peers, done.returned) == self.model.reap(consumer, self.silent)

    # ── observe ──────────────────────────────────────────────────────────────

    @rule(member=members, limit=limits, ack=acks, turn=st.integers(0, 3))
    def observe(self, member: Member, limit: int, ack: str, turn: int) -> None:
        self._observe(member, limit, ack, turn)

    @rule(member=members, limit=limits, ack=acks, turn=st.integers(0, 3))
    def observe_kept(self, member: Member, limit: int, ack: str, turn: int) -> None:
        acked, batch = self._acked(member, ack), f"batch{next(self.names)}"
        known = self._knows(member)
        found = self.store.run(
            message_ops.observe_kept(
                *member, OPTIONS, acked=acked, batch=batch, turn=turn, limit=limit
            )
        )
        assert (found.batch, _plain(found)) == self.model.observe_kept(member, limit, acked, batch)
        self._met(member, found, known=known)

    @precondition(lambda self: any(self.model.waiting.values()))
    @rule(member=members, limit=limits, key=keys)
    def observe_in_vain(self, member: Member, limit: int, key: str) -> None:
        found = self._observe(member, limit, "", 0)
        self.dispatch(key)
        size = sum(len(messages) for _, messages in found.messages)
        if size:
            assert self.store.run(message_ops.give_back(*member, found)) == size
            self.model.give_back(member, _plain(found))

    # ── invariants ──────────────────────────────────────────────────────────────

    @invariant()
    def the_server_holds_what_the_model_says(self) -> None:
        names = {name.decode() for name in cast("list[bytes]", self.db.keys())}
        allowed = {f"TALLY_{key}" for key, found in self.model.consumers.items() if found}
        allowed |= {name for name in names if name.startswith(BESIDE)}
        sets, lists = self._sets(), self._lists()
        handed = {f"HANDED_{c}_{p}" for c, p in self.model.handed}
        assert names - allowed == sets.keys() | lists.keys() | handed
        with self.db.pipeline(transaction=False) as pipeline:
            for name in sets:
                pipeline.smembers(name)
            for name in lists:
                pipeline.lrange(name, 0, -1)
            replies = pipeline.execute()
        texts = [type(reply)(word.decode() for word in reply) for reply in replies]
        assert dict(zip((*sets, *lists), texts, strict=True)) == sets | lists

    @invariant()
    def a_message_is_lost_only_if_it_was_observed(self) -> None:
        waiting = {m for queue in self.model.main.values() for m in queue}
        seen = self.model.seen()
        assert waiting | self.model.owed() | seen == self.model.published
        assert not waiting & seen

    @invariant()
    def no_message_is_observed_twice_or_out_of_order(self) -> None:
        for found in self.model.observed.values():
            for messages in found.values():
                assert len(set(messages)) == len(messages)
                never_back = [_number(m) for m in messages if m not in self.model.returned]
                assert never_back == sorted(never_back)

    def teardown(self) -> None:
        """When all have left, main queues hold the unobserved messages, and no other key exists."""
        for key, subscribers in self.model.consumers.items():
            for consumer in sorted(subscribers):
                self.unsubscribe(key, Member(consumer, "p"), "")
        kept = {f"QUEUE_{key}" for key, queue in self.model.main.items() if queue}
        names = {name.decode() for name in cast("list[bytes]", self.db.keys())}
        assert {name for name in names if not name.startswith(BESIDE)} == kept
        left = {m.decode() for name in kept for m in self.db.lrange(name, 0, -1)}  # type: ignore[union-attr]
        assert left == self.model.published - self.model.seen()

    # ── helpers ──────────────────────────────────────────────────────────────

    def _observe(
        self, member: Member, limit: int, ack: str, turn: int
    ) -> message_ops.ObserveResult:
        acked, known = self._acked(member, ack), self._knows(member)
        found = self.store.run(
            message_ops.observe(*member, OPTIONS, acked=acked, turn=turn, limit=limit)
        )
        assert _plain(found) == self.model.observe(member, limit, acked)
        self._met(member, found, known=known)
        return found

    def _met(self, member: Member, found: message_ops.ObserveResult, *, known: bool) -> None:
        assert found.subscriptions == len(self.model.subscriptions(member.consumer))
        released = self.model.release(member.consumer)
        assert found.is_due is (found.subscriptions > 0 and (released or not known))
        if found.subscriptions:
            self.silent.discard(member.peer)

    def _knows(self, member: Member) -> bool:
        return member.peer in self.model.peers.get(member.consumer, ())

    def _acked(self, member: Member, ack: str) -> str:
        return self.model.handed.get(member, ("none", {}))[0] if ack == "last" else ack

    def _messages(self, size: int) -> list[str]:
        return [f"m{next(self.names)}" for _ in range(size)]

    def _sets(self) -> dict[str, object]:
        subscribed = {key: found for key, found in self.model.consumers.items() if found}
        found: dict[str, object] = {
            f"CONSUMERS_{key}": consumers for key, consumers in subscribed.items()
        }
        for consumer in {name for names in subscribed.values() for name in names}:
            found[f"SUBSCRIPTIONS_{consumer}"] = set(self.model.subscriptions(consumer))
        found |= {f"PEERS_{name}": peers for name, peers in self.model.peers.items() if peers}
        if subscribed:
            found["SUBSCRIBED_KEYS"] = {f"QUEUE_{key}" for key in subscribed}
        return found

    def _lists(self) -> dict[str, object]:
        found: dict[str, object] = {f"QUEUE_{k}": queue for k, queue in self.model.main.items()}
        for (key, (consumer, peer)), waiting in self.model.waiting.items():
            found[f"MESSAGES_{key}_{consumer}_{peer}"] = waiting
        return {name: messages for name, messages in found.items() if messages}


def _number(message: str) -> int:
    return int("".join(filter(str.isdigit, message)))


def _plain(found: message_ops.ObserveResult) -> dict[str, list[str]]:
    return {key.decode(): [m.decode() for m in messages] for key, messages in found.messages}


def run_programs(machine: Any, store: Store, db: redis.Redis, examples: int) -> None:
    """Run *machine* with *examples* programs."""
    machine.store, machine.db = store, db
    try:
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=40,
                deadline=None,
                suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
            ),
        )
    finally:
        store.close()


@pytest.mark.timeout(60 + EXAMPLES)
def test_no_program_makes_server_and_model_differ(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(message_ops, "MAX_COPIES", MAX_COPIES)
    monkeypatch.setattr(message_ops, "BACKLOG_HOLD_MS", BACKLOG_HOLD_MS)
    run_programs(Programs, Store(server.url), db, EXAMPLES)
