"""Queue addresses as users write them: ``chasqui:orders``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tambomq.chasqui.keys import check_queue as check_chasqui
from tambomq.errors import InvalidFormat, SettingsError
from tambomq.gomq.keys import check_key as check_gomq
from tambomq.rsmq.keys import check_queue as check_rsmq

STORED: Final = {"rsmq": check_rsmq, "chasqui": check_chasqui, "gomq": check_gomq}
"""The protocols that store messages in Redis, and their checks of queue names."""


@dataclass(frozen=True, slots=True)
class Address:
    """A queue of a protocol."""

    protocol: str
    queue: str

    def __str__(self) -> str:
        return f"{self.protocol}:{self.queue}"


def address(text: str, protocols: tuple[str, ...] = tuple(STORED)) -> Address:
    """Return the queue that *text* names; raise `SettingsError` if it can name none."""
    protocol, colon, queue = text.partition(":")
    if not colon or protocol not in protocols:
        forms = ", ".join(f"{each}:<queue>" for each in protocols)
        raise SettingsError(f"{text!r} names no queue: expected one of {forms}")
    try:
        STORED[protocol](queue)
    except InvalidFormat as fault:
        raise SettingsError(f"{text!r} names no queue: {fault}") from fault
    return Address(protocol, queue)


def numbered(text: str, protocols: tuple[str, ...]) -> tuple[Address, str]:
    """Return the queue and the id of ``chasqui:orders/<id>``; raise `SettingsError`."""
    queue, slash, id = text.rpartition("/")
    if not slash or not id:
        raise SettingsError(
            f"{text!r} names no redrive: expected something like chasqui:orders/<id>"
        )
    return address(queue, protocols), id
