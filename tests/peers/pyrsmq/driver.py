"""PyRSMQ, driven by JSON lines.

``{"op": …}`` on stdin, ``{"ok": …}`` or ``{"error": …}`` on stdout. Bodies travel as base64 and
are bytes to this client. The end of stdin ends the process.
"""

from __future__ import annotations

import base64
import json
import sys
from typing import Any

import redis

# It is installed beside this file and nowhere else.
from rsmq import RedisSMQ  # type: ignore[import-not-found]
from rsmq.cmd import exceptions  # type: ignore[import-not-found]

_NAMES = {
    exceptions.QueueAlreadyExists: "queueExists",
    exceptions.QueueDoesNotExist: "queueNotFound",
    exceptions.InvalidParameterValue: "invalidValue",
}


class Driver:
    """One client and its operations."""

    def __init__(self) -> None:
        self._redis: redis.Redis | None = None
        self._rsmq: Any = None

    def open(self, port: int, ns: str, realtime: bool) -> None:
        self.close()
        self._redis = redis.Redis(port=port)
        self._rsmq = RedisSMQ(client=self._redis, ns=ns, realtime=realtime)

    def close(self) -> None:
        if self._redis is not None:
            self._redis.close()

    def create(self, queue: str, **settings: float) -> bool:
        return bool(self._rsmq.createQueue(qname=queue, **settings).execute())

    def drop(self, queue: str) -> bool:
        return bool(self._rsmq.deleteQueue(qname=queue).execute())

    def names(self) -> list[str]:
        return [name.decode() for name in self._rsmq.listQueues().execute()]

    def attributes(self, queue: str) -> Any:
        return self._rsmq.getQueueAttributes(qname=queue).execute()

    def change(self, queue: str, **changes: float) -> Any:
        return self._rsmq.setQueueAttributes(qname=queue, **changes).execute()

    def send(self, queue: str, body: str, delay: float | None = None) -> Any:
        message = base64.b64decode(body)
        id = self._rsmq.sendMessage(qname=queue, message=message, delay=delay).execute()
        if not id:
            raise exceptions.InvalidParameterValue("message", message)
        return id

    def receive(self, queue: str, vt: float | None = None) -> dict[str, Any] | None:
        try:
            return _received(self._rsmq.receiveMessage(qname=queue, vt=vt).execute())
        except exceptions.NoMessageInQueue:
            return None

    def pop(self, queue: str) -> dict[str, Any] | None:
        try:
            return _received(self._rsmq.popMessage(qname=queue).execute())
        except exceptions.NoMessageInQueue:
            return None

    def delete(self, queue: str, id: str) -> bool:
        return bool(self._rsmq.deleteMessage(qname=queue, id=id).execute())

    def hide(self, queue: str, id: str, vt: float) -> bool:
        try:
            return bool(self._rsmq.changeMessageVisibility(qname=queue, id=id, vt=vt).execute())
        except exceptions.NoMessageInQueue:
            return False

    def drain(self, queue: str, total: int, forget: bool) -> list[dict[str, Any]]:
        """Receive until the queue counts *total* receives, of any client."""
        taken = []
        while True:
            if message := self.receive(queue):
                taken.append(message)
                if forget:
                    self.delete(queue, message["id"])
            elif self.attributes(queue)["totalrecv"] >= total:
                return taken


def _received(message: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": message["id"].decode(),
        "body": base64.b64encode(message["message"]).decode(),
        "rc": message["rc"],
        "fr": message["ts"],
    }


def _answer(driver: Driver, op: str, fields: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"ok": getattr(driver, op)(**fields)}
    except exceptions.RedisSMQException as error:
        return {"error": _NAMES.get(type(error), type(error).__name__), "text": str(error)}


def main() -> None:
    """Answer each line until the input ends."""
    driver = Driver()
    for line in sys.stdin:
        fields = json.loads(line)
        print(json.dumps(_answer(driver, fields.pop("op"), fields)), flush=True)  # noqa: T201
    driver.close()


if __name__ == "__main__":
    main()
