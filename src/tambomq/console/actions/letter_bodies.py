"""The body of one dead letter: shown, and replaced while the letter is replayed.

A letter is found by what identifies it among the dead ones. The id of its message does not: several
letters may have it, and so may a message that waits.
"""

from __future__ import annotations

from tambomq.chasqui.bulk import redrive as chasqui_redrive
from tambomq.chasqui.job import DeadLetter
from tambomq.chasqui.keys import Keys as ChasquiKeys
from tambomq.chasqui.ops.add import Policy
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.chasqui.wire.msgpack import encode_payload
from tambomq.clock import now_ms
from tambomq.console.actions.bodies import bytes_of, value_of
from tambomq.console.actions.messages import MessageActions, redrive_of_one
from tambomq.console.messages.body import PARSED_BYTES, decode_body
from tambomq.console.messages.model import Body
from tambomq.console.model import QueueRef
from tambomq.errors import ActionRefused, RemoteProtocolError
from tambomq.rsmq.bulk import excerpts
from tambomq.rsmq.keys import DEAD_SUFFIX
from tambomq.rsmq.keys import Keys as RsmqKeys
from tambomq.store.aio import AsyncStore


async def read_letter_body(store: AsyncStore, rsmq: RsmqKeys, ref: QueueRef, id: str) -> Body:
    """Return the body of the dead letter *id*. Raises `ActionRefused` if it is gone."""
    if ref.protocol == "chasqui":
        letter = await _letter(store, ref, id)
        try:
            return decode_body(decode_envelope(letter.payload).payload, prefer="msgpack")
        except RemoteProtocolError:
            return decode_body(letter.payload, prefer="msgpack")
    call = excerpts.detail(rsmq, ref.name + DEAD_SUFFIX, id, PARSED_BYTES)
    message = await store.run(call)
    if message is None or message.size < 0:
        raise _gone(id)
    return decode_body(message.head, size=message.size)


async def replay_with_body(
    store: AsyncStore, rsmq: RsmqKeys, ref: QueueRef, id: str, body: str, encoding: str
) -> str:
    """Replay the dead letter *id* with another body; return the id of its message.

    Raises `ActionRefused` if it is gone, or no message.
    """
    if ref.protocol != "chasqui":
        data = bytes_of(body, encoding)
        if not await MessageActions(store, rsmq).redrive_message(ref, id, data):
            raise _gone(id)
        return id
    payload = encode_payload(value_of(body, encoding))
    letter = await _letter(store, ref, id)
    job = chasqui_redrive.job_of(letter, reset=True, payload=payload)
    if job is None:
        raise ActionRefused(f"the letter {id} of {ref} is no job: it can only be deleted")
    keys, redrive = ChasquiKeys(ref.name), redrive_of_one(until=letter.dlq_id)
    await store.run(chasqui_redrive.begin(keys, redrive))
    call = chasqui_redrive.move(keys, Policy(), redrive.id, now_ms(), [job])
    if not (await store.run(call)).total:
        raise _gone(id)
    return job.id


async def _letter(store: AsyncStore, ref: QueueRef, id: str) -> DeadLetter:
    letter = await store.run(chasqui_redrive.letter(ChasquiKeys(ref.name), id))
    if letter is None:
        raise _gone(id)
    return letter


def _gone(id: str) -> ActionRefused:
    return ActionRefused(f"the letter {id} is gone: look again")
