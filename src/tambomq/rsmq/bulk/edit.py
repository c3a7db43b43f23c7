"""The call by which an operator changes the body of a message that no consumer has received."""

from __future__ import annotations

from functools import partial
from typing import Any

from tambomq.errors import MessageTooLong
from tambomq.rsmq.keys import Keys
from tambomq.rsmq.ops.replies import id_arg, require_queue
from tambomq.store.call import Call, load_script

_EDIT = load_script("tambomq.rsmq.bulk", "edit")


def edit(keys: Keys, queue: str, id: str, body: bytes) -> Call[bool | None]:
    """Give a message another *body*, and make it visible now.

    False if there is no such message, `None` if a consumer has received it. Raises `QueueNotFound`,
    and `MessageTooLong`.
    """
    decode = partial(_edited, queue, len(body))
    return Call(_EDIT, keys.of(queue), (id_arg(id), body), decode, repeatable=True)


def _edited(queue: str, size: int, reply: Any) -> bool | None:
    match require_queue(queue, reply):
        case 1:
            return True
        case 0:
            return False
        case -1:
            return None
        case maximum:
            raise MessageTooLong(queue, size, int(maximum))
