"""Our RSMQ clients behind the interface of the foreign ones."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from tambomq.errors import TamboError
from tambomq.rsmq import AsyncRsmq, Message, QueueAttributes, Rsmq
from tests.peers.driver import PeerError
from tests.peers.rsmq import Received

T = TypeVar("T")


class Ours:
    """`Rsmq`."""

    def __init__(self, url: str, *, ns: str, realtime: bool) -> None:
        self.client = Rsmq(url, ns=ns, realtime=realtime)

    def close(self) -> None:
        self.client.close()

    def create(self, queue: str, *, vt: float = 30, delay: float = 0, maxsize: int = 65536) -> None:
        with _as_peer_errors():
            self.client.create_queue(queue, vt=int(vt), delay=int(delay), maxsize=maxsize)

    def drop(self, queue: str) -> None:
        with _as_peer_errors():
            self.client.delete_queue(queue)

    def names(self) -> list[str]:
        return self.client.list_queues()

    def attributes(self, queue: str) -> Mapping[str, float]:
        with _as_peer_errors():
            return _fields(self.client.get_queue_attributes(queue))

    def change(self, queue: str, **changes: float) -> Mapping[str, float]:
        with _as_peer_errors():
            return _fields(self.client.set_queue_attributes(queue, **_whole(changes)))

    def send(self, queue: str, body: bytes, *, delay: float | None = None) -> str:
        with _as_peer_errors():
            return self.client.send_message(queue, body, delay=delay)

    def receive(self, queue: str, *, vt: float | None = None) -> Received | None:
        with _as_peer_errors():
            return _received(self.client.receive_message(queue, vt=vt))

    def pop(self, queue: str) -> Received | None:
        with _as_peer_errors():
            return _received(self.client.pop_message(queue))

    def delete(self, queue: str, id: str) -> bool:
        with _as_peer_errors():
            return self.client.delete_message(queue, id)

    def hide(self, queue: str, id: str, vt: float) -> bool:
        with _as_peer_errors():
            return self.client.change_message_visibility(queue, id, vt)

    def drain(self, queue: str, total: int, *, forget: bool) -> list[Received]:
        """Receive until the queue counts *total* receives."""
        taken: list[Received] = []
        while True:
            if message := self.receive(queue):
                taken.append(message)
                if forget:
                    self.delete(queue, message.id)
            elif self.attributes(queue)["totalrecv"] >= total:
                return taken


class OursAsync:
    """`AsyncRsmq`, on a loop that runs during each call."""

    TASKS = 4

    def __init__(self, url: str, *, ns: str, realtime: bool) -> None:
        self._runner = asyncio.Runner()
        self.client = AsyncRsmq(url, ns=ns, realtime=realtime)

    def close(self) -> None:
        self._run(self.client.close())
        self._runner.close()

    def create(self, queue: str, *, vt: float = 30, delay: float = 0, maxsize: int = 65536) -> None:
        self._run(self.client.create_queue(queue, vt=int(vt), delay=int(delay), maxsize=maxsize))

    def drop(self, queue: str) -> None:
        self._run(self.client.delete_queue(queue))

    def names(self) -> list[str]:
        return self._run(self.client.list_queues())

    def attributes(self, queue: str) -> Mapping[str, float]:
        return _fields(self._run(self.client.get_queue_attributes(queue)))

    def change(self, queue: str, **changes: float) -> Mapping[str, float]:
        return _fields(self._run(self.client.set_queue_attributes(queue, **_whole(changes))))

    def send(self, queue: str, body: bytes, *, delay: float | None = None) -> str:
        return self._run(self.client.send_message(queue, body, delay=delay))

    def receive(self, queue: str, *, vt: float | None = None) -> Received | None:
        return _received(self._run(self.client.receive_message(queue, vt=vt)))

    def pop(self, queue: str) -> Received | None:
        return _received(self._run(self.client.pop_message(queue)))

    def delete(self, queue: str, id: str) -> bool:
        return self._run(self.client.delete_message(queue, id))

    def hide(self, queue: str, id: str, vt: float) -> bool:
        return self._run(self.client.change_message_visibility(queue, id, vt))

    def drain(self, queue: str, total: int, *, forget: bool) -> list[Received]:
        """Receive with several tasks at once until the queue counts *total* receives."""

        async def all_of_them() -> list[list[Received]]:
            tasks = [self._drain(queue, total, forget=forget) for _ in range(self.TASKS)]
            return await asyncio.gather(*tasks)

        return [message for taken in self._run(all_of_them()) for message in taken]

    async def _drain(self, queue: str, total: int, *, forget: bool) -> list[Received]:
        taken: list[Received] = []
        while True:
            if message := _received(await self.client.receive_message(queue)):
                taken.append(message)
                if forget:
                    await self.client.delete_message(queue, message.id)
            elif (await self.client.get_queue_attributes(queue)).totalrecv >= total:
                return taken

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        with _as_peer_errors():
            return self._runner.run(doing)


@contextmanager
def _as_peer_errors() -> Iterator[None]:
    try:
        yield
    except TamboError as error:
        raise PeerError(error.code, str(error)) from error


def _received(message: Message | None) -> Received | None:
    if message is None:
        return None
    return Received(message.id, message.body, message.rc, message.fr, message.sent)


def _fields(attributes: QueueAttributes) -> Mapping[str, float]:
    """Return what all clients of RSMQ have; our bounds are unknown to the others."""
    found = msgspec.structs.asdict(attributes)
    del found["bounds"]
    return found


def _whole(changes: Mapping[str, float]) -> dict[str, int]:
    return {name: int(value) for name, value in changes.items()}
