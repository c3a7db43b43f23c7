"""Actions on single messages: send, run now, edit and run, cancel, delete."""

from __future__ import annotations

from typing import Final

from tambomq.alarms.watch import refuse_alarmed
from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.bulk import redrive as chasqui_redrive
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops import cancel as cancel_ops
from tambomq.chasqui.ops import edit as edit_ops
from tambomq.chasqui.ops import jobs as job_ops
from tambomq.chasqui.ops.add import EVENTS_CAP, Policy
from tambomq.chasqui.producer.producer import Producer
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.clock import now_ms, now_s, unix_date
from tambomq.console.actions.bodies import bytes_of, value_of
from tambomq.console.actions.model import ActionResult
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, QueueNotFound
from tambomq.gomq import keys as gomq_keys
from tambomq.gomq import wire as gomq_wire
from tambomq.gomq.ops import messages as gomq_ops
from tambomq.ids import Xids, letters
from tambomq.kqueue.async_client import AsyncProducer
from tambomq.rsmq.bulk import edit as rsmq_edit
from tambomq.rsmq.bulk import redrive as rsmq_redrive
from tambomq.rsmq.bulk import scan as rsmq_scan
from tambomq.rsmq.keys import DEAD_SUFFIX
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.rsmq.ops import messages as rsmq_ops
from tambomq.rsmq.ops import settle as settle_ops
from tambomq.rsmq.ops.replies import id_arg, to_count
from tambomq.store.aio import AsyncStore

IN_CONSOLE: Final = "false -- selected in the console"
"""The condition of a redrive from here: the pipeline cannot resume it, and selects nothing."""


class MessageActions:
    """Actions on messages of *store*; KqueueMsgQ's broker is at *kqueue*, if there is one."""

    def __init__(
        self, store: AsyncStore, rsmq: RsmqKeys, kqueue: tuple[str, int] | None = None
    ) -> None:
        self._store, self._rsmq, self._kqueue = store, rsmq, kqueue
        self._xids = Xids()

    async def send(
        self,
        ref: QueueRef,
        body: str,
        encoding: str = "text",
        *,
        name: str = "",
        delay_s: float | None = None,
        job_id: str | None = None,
        attempts: int | None = None,
    ) -> ActionResult:
        """Send a message. *name*, *job_id* and *attempts* are ChasquiMQ's.

        *delay_s* is for ChasquiMQ and RSMQ. Raises `ActionRefused` for what a protocol lacks.
        """
        await refuse_alarmed(self._store, ref.protocol, ref.name)
        _refuse_unknown(ref, name=name, delay_s=delay_s, job_id=job_id, attempts=attempts)
        if ref.protocol == "chasqui":
            producer = Producer(ChasquiKeys(ref.name), Policy(), None)
            delay_ms = None if delay_s is None else delay_s * 1000
            options = (delay_ms, None, attempts, None, job_id or None)
            plan = producer.add(
                now_ms(), name, value_of(body, encoding), *options, report_added=True
            )
            job = await self._store.follow(plan)
            if job.added is False:
                raise ActionRefused(f"{ref} already has a job with the id {job.id!r}")
            return _sent(ref, job.id)
        data = bytes_of(body, encoding)
        if ref.protocol == "rsmq":
            call = rsmq_ops.send(self._rsmq, ref.name, data, delay=delay_s)
            return _sent(ref, await self._store.run(call))
        if ref.protocol == "gomq":
            gomq_keys.check_key(ref.name)
            at = now_s()
            id = self._xids.next(at)
            element = gomq_wire.encode(id, unix_date(at), data)
            await self._store.run(gomq_ops.push(ref.name, [element]))
            return _sent(ref, id)
        return await self._send_kqueue(ref, data)

    async def run_now(self, ref: QueueRef, id: str) -> ActionResult:
        """Make a delayed message due, or replay a dead one."""
        if ref.protocol == "chasqui":
            plan = job_ops.retry(ChasquiKeys(ref.name), Policy(), id, now_ms())
            if not await self._store.follow(plan):
                raise ActionRefused(f"{id} is neither delayed nor dead in {ref}: look again")
        elif ref.protocol == "rsmq":
            await self._run_rsmq(ref, id)
        else:
            raise _has_no(ref, "delayed or dead messages")
        return ActionResult(text=f"{id} of {ref} is due now.", id=id)

    async def edit_and_run(self, ref: QueueRef, id: str, body: str, encoding: str) -> ActionResult:
        """Give a delayed or dead message another body, and make it due, in one atomic step.

        An RSMQ message may also wait, if no consumer has received it.
        """
        if ref.protocol == "chasqui":
            done = await self._edit_job(ref, id, encode_payload(value_of(body, encoding)))
        elif ref.protocol == "rsmq":
            done = await self._edit_rsmq(ref, id, bytes_of(body, encoding))
        else:
            raise _has_no(ref, "delayed or dead messages")
        if not done:
            raise ActionRefused(f"{id} cannot be edited any more in {ref}: look again")
        return ActionResult(text=f"{id} of {ref} has a new body and is due now.", id=id)

    async def cancel(self, ref: QueueRef, id: str, reason: str = "") -> ActionResult:
        """End a delayed, waiting or running job without a retry. Raises `JobBusy`."""
        if ref.protocol != "chasqui":
            raise _has_no(ref, "cancelling: delete the message instead")
        plan = cancel_ops.cancel_job(ChasquiKeys(ref.name), id, reason, EVENTS_CAP)
        if not await self._store.follow(plan):
            raise ActionRefused(f"{id} is not in {ref} any more, or it is dead: look again")
        return ActionResult(text=f"Cancelled {id} of {ref}.", id=id)

    async def delete(self, ref: QueueRef, id: str) -> ActionResult:
        """Remove a message that nobody is running, or a dead letter. Raises `JobBusy`."""
        if ref.protocol == "chasqui":
            plan = job_ops.remove(ChasquiKeys(ref.name), id, EVENTS_CAP)
            gone = await self._store.follow(plan)
        elif ref.protocol == "rsmq":
            gone = await self._delete_rsmq(ref, id)
        else:
            raise _has_no(ref, "deleting single messages")
        if not gone:
            raise ActionRefused(f"{id} is not in {ref} any more")
        return ActionResult(text=f"Deleted {id} of {ref}.", id=id, count=1)

    async def _send_kqueue(self, ref: QueueRef, data: bytes) -> ActionResult:
        if self._kqueue is None:
            raise ActionRefused(
                "KqueueMsgQ is not served by this process: use the console of `tambo serve`"
            )
        async with AsyncProducer(*self._kqueue) as producer:
            await producer.send(ref.name, data)
        return ActionResult(text=f"Sent to those subscribed to {ref} now.")

    async def _edit_job(self, ref: QueueRef, id: str, payload: bytes) -> bool:
        keys = ChasquiKeys(ref.name)
        if await self._store.follow(edit_ops.edit_delayed(keys, id, payload, now_ms())):
            return True
        letter = await self._store.follow(edit_ops.find_letter(keys, id))
        if letter is None:
            return False
        job = chasqui_redrive.job_of(letter, reset=True, payload=payload)
        if job is None:
            return False
        redrive = redrive_of_one(until=letter.dlq_id)
        await self._store.run(chasqui_redrive.begin(keys, redrive))
        call = chasqui_redrive.move(keys, Policy(), redrive.id, now_ms(), [job])
        return (await self._store.run(call)).total > 0

    async def _edit_rsmq(self, ref: QueueRef, id: str, body: bytes) -> bool:
        edited = await self._store.run(rsmq_edit.edit(self._rsmq, ref.name, id, body))
        if edited is None:
            raise ActionRefused(f"{id} of {ref} was received: its consumer may have read the body")
        return edited or await self.redrive_message(ref, id, body)

    async def _run_rsmq(self, ref: QueueRef, id: str) -> None:
        queue, dead = ref.name, ref.name + DEAD_SUFFIX
        wanted = [id_arg(id)]
        raw = [each if isinstance(each, bytes) else each.encode() for each in wanted]
        [here] = await self._store.run(rsmq_scan.present(self._rsmq, queue, raw))
        if here:
            _, rc, _ = await self._store.run(rsmq_scan.contents(self._rsmq, queue, raw))
            if to_count(rc):
                raise ActionRefused(
                    f"{id} of {ref} was received: it comes again when its visibility timeout ends"
                )
            await self._store.run(settle_ops.hide(self._rsmq, queue, id, 0))
            return
        [is_dead] = await self._store.run(rsmq_scan.present(self._rsmq, dead, raw))
        if not is_dead or not await self.redrive_message(ref, id, None):
            raise ActionRefused(f"{id} is neither in {ref} nor among its dead letters: look again")

    async def redrive_message(self, ref: QueueRef, id: str, body: bytes | None) -> bool:
        """Replay a dead RSMQ message, perhaps with another body; false if it is not there."""
        redrive = redrive_of_one(until=str(now_ms()), dead=ref.name + DEAD_SUFFIX)
        await self._store.run(rsmq_redrive.begin(self._rsmq, ref.name, redrive))
        moving = [rsmq_redrive.RedrivenMessage(id, body)]
        result = await self._store.run(rsmq_redrive.move(self._rsmq, ref.name, redrive, moving))
        if result.refused:
            raise ActionRefused(f"{ref} does not take {id}: its body is too large, or it is there")
        return result.total > 0

    async def _delete_rsmq(self, ref: QueueRef, id: str) -> bool:
        if await self._store.run(settle_ops.delete(self._rsmq, ref.name, id)):
            return True
        try:
            call = settle_ops.delete(self._rsmq, ref.name + DEAD_SUFFIX, id)
            return await self._store.run(call)
        except QueueNotFound:
            return False


def redrive_of_one(*, until: str, dead: str = "") -> Redrive:
    """Return the record of a replay of one message."""
    return Redrive(letters(10), IN_CONSOLE, until=until, dead=dead, selected=1, begun_ms=now_ms())


def _refuse_unknown(ref: QueueRef, **options: object) -> None:
    known = {"chasqui": set(options), "rsmq": {"delay_s"}}.get(ref.protocol, set())
    for option, value in options.items():
        if value not in (None, "") and option not in known:
            raise _has_no(ref, option.replace("_s", "").replace("_", " "))


def _has_no(ref: QueueRef, what: str) -> ActionRefused:
    return ActionRefused(f"{ref.protocol} has no {what}")


def _sent(ref: QueueRef, id: str) -> ActionResult:
    return ActionResult(text=f"Sent {id} to {ref}.", id=id, count=1)
