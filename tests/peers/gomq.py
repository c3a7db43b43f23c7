"""GOMQ clients of others: grpc-js in a `Driver`, with our clients' methods, and ``buf curl``."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tambomq.gomq
from tambomq.gomq.model import Record
from tests.peers.driver import Driver, PeerError, from_npm, in_node

PROTO = Path(tambomq.gomq.__file__).with_name("gomq.proto")
"""What a stranger compiles a client from."""

SERVICE = "routeguide.RouteGuide"
_WITHIN_MS = 60_000


class GrpcJs:
    """A process with any number of grpc-js clients, each under a name."""

    def __init__(self) -> None:
        self.driver = Driver(*in_node("grpc_js"))
        self.driver.ask("load", proto=str(PROTO))
        self._names = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.driver.__exit__(kind, exc, trace)

    def connect(self, address: str, name: str = "", **options: object) -> Connected:
        """A client with a connection of its own; *options* are ``ca`` and ``token``."""
        self._names += 1
        return Connected(self.driver, name or f"client-{self._names}", address, options)

    def publish_all(self, names: Sequence[str], key: str, count: int) -> None:
        """Publish *count* messages from each of these clients, all at once."""
        self.driver.ask("publish_all", names=names, key=key, count=count)

    def collect_all(self, jobs: Sequence[dict[str, object]]) -> list[list[str]]:
        """Receive by several clients. Jobs: ``client_id``, ``consumer``, ``count``, ``watches``."""
        texts: list[list[str]] = self.driver.ask("collect_all", jobs=jobs)
        return texts


class Connected:
    """One grpc-js client. What the server refuses is a `PeerError` with the status as its code."""

    def __init__(self, driver: Driver, name: str, address: str, options: dict[str, object]) -> None:
        self._driver, self.name = driver, name
        driver.ask("open", client_id=name, address=address, **options)

    def close(self) -> None:
        """Hang up."""
        self._driver.ask("close", client_id=self.name)

    def publish(self, key: str, payload: str | bytes) -> None:
        self._done("Publish", _record(key, payload))

    def publish_many(self, records: Iterable[tuple[str, str | bytes]]) -> int:
        made = [_record(key, payload) for key, payload in records]
        self._done("PublishMany", {"records": made})
        return len(made)

    def subscribe(self, key: str, consumer: str, **words: Any) -> None:
        self._done("Subscribe", {"key": key, "consumerID": consumer}, **words)

    def unsubscribe(self, key: str, consumer: str, **words: Any) -> None:
        self._done("Unsubscribe", {"key": key, "consumerID": consumer}, **words)

    def observe(self, consumer: str, **words: Any) -> list[Record]:
        return self.observe_with_metadata(consumer, **words)[0]

    def observe_with_metadata(
        self, consumer: str, **words: Any
    ) -> tuple[list[Record], dict[str, str]]:
        """What waits, and what the reply says beside it."""
        reply = self.call("Observe", {"consumerID": consumer}, **words)
        return _records(reply["reply"]["records"]), reply["headers"]

    def watch(self, consumer: str) -> Iterator[Record]:
        """Yield what comes, until the stream ends; the client stops watching with `unwatch`."""
        self.begin_to_watch(consumer)
        given = 0
        while len(records := self.seen(given + 1)) > given:
            yield records[given]
            given += 1

    def begin_to_watch(self, consumer: str, deadline_ms: int | None = None, **words: Any) -> None:
        """Open the stream, whether or not something comes."""
        self._driver.ask(
            "watch",
            client_id=self.name,
            consumer=consumer,
            words=_words(words),
            deadline_ms=deadline_ms,
        )

    def seen(self, count: int) -> list[Record]:
        """What came so far: *count* records or more, or less if the stream has ended."""
        return _records(self._driver.ask("seen", client_id=self.name, count=count)["records"])

    def ended(self) -> str:
        """With which status the stream ends."""
        return str(self._driver.ask("ended", client_id=self.name))

    def unwatch(self) -> None:
        """Cancel the stream."""
        self._driver.ask("unwatch", client_id=self.name)

    def call(
        self, method: str, request: object, deadline_ms: int = _WITHIN_MS, **words: Any
    ) -> Any:
        """The reply, as ``reply``, and its metadata, as ``headers``."""
        return self._driver.ask(
            "call",
            client_id=self.name,
            method=method,
            request=request,
            deadline_ms=deadline_ms,
            words=_words(words),
        )

    def give_up(self, method: str, request: object, **words: Any) -> None:
        """Begin a call, and cancel it."""
        self._driver.ask(
            "give_up", client_id=self.name, method=method, request=request, words=_words(words)
        )

    def _done(self, method: str, request: object, **words: Any) -> None:
        assert self.call(method, request, **words)["reply"] == {"code": 0}


class BufCurl:
    """``buf curl``: a process, a connection and hence a peer for each call."""

    def __init__(self, address: str, *options: str | Path, scheme: str = "http") -> None:
        self._command = [*from_npm("buf", "buf"), "curl", "--protocol", "grpc", *options]
        if scheme == "http":
            self._command.append("--http2-prior-knowledge")
        self._url = f"{scheme}://{address}"

    def call(self, method: str, request: object, *options: str, **words: Any) -> Any:
        """The reply, or a `PeerError` with the status in lower case; *words* are metadata.

        The protocol comes from our file, unless *options* say otherwise.
        """
        headers = [f"-H{name}: {word}" for name, word in _words(words).items()]
        schema = options or ("--schema", str(PROTO))
        path = f"{self._url}/{SERVICE}/{method}"
        reply = self._run(*schema, *headers, "-d", json.dumps(request), path)
        return json.loads(reply)

    def listed(self, what: str) -> list[str]:
        """The ``services`` or ``methods`` that reflection lists."""
        return self._run(f"--list-{what}", self._url).split()

    def _run(self, *args: str | Path) -> str:
        done = subprocess.run(
            [*self._command, *args], capture_output=True, check=False, text=True, timeout=120
        )
        if done.returncode:
            raise _refused(done.stderr)
        return done.stdout


def _refused(output: str) -> PeerError:
    try:
        error = json.loads(output)
    except ValueError:
        return PeerError("failed", output)
    return PeerError(error["code"], error.get("message", ""))


def _record(key: str, payload: str | bytes) -> dict[str, str]:
    body = payload.encode() if isinstance(payload, str) else payload
    return {"key": key, "payload": base64.b64encode(body).decode()}


def _records(reply: list[dict[str, Any]]) -> list[Record]:
    return [
        Record(
            record["key"],
            record["value"]["id"],
            record["value"]["timestamp"],
            base64.b64decode(record["value"]["payload"]),
        )
        for record in reply
    ]


def _words(words: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): word for name, word in words.items()}
