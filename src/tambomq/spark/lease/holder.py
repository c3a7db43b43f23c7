"""`LeaseHolder`: a driver's hold on one lease, acquired on first use and renewed by a thread.

The lease itself is durable; the hold expires if it is not renewed.

A holder that sent no heartbeat for too long may be replaced. Its next call or heartbeat then fails
with `LeaseLost`, and so does every later `acquire`.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from typing import Final, TypeVar

from tambomq.bulk.lease_model import AttachResult, LeaseRequest
from tambomq.bulk.lease_ops import LeaseOps
from tambomq.errors import LeaseTaken, QueueError, StoreError
from tambomq.ids import letters
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.lease import process_identity
from tambomq.store.call import Call, Plan

T = TypeVar("T")

HEARTBEAT_S: Final = 2.0
"""Longest time between heartbeats. A process that waits for the lease learns from the next
heartbeat that its holder is alive."""
RENEW_S: Final = 10.0
"""Longest time between renewals of the claimed messages. ChasquiMQ workers take over jobs that
were idle for 30 s, whatever the lease says."""
_RENEWALS_PER_LEASE: Final = 3
_POLL_S: Final = 0.2
_OWNER_LETTERS: Final = 22


class LeaseHolder:
    """A driver process and the lease that it holds, or wants to hold: `acquire` asks for it.

    `request.owner` is the fencing token, new for each object; `request.holder` describes the
    process to people.
    """

    def __init__(
        self, ops: LeaseOps, target: RedisTarget, queue: str, lease: str, lease_s: float
    ) -> None:
        owner, holder = letters(_OWNER_LETTERS), process_identity.describe_process()
        self.request = LeaseRequest(queue, lease, owner, holder, int(lease_s * 1000))
        self.lost = 0
        """Messages of the open claim that other consumers received after the last hold expired."""
        self.inherited_claim_token = ""
        """The claim that was open when we acquired the lease: an earlier owner made it."""
        self.store = target.open()
        self._renew_s = min(RENEW_S, self.request.lease_ms / 1000 / _RENEWALS_PER_LEASE)
        self._heartbeat_s = min(self._renew_s, HEARTBEAT_S)
        # A separate connection: a reply on the other one may take longer than the lease lasts.
        self._renewal_store = target.open_for_renewals(self._heartbeat_s)
        self._ops = ops
        self._is_acquired = False
        self._stopped = threading.Event()
        self._error: QueueError | None = None
        self._thread = threading.Thread(target=self._keep, name="tambo-lease", daemon=True)

    def acquire(self) -> AttachResult:
        """Acquire the lease, or check that it is still ours, and return its state.

        If its holder has stopped sending heartbeats, waits until its hold expires. If its holder
        is a dead process of this machine, takes it over at once. Raises `LeaseTaken` if another
        holder is alive, `LeaseLost` if this one was replaced.
        """
        if self._error is not None:
            raise self._error
        state = self._attach()
        if not self._is_acquired:
            lost = self.follow(self._ops.renew(self.request))
            self.lost = lost if state.lapsed else 0
            self.inherited_claim_token = state.claim_token
            self._is_acquired = True
            self._thread.start()
        return state

    def run(self, call: Call[T]) -> T:
        """Make *call*."""
        return self.store.run(call)

    def follow(self, plan: Plan[T]) -> T:
        """Make the round trips of *plan*."""
        return self.store.follow(plan)

    def close(self) -> None:
        """Give up the lease now. The open claim's messages stay hidden until they expire."""
        self._stopped.set()
        if self._is_acquired:
            self._thread.join()
            # Without a server the hold expires by itself.
            with suppress(StoreError):
                self.run(self._ops.resign(self.request))
        self.store.close()
        self._renewal_store.close()

    def _attach(self) -> AttachResult:
        if self._is_acquired:
            # If another process held the lease meanwhile and gave it up, `attach` would grant it
            # to us again. The heartbeat fails with `LeaseLost` in that case.
            self.run(self._ops.heartbeat(self.request))
        until_ms, dead_holder = None, ""
        while True:
            state = self.run(self._ops.attach(self.request, dead_holder=dead_holder))
            if state.acquired:
                return state
            if state.holder != dead_holder and process_identity.is_dead(state.holder):
                dead_holder = state.holder
                continue
            if until_ms is not None and state.until_ms > until_ms:
                # Extended since the last look: its holder is alive.
                raise LeaseTaken(self.request.queue, self.request.lease, state.holder)
            until_ms = state.until_ms
            time.sleep(min(_POLL_S, max(0.01, (until_ms - state.now_ms) / 1000)))

    def _keep(self) -> None:
        """Send heartbeats, and renew the messages when that is due, until the lease is lost."""
        renewed = begun = time.monotonic()
        while not self._stopped.wait(max(0.0, begun + self._heartbeat_s - time.monotonic())):
            # Timed from the beginning of each heartbeat, so a slow one does not delay the next.
            begun = time.monotonic()
            try:
                if begun - renewed < self._renew_s:
                    self._renewal_store.run(self._ops.heartbeat(self.request))
                    continue
                self._renewal_store.follow(self._ops.renew(self.request))
                renewed = begun
            except StoreError:
                # The server may be back before the hold expires. If it is not, and another
                # process has taken the lease, the next call raises the `QueueError` below.
                continue
            except QueueError as error:
                self._error = error
                return
