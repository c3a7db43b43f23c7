"""Every operation on a queue, by name, as a function of a client and the queue."""

from __future__ import annotations

from collections.abc import Callable

from tambomq.rsmq import Rsmq

ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"

BY_QUEUE: dict[str, Callable[[Rsmq, str], object]] = {
    "create_queue": lambda client, queue: client.create_queue(queue),
    "delete_queue": lambda client, queue: client.delete_queue(queue),
    "get_queue_attributes": lambda client, queue: client.get_queue_attributes(queue),
    "set_queue_attributes": lambda client, queue: client.set_queue_attributes(queue, vt=1),
    "get_queue_stats": lambda client, queue: client.get_queue_stats(queue),
    "purge_queue": lambda client, queue: client.purge_queue(queue),
    "send_message": lambda client, queue: client.send_message(queue, ""),
    "send_messages": lambda client, queue: client.send_messages(queue, [""]),
    "send no messages": lambda client, queue: client.send_messages(queue, []),
    "receive_message": lambda client, queue: client.receive_message(queue),
    "receive_messages": lambda client, queue: client.receive_messages(queue, 1000, wait=1),
    "pop_message": lambda client, queue: client.pop_message(queue),
    "peek_messages": lambda client, queue: client.peek_messages(queue),
    "delete_message": lambda client, queue: client.delete_message(queue, ID),
    "delete_messages": lambda client, queue: client.delete_messages(queue, [ID]),
    "change visibility": lambda client, queue: client.change_message_visibility(queue, ID, 1),
}
