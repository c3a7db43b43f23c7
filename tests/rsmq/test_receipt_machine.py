"""Random programs of deliveries: a receipt settles a message only while its delivery is the last.

The model knows nothing of counts and tokens: only who was the last to get a message.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, ClassVar

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

from tambomq.bulk.lease_model import LeaseRequest
from tambomq.bulk.redrives import Redrive
from tambomq.rsmq import Message, Rsmq
from tambomq.rsmq.bulk import redrive as redrive_ops
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.store.call import Call, Plan, results

KEYS = Keys()
LEASE_OPS = RsmqLeaseOps(KEYS)
QUEUES = ("q", "q-dead")
FAR = 3600

queues = st.sampled_from(["q", "q", "q", "q-dead"])
picks = st.integers(0, 50)


class Deliveries(RuleBasedStateMachine):
    """A queue, its dead-letter queue, and every receipt ever issued."""

    client: ClassVar[Rsmq]
    db: ClassVar[Any]

    def __init__(self) -> None:
        super().__init__()
        self.db.flushall()
        for queue in QUEUES:
            self.client.create_queue(queue, vt=FAR, maxsize=-1)
        self.last: dict[str, dict[str, Message | None]] = {queue: {} for queue in QUEUES}
        """By queue and id: the delivery that may settle the message, if our client received it."""
        self.held: list[tuple[str, Message]] = []
        self.redrives: list[Redrive] = []
        self.replica: tuple[dict[bytes, bytes], Any] | None = None
        self.number = 0

    # ── deliveries ───────────────────────────────────────────────────────────

    @rule()
    def send(self) -> None:
        # Few messages, so that the same ones are received, buried and redriven again and again.
        if sum(map(len, self.last.values())) < 2:
            self.last["q"][self.client.send_message("q", b"x")] = None

    @initialize()
    def begin(self) -> None:
        self.send()
        self.receive("q", 1, 0)

    @rule(queue=queues, count=st.integers(1, 3), vt=st.sampled_from([0, 0, FAR]))
    def receive(self, queue: str, count: int, vt: int) -> None:
        if count == 1:
            only = self.client.receive_message(queue, vt=vt)
            received = [only] if only else []
        else:
            received = self.client.receive_messages(queue, count, vt=vt)
        for message in received:
            self.last[queue][message.id] = message
            self.held.append((queue, message))

    @rule(queue=queues, pick=picks)
    def a_client_without_receipts_receives(self, queue: str, pick: int) -> None:
        if (id := self._any(queue, pick)) is not None:
            self.db.zadd(KEYS.messages(queue), {id: 1})
            self.db.hincrby(KEYS.data(queue), f"{id}:rc", 1)
            self.db.hsetnx(KEYS.data(queue), f"{id}:fr", 1)
            self.last[queue][id] = None

    @rule(count=st.integers(1, 3))
    def a_query_claims_and_ends_its_batch(self, count: int) -> None:
        self.number += 1
        request = LeaseRequest("q", f"lease-{self.number}", "owner")
        store = self.client._store
        store.run(LEASE_OPS.attach(request))
        token = f"token-{self.number}"
        store.follow(LEASE_OPS.claim(request, 1, token, count))
        taken = [m.id.decode() for m in store.run(LEASE_OPS.members(request, 0, 10))]
        verdicts = [(id, "dbad") for id in taken[1:]]
        if taken:
            store.follow(LEASE_OPS.write_verdicts(request, 1, token, verdicts))
        store.follow(LEASE_OPS.acknowledge(request, 1, token))
        for id in taken:
            del self.last["q"][id]
        self.last["q-dead"] |= dict.fromkeys(taken[1:])

    @rule(queue=queues, pick=picks)
    def time_passes(self, queue: str, pick: int) -> None:
        if (id := self._any(queue, pick)) is not None:
            self.db.zadd(KEYS.messages(queue), {id: 1})

    # ── operations with a receipt ────────────────────────────────────────────

    @precondition(lambda self: self.held)
    @rule(pick=picks, many=st.booleans())
    def delete(self, pick: int, many: bool) -> None:
        queue, message = self._delivery(pick)
        counts = self._counts(queue, message)
        if many:
            (done,) = self.client.delete_messages(queue, [message])
        else:
            done = self.client.delete_message(queue, message.id, receipt=message.receipt)
        assert done is counts
        if done:
            del self.last[queue][message.id]

    @precondition(lambda self: self.held)
    @rule(pick=picks, vt=st.sampled_from([0, FAR]))
    def hide(self, pick: int, vt: int) -> None:
        queue, message = self._delivery(pick)
        done = self.client.change_message_visibility(queue, message.id, vt, receipt=message.receipt)
        assert done is self._counts(queue, message)

    @precondition(lambda self: self.held)
    @rule(pick=picks)
    def bury(self, pick: int) -> None:
        queue, message = self._delivery(pick)
        if queue == "q":
            counts = self._counts(queue, message)
            call = settle_ops.bury(KEYS, queue, message, "q-dead", "why")
            assert self.client._store.run(call) is counts
            if counts:
                del self.last["q"][message.id]
                self.last["q-dead"][message.id] = None

    @invariant()
    def no_other_receipt_is_accepted(self) -> None:
        stale = [each for each in self.held[-20:] if not self._counts(*each)]
        calls: list[Call[bool]] = []
        for queue, message in stale:
            id, receipt = message.id, message.receipt
            calls.append(settle_ops.delete(KEYS, queue, id, receipt=receipt))
            calls.append(settle_ops.hide(KEYS, queue, id, 0, receipt=receipt))
            calls.append(settle_ops.bury(KEYS, queue, message, "other", "why"))
        outcomes = self.client._store.follow(together(calls)) if calls else []
        assert not any(outcomes)
        for queue in QUEUES:
            held = [message for name, message in stale if name == queue]
            assert not any(self.client.delete_messages(queue, held))

    # ── a redrive restarts the receive count ─────────────────────────────────

    @rule(pick=picks)
    def redrive(self, pick: int) -> None:
        if (id := self._any("q-dead", pick)) is None:
            return
        self.db.zadd(KEYS.messages("q-dead"), {id: 1})
        redrive = Redrive(
            f"r{len(self.redrives)}", "", "", "reset", until="0", dead="q-dead", begun_ms=1,
            selected=1, canary=0,
        )  # fmt: skip
        self.client._store.run(redrive_ops.begin(KEYS, "q", redrive))
        moved = self.client._store.run(
            redrive_ops.move(KEYS, "q", redrive, [redrive_ops.RedrivenMessage(id)])
        )
        assert moved.total == 1
        self.redrives.append(redrive)
        del self.last["q-dead"][id]
        self.last["q"][id] = None

    @precondition(lambda self: self.redrives)
    @rule(pick=picks)
    def undo(self, pick: int) -> None:
        redrive = self.redrives[pick % len(self.redrives)]
        moved = self.client._store.run(redrive_ops.first_moved(KEYS, "q", redrive.id, 5))
        back = [id for id in moved if id in self.last["q"] and not self._received(id)]
        undone = self.client._store.follow(redrive_ops.undo(KEYS, "q", redrive))
        assert undone.back == len(back)
        for id in back:
            del self.last["q"][id]
            self.last["q-dead"][id] = None

    # ── failover to a replica that misses the last steps ─────────────────────

    @rule()
    def the_replica_catches_up(self) -> None:
        stored = {key: self.db.dump(key) for key in self.db.scan_iter()}
        self.replica = stored, deepcopy((self.last, self.redrives))

    @precondition(lambda self: self.replica)
    @rule()
    def the_replica_takes_over(self) -> None:
        assert self.replica is not None
        stored, state = self.replica
        self.db.flushall()
        for key, value in stored.items():
            self.db.restore(key, 0, value)
        self.last, self.redrives = deepcopy(state)

    # ── helpers ──────────────────────────────────────────────────────────────

    def _any(self, queue: str, pick: int) -> str | None:
        ids = sorted(self.last[queue])
        return ids[pick % len(ids)] if ids else None

    def _delivery(self, pick: int) -> tuple[str, Message]:
        """Some delivery, if possible of a message that still exists."""
        there = [each for each in self.held if each[1].id in self.last[each[0]]]
        current = [each for each in there if self._counts(*each)]
        some = (current if pick % 2 else there) or there or self.held
        return some[pick // 2 % len(some)]

    def _counts(self, queue: str, message: Message) -> bool:
        last = self.last[queue].get(message.id)
        # Only tokens are compared; that they are unique is tested elsewhere.
        return last is not None and (last.token, last.rc) == (message.token, message.rc)

    def _received(self, id: str) -> bool:
        return bool(self.db.hexists(KEYS.data("q"), f"{id}:rc"))


def together(calls: list[Call[bool]]) -> Plan[list[bool]]:
    outcomes = yield calls
    return results(outcomes)


def check(rsmq: Rsmq, db: redis.Redis, *, programs: int, steps: int) -> None:
    Deliveries.client, Deliveries.db = rsmq, db
    run_state_machine_as_test(
        Deliveries,
        settings=settings(
            max_examples=programs,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_no_program_has_a_stale_receipt_accepted(rsmq: Rsmq, db: redis.Redis) -> None:
    check(rsmq, db, programs=15, steps=40)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_program_of_ten_thousand_steps_has_a_stale_receipt_accepted(
    rsmq: Rsmq, db: redis.Redis
) -> None:
    check(rsmq, db, programs=250, steps=40)
