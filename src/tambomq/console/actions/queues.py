"""Actions on whole queues: pause, resume, drain and purge, each with a count before.

What is removed is what was counted: at most so many, the oldest first.
"""

from __future__ import annotations

from typing import Final

from tambomq.chasqui.job import U64
from tambomq.chasqui.keys import GROUP
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops import admin as chasqui_ops
from tambomq.chasqui.ops.add import EVENTS_CAP
from tambomq.console.actions.model import ActionResult
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, QueueNotFound
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq.ops import messages as gomq_ops
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.ops import queues as rsmq_ops
from tambomq.store.aio import AsyncStore

VERBS: Final = {
    "rsmq": ("purge", "send"),
    "chasqui": ("pause", "resume", "drain", "purge", "send"),
    "gomq": ("purge", "send"),
    "kqueue": ("send",),
}
"""What can be done to a queue, by protocol."""


def check_verb(ref: QueueRef, verb: str) -> None:
    """Raise `ActionRefused` if the protocol of *ref* has no such action."""
    if verb not in VERBS[ref.protocol]:
        known = ", ".join(VERBS[ref.protocol])
        raise ActionRefused(f"{ref.protocol} has no {verb}: it has {known}")


class QueueActions:
    """Actions on queues of *store*; RSMQ's are in the namespace of *rsmq*."""

    def __init__(self, store: AsyncStore, rsmq: RsmqKeys) -> None:
        self._store, self._rsmq = store, rsmq

    async def pause(self, ref: QueueRef) -> ActionResult:
        """Let workers start no more jobs; what runs goes on."""
        check_verb(ref, "pause")
        await self._require_chasqui(ref)
        await self._store.run(chasqui_ops.pause(ChasquiKeys(ref.name)))
        return ActionResult(text=f"Paused {ref}.")

    async def resume(self, ref: QueueRef) -> ActionResult:
        """Let workers start jobs again."""
        check_verb(ref, "resume")
        changed = await self._store.run(chasqui_ops.resume(ChasquiKeys(ref.name)))
        return ActionResult(text=f"Resumed {ref}." if changed else f"{ref} was not paused.")

    async def count_for(self, ref: QueueRef, verb: str) -> ActionResult:
        """Return how many messages *verb* would remove now."""
        check_verb(ref, verb)
        count, words = await self._count(ref, verb)
        return ActionResult(text=f"{words} would be removed from {ref}.", count=count)

    async def drain(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Remove jobs that wait; delayed, running and dead ones stay."""
        check_verb(ref, "drain")
        await self._require_chasqui(ref)
        plan = chasqui_ops.drain(
            ChasquiKeys(ref.name), GROUP, EVENTS_CAP, delayed=False, limit=_limit(expected)
        )
        return _removed(ref, await self._store.follow(plan), "waiting")

    async def purge(self, ref: QueueRef, expected: int | None = None) -> ActionResult:
        """Remove everything but dead letters and, in ChasquiMQ, running jobs.

        Raises `ActionRefused` if there is more in an RSMQ queue than *expected*.
        """
        check_verb(ref, "purge")
        if ref.protocol == "chasqui":
            await self._require_chasqui(ref)
            plan = chasqui_ops.drain(
                ChasquiKeys(ref.name), GROUP, EVENTS_CAP, delayed=True, limit=_limit(expected)
            )
            return _removed(ref, await self._store.follow(plan), "waiting and delayed")
        if ref.protocol == "gomq":
            plan = gomq_ops.trim_backlog(ref.name, _limit(expected))
            return _removed(ref, await self._store.follow(plan), "undelivered")
        count, _ = await self._count(ref, "purge")
        if expected is not None and count > expected:
            raise ActionRefused(
                f"{ref} has {count:,} messages now, not {expected:,}: look again, then purge"
            )
        return _removed(ref, await self._store.run(rsmq_ops.purge(self._rsmq, ref.name)), "all")

    async def _count(self, ref: QueueRef, verb: str) -> tuple[int, str]:
        if ref.protocol == "chasqui":
            await self._require_chasqui(ref)
            counts = await self._store.follow(chasqui_ops.counts(ChasquiKeys(ref.name), GROUP))
            if verb == "drain":
                return counts.waiting, f"{counts.waiting:,} waiting jobs"
            count = counts.waiting + counts.delayed
            return count, f"{counts.waiting:,} waiting and {counts.delayed:,} delayed jobs"
        if ref.protocol == "gomq":
            gomq_keys.check_key(ref.name)
            count = await self._store.run(gomq_ops.backlog(ref.name))
            return count, f"{count:,} messages that no consumer has been given"
        found = await self._store.run(rsmq_ops.attributes(self._rsmq, ref.name))
        hidden = f", {found.hiddenmsgs:,} of them in flight or delayed" if found.hiddenmsgs else ""
        return found.msgs, f"{found.msgs:,} messages{hidden},"

    async def _require_chasqui(self, ref: QueueRef) -> None:
        """Raise `QueueNotFound` unless the queue has a key: a mistyped name must not be paused."""
        if not await self._store.run(chasqui_ops.exists(ChasquiKeys(ref.name))):
            raise QueueNotFound(str(ref))


def _limit(expected: int | None) -> int:
    return U64 if expected is None else max(0, expected)


def _removed(ref: QueueRef, count: int, what: str) -> ActionResult:
    noun = "message" if count == 1 else "messages"
    which = "" if what == "all" else f"{what} "
    return ActionResult(text=f"Removed {count:,} {which}{noun} from {ref}.", count=count)
