"""Random programs with other operations between any two steps of a peer's leaving.

A message that no peer has observed is always in Redis. A message that a peer has observed, or will,
is never requeued.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from itertools import count
from typing import ClassVar, cast

import pytest
import redis
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tambomq.gomq.model import Options
from tambomq.gomq.ops import leave as leave_ops
from tambomq.gomq.ops import messages as message_ops
from tambomq.gomq.ops.leave import ReceiverState
from tambomq.store.sync import Store
from tests.gomq.model import Member
from tests.gomq.test_state_machine import run_programs
from tests.servers import Server

EXAMPLES = int(os.environ.get("TAMBO_TEST_EXAMPLES", "300"))
# One step is then one queue that is begun with, or a few messages.
STEPS = 13
OPTIONS = Options()
KEYS = ("a", "a_b")

keys = st.sampled_from(["a", "a", "a_b"])
consumers = st.sampled_from(["x", "y_z"])
peers = st.sampled_from(["p", "q", "r"])
members = st.builds(Member, consumers, peers)


class Steps(RuleBasedStateMachine):
    """Redis, and what was published and observed."""

    store: ClassVar[Store]
    db: ClassVar[redis.Redis]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushdb()
        self.names: Iterator[int] = count(1)
        self.published: dict[str, str] = {}
        self.observed: Counter[tuple[Member, str]] = Counter()
        self.handed: dict[Member, message_ops.ObserveResult] = {}
        self.present: dict[str, ReceiverState] = {}
        self.cursors: dict[str, bytes] = {}

    @initialize(early=st.sets(members, max_size=4), late=st.sets(members, max_size=3))
    def begin(self, early: set[Member], late: set[Member]) -> None:
        for some in (early, late):
            for member in sorted(some):
                self.subscribe("a", member)
            self.publish("a", 6)

    @rule(key=keys, size=st.integers(1, 5))
    def publish(self, key: str, size: int) -> None:
        messages = [f"m{next(self.names)}" for _ in range(size)]
        self.published |= dict.fromkeys(messages, key)
        self.store.run(message_ops.push(key, [message.encode() for message in messages]))
        self.store.run(message_ops.dispatch(key))

    @rule(key=keys)
    def dispatch(self, key: str) -> None:
        self.store.run(message_ops.dispatch(key))

    @rule(key=keys, member=members)
    def subscribe(self, key: str, member: Member) -> None:
        # `None`: it is not gone yet.
        if self.store.run(message_ops.subscribe(key, *member, OPTIONS)) is not None:
            self.store.run(message_ops.dispatch(key))

    @rule(member=members, limit=st.integers(1, 4))
    def observe(self, member: Member, limit: int) -> None:
        self.handed.pop(member, None)
        self._note(member, self.store.run(message_ops.observe(*member, OPTIONS, limit=limit)))

    @rule(member=members, limit=st.integers(0, 4), acked=st.booleans())
    def observe_kept(self, member: Member, limit: int, acked: bool) -> None:
        batch, ack = f"b{next(self.names)}", self._ack(member) if acked else ""
        call = message_ops.observe_kept(*member, OPTIONS, acked=ack, batch=batch, limit=limit)
        found = self.store.run(call)
        if found.messages:
            self.handed[member] = found

    @rule(key=keys, member=members, acked=st.booleans())
    def begin_to_unsubscribe(self, key: str, member: Member, acked: bool) -> None:
        if not acked:
            self.store.run(leave_ops.unsubscribe_call(key, member.consumer, member.peer, ""))
        elif self.db.sismember(f"CONSUMERS_{key}", member.consumer):
            ack = self._ack(member)
            self.store.run(leave_ops.unsubscribe_call(key, member.consumer, member.peer, ack))

    @rule(consumer=consumers, silent=st.sets(peers, min_size=1))
    def reap_some(self, consumer: str, silent: set[str]) -> None:
        for peer in silent:
            self.db.set(f"LASTACTION_{peer}", 1)
        here = self.cursors.get(consumer, b"0")
        page = self.store.run(leave_ops.reap_page(consumer, OPTIONS, here))
        self.cursors[consumer] = here if page.cursor == b"again" else page.cursor

    @rule(key=keys)
    def look_up_receivers(self, key: str) -> None:
        self.present[key] = self.store.follow(leave_ops.look_up_receivers(key))

    @rule(key=keys)
    def settle_some(self, key: str) -> None:
        self.store.run(leave_ops.settle_some(key, self.present.get(key, ReceiverState())))

    @rule(key=keys)
    def settle(self, key: str) -> None:
        self.store.follow(leave_ops.settle(key))
        assert not self.db.sismember("UNSETTLED", key)

    @invariant()
    def nothing_is_lost_and_nothing_observed_is_requeued(self) -> None:
        lists = self._lists()
        main = [m for name, found in lists.items() if name.startswith("QUEUE_") for m in found]
        owed = {m for name, found in lists.items() if name.startswith("MESSAGES_") for m in found}
        aside = {m for name, found in lists.items() if name.startswith("LEFT_") for m in found}
        raw = b"".join(cast("bytes", self.db.get(n)) for n in self.db.scan_iter("HANDED_*"))
        kept = {m for m in self.published if _in(m, raw)}
        seen = {message for _, message in self.observed}
        assert set(main) | owed | aside | kept | seen == self.published.keys()
        assert len(set(main)) == len(main)
        assert not set(main) & seen
        assert not set(main) & self._present(lists)

    @invariant()
    def no_message_is_observed_twice(self) -> None:
        assert not [each for each, times in self.observed.items() if times > 1]

    def teardown(self) -> None:
        """When all have left, main queues hold the unobserved messages, and no other key exists."""
        for key in KEYS:
            for consumer in ("x", "y_z"):
                self.store.follow(leave_ops.unsubscribe(key, consumer))
            self.store.follow(leave_ops.settle(key))
        self.nothing_is_lost_and_nothing_observed_is_requeued()
        names = {name.decode() for name in cast("list[bytes]", self.db.keys())}
        beside = ("QUEUE_", "LASTACTION_")
        assert not {name for name in names if not name.startswith(beside)}

    def _ack(self, member: Member) -> str:
        """Acknowledge what was handed to *seat* last, if it is still kept; which batch it is."""
        found = self.handed.pop(member, None)
        raw = cast("bytes", self.db.get(f"HANDED_{member.consumer}_{member.peer}") or b"")
        if found is None or found.batch.encode() not in raw:
            return ""
        still = [(key, [m for m in some if _in(m.decode(), raw)]) for key, some in found.messages]
        self._note(member, message_ops.ObserveResult(1, is_due=False, messages=still))
        return found.batch

    def _note(self, member: Member, found: message_ops.ObserveResult) -> None:
        self.observed.update((member, m.decode()) for _, some in found.messages for m in some)

    def _present(self, lists: dict[str, list[str]]) -> set[str]:
        """The messages that wait for a connected peer."""
        found: set[str] = set()
        for key in KEYS:
            for consumer in cast("set[bytes]", self.db.smembers(f"CONSUMERS_{key}")):
                for peer in cast("set[bytes]", self.db.smembers(f"PEERS_{consumer.decode()}")):
                    found.update(
                        lists.get(f"MESSAGES_{key}_{consumer.decode()}_{peer.decode()}", ())
                    )
        return found

    def _members(self, name: str) -> list[str]:
        return [each.decode() for each in cast("set[bytes]", self.db.smembers(name))]

    def _lists(self) -> dict[str, list[str]]:
        names = [name.decode() for name in self.db.scan_iter(_type="list")]
        with self.db.pipeline(transaction=False) as pipeline:
            for name in names:
                pipeline.lrange(name, 0, -1)
            found = pipeline.execute()
        return {name: [m.decode() for m in each] for name, each in zip(names, found, strict=True)}


def _in(message: str, raw: bytes) -> bool:
    """Whether a batch that is stored has *message*: a short text has one byte before it."""
    return bytes((0xA0 + len(message),)) + message.encode() in raw


@pytest.mark.parametrize(
    "examples",
    [
        pytest.param(15, id="few"),
        pytest.param(
            EXAMPLES, id="many", marks=(pytest.mark.slow, pytest.mark.timeout(120 + 2 * EXAMPLES))
        ),
    ],
)
def test_nothing_is_lost_or_duplicated_while_a_peer_leaves(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch, examples: int
) -> None:
    monkeypatch.setattr(leave_ops, "STEPS", STEPS)
    run_programs(Steps, Store(server.url), db, examples)
