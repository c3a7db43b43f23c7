"""RSMQ clients behind one interface, so that any of them can take any role in a test."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from tests.peers.driver import Driver, PeerError


class Received(NamedTuple):
    """A message as a client reports it; `sent` (ms) only if the client reports it."""

    id: str
    body: bytes
    rc: int
    fr: int
    sent: int | None = None


class Peer(Protocol):
    """A client of one server and namespace. Its errors are `PeerError`."""

    def create(
        self, queue: str, *, vt: float = 30, delay: float = 0, maxsize: int = 65536
    ) -> None: ...
    def drop(self, queue: str) -> None: ...
    def names(self) -> list[str]: ...
    def attributes(self, queue: str) -> Mapping[str, float]: ...
    def change(self, queue: str, **changes: float) -> Mapping[str, float]: ...
    def send(self, queue: str, body: bytes, *, delay: float | None = None) -> str: ...
    def receive(self, queue: str, *, vt: float | None = None) -> Received | None: ...
    def pop(self, queue: str) -> Received | None: ...
    def delete(self, queue: str, id: str) -> bool: ...
    def hide(self, queue: str, id: str, vt: float) -> bool: ...


class Consumer(Peer, Protocol):
    """A peer that can also drain a queue."""

    def drain(self, queue: str, total: int, *, forget: bool) -> list[Received]:
        """Receive until the queue counts *total* receives; delete each message if *forget*."""


class Driven:
    """A client in a `Driver` process."""

    def __init__(self, driver: Driver, port: int, *, ns: str, realtime: bool) -> None:
        self._port, self._driver = port, driver
        driver.ask("open", port=port, ns=ns, realtime=realtime)

    def close(self) -> None:
        self._driver.ask("close")

    def create(self, queue: str, *, vt: float = 30, delay: float = 0, maxsize: int = 65536) -> None:
        if not self._driver.ask("create", queue=queue, vt=vt, delay=delay, maxsize=maxsize):
            raise PeerError("invalidValue")

    def drop(self, queue: str) -> None:
        self._driver.ask("drop", queue=queue)

    def names(self) -> list[str]:
        return sorted(self._driver.ask("names"))

    def attributes(self, queue: str) -> Mapping[str, float]:
        parsed: Mapping[str, float] = self._driver.ask("attributes", queue=queue)
        return parsed

    def change(self, queue: str, **changes: float) -> Mapping[str, float]:
        parsed: Mapping[str, float] = self._driver.ask("change", queue=queue, **changes)
        return parsed

    def send(self, queue: str, body: bytes, *, delay: float | None = None) -> str:
        text = base64.b64encode(body).decode()
        return str(self._driver.ask("send", queue=queue, body=text, delay=delay))

    def receive(self, queue: str, *, vt: float | None = None) -> Received | None:
        return _received(self._driver.ask("receive", queue=queue, vt=vt))

    def pop(self, queue: str) -> Received | None:
        return _received(self._driver.ask("pop", queue=queue))

    def delete(self, queue: str, id: str) -> bool:
        return bool(self._driver.ask("delete", queue=queue, id=id))

    def hide(self, queue: str, id: str, vt: float) -> bool:
        return bool(self._driver.ask("hide", queue=queue, id=id, vt=vt))

    def drain(self, queue: str, total: int, *, forget: bool) -> list[Received]:
        taken = self._driver.ask("drain", queue=queue, total=total, forget=forget)
        return [_decode_message(message) for message in taken]

    def listen(self, channel: str) -> None:
        """Subscribe to *channel*; returns once the subscription is active."""
        self._driver.ask("listen", port=self._port, channel=channel)

    def notifications(self) -> list[str]:
        """Messages published since."""
        notifications: list[str] = self._driver.ask("heard")
        return notifications


def _received(message: dict[str, Any] | None) -> Received | None:
    return _decode_message(message) if message else None


def _decode_message(message: dict[str, Any]) -> Received:
    sent = message.get("sent")
    return Received(
        id=message["id"],
        body=base64.b64decode(message["body"]),
        rc=message["rc"],
        fr=message["fr"],
        sent=None if sent is None else int(sent),
    )


class Command:
    """``rsmqctl``: a process for each operation, and bodies that are text."""

    def __init__(self, command: Sequence[str | Path], url: str) -> None:
        self._command, self._url = command, url

    def close(self) -> None:
        """Do nothing: no connection stays open."""

    def create(self, queue: str, *, vt: float = 30, delay: float = 0, maxsize: int = 65536) -> None:
        options = ("-t", str(vt), "-d", str(delay), "-m", str(maxsize))
        self._run("queue", "create", "-n", queue, *options)

    def drop(self, queue: str) -> None:
        self._run("queue", "delete", "-n", queue)

    def names(self) -> list[str]:
        parsed: list[str] = json.loads(self._run("queue", "list"))
        return parsed

    def attributes(self, queue: str) -> Mapping[str, float]:
        parsed: Mapping[str, float] = json.loads(self._run("queue", "describe", "-n", queue))
        return parsed

    def change(self, queue: str, **changes: float) -> Mapping[str, float]:
        raise NotImplementedError("rsmqctl cannot change a queue")

    def send(self, queue: str, body: bytes, *, delay: float | None = None) -> str:
        options = () if delay is None else ("-d", str(delay))
        return self._run("message", "send", "-n", queue, "-m", body.decode(), *options).strip()

    def receive(self, queue: str, *, vt: float | None = None) -> Received | None:
        options = () if vt is None else ("-t", str(vt))
        return _parse_message(queue, self._run("message", "receive", "-n", queue, *options))

    def pop(self, queue: str) -> Received | None:
        return _parse_message(queue, self._run("message", "pop", "-n", queue))

    def delete(self, queue: str, id: str) -> bool:
        return self._done("message", "delete", "-n", queue, "-i", id)

    def hide(self, queue: str, id: str, vt: float) -> bool:
        return self._done("message", "visibility", "-n", queue, "-i", id, "-t", str(vt))

    def _done(self, *args: str) -> bool:
        try:
            self._run(*args)
        except PeerError as refused:
            if refused.code != "failed":
                raise
            return False
        return True

    def _run(self, *args: str) -> str:
        """Return the output of the command; raise `PeerError` for its error message."""
        env = {**os.environ, "REDIS_URL": self._url, "PYTHONUTF8": "1"}
        done = subprocess.run(
            [*self._command, *args],
            env=env,
            capture_output=True,
            check=False,
            encoding="utf-8",
        )
        if done.returncode:
            raise PeerError(_error_code(done.stderr), done.stderr)
        return done.stdout


def _parse_message(queue: str, printed: str) -> Received | None:
    if printed.strip() == f"No messages on queue: {queue}":
        return None
    message = json.loads(printed)
    return Received(message["id"], message["message"].encode(), message["rc"], message["ts"])


def _error_code(stderr: str) -> str:
    line = stderr.strip().splitlines()[-1]
    if line.startswith("No such queue: "):
        return "queueNotFound"
    if line.startswith("Queue already exists: "):
        return "queueExists"
    return "failed" if line.startswith("Failed to ") else "unexpected"
