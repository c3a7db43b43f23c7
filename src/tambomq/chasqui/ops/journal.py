"""Journals of ChasquiMQ queues: each job that is stored is recorded, or not stored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tambomq.chasqui.keys import Keys
from tambomq.chasqui.wire.envelope import decode_envelope
from tambomq.errors import RemoteProtocolError
from tambomq.journal import hooks
from tambomq.journal.policy import JournalPolicy
from tambomq.store.call import Arg, Call


def recorded(
    keys: Keys,
    journal: JournalPolicy | None,
    call: Call[Any],
    *,
    entries: int,
    size: int,
    payloads: Sequence[bytes] = (),
) -> Call[Any]:
    """Return *call*, of a script that adds jobs, with journal hooks if the queue has a journal.

    *entries* and *size*: jobs that it adds at most, and the bytes of their payloads. *payloads* of
    all jobs, in their order, are needed where other writers may have made the envelopes: only
    `decode_envelope` reads all forms.
    """
    extra: tuple[Arg, ...] = (*payloads, len(payloads))
    return hooks.recorded(journal, keys.queue, call, entries=entries, size=size, extra=extra)


def payload_of(envelope: bytes) -> bytes:
    """Return a job's data; of what is no job, all of it."""
    try:
        return decode_envelope(envelope).payload
    except RemoteProtocolError:
        return envelope
