"""What both clients share: whom they call, what they say beside a request, what an answer means."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, TypeAlias, TypeVar

import grpc
from google.protobuf.message import Message

from tambomq.errors import (
    BrokerError,
    BrokerRefused,
    BrokerUnavailable,
    InvalidBody,
    InvalidFormat,
    InvalidValue,
    SettingsError,
)
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.caller import ACK, BATCH, MAX, PEER, TIMEOUT, Gate
from tambomq.gomq.methods import METHODS, SERVICE
from tambomq.gomq.model import Record
from tambomq.ids import draw_in_children, letters
from tambomq.store.connect import Tls, check_patience

Payload: TypeAlias = str | bytes
Words: TypeAlias = tuple[tuple[str, str], ...]
T = TypeVar("T")

ADDRESS: Final = "127.0.0.1:10001"
TIMEOUT_S: Final = 10.0

OPTIONS: Final = (
    # A server that is back is found within 2 s.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # While a call lasts. Existing servers hang up on clients that ping between calls.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # A client has a connection of its own, which `close` hangs up.
    ("grpc.use_local_subchannel_pool", 1),
    # As all our clients: straight to the server.
    ("grpc.enable_http_proxy", 0),
)
# For a last word, when nobody waits for its answer any more.
_HURRY_S: Final = 1.0
_PEER_LETTERS: Final = 20  # of 62: as good as a UUID
# The answer that it did not come, whoever noticed.
_AWAY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


@dataclass(frozen=True, slots=True)
class Ask(Generic[T]):
    """One call: its method, its message, and what its reply means."""

    method: str
    message: Message
    decode: Callable[[Any], T]
    words: Words = ()
    """What it says beside its message."""
    hurry: bool = False
    """Whether it is not worth waiting for."""
    within_s: float | None = None
    """How long to wait for its answer, if not as long as ever."""

    @property
    def path(self) -> str:
        """How the wire calls it."""
        return f"/{SERVICE}/{self.method}"

    @property
    def streams(self) -> bool:
        """Whether many replies come."""
        return METHODS[self.path].streams

    @property
    def codecs(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """How its message becomes bytes, and bytes become its reply."""
        method = METHODS[self.path]
        return method.request.SerializeToString, method.reply.FromString


def publish(key: str, payload: Payload) -> Ask[None]:
    """Append *payload* to the main queue of *key*."""
    return Ask("Publish", _record(key, payload), _succeeded)


def publish_many(records: Iterable[tuple[str, Payload]]) -> Ask[int]:
    """Append all, or none."""
    message = pb.PublishRecords(records=[_record(key, payload) for key, payload in records])

    def decode(result: pb.Result) -> int:
        _succeeded(result)
        return len(message.records)

    return Ask("PublishMany", message, decode)


def subscribe(key: str, consumer: str) -> Ask[None]:
    """Let *consumer* receive *key*."""
    return Ask("Subscribe", _subscription(key, consumer), _succeeded)


def unsubscribe(key: str, consumer: str) -> Ask[None]:
    """Let it receive that no more."""
    return Ask("Unsubscribe", _subscription(key, consumer), _succeeded)


def observe(consumer: str, limit: int | None = None) -> Ask[list[Record]]:
    """Fetch what waits, at most *limit* of each key."""
    if limit is not None and limit < 1:
        raise InvalidValue("limit", limit, "at least 1")
    words = () if limit is None else ((MAX, str(limit)),)
    return Ask("Observe", _identification(consumer), _records, words)


def settle(consumer: str, *, hurry: bool = False) -> Ask[list[Record]]:
    """Acknowledge what came, and fetch again what did not; take nothing new."""
    return Ask("Observe", _identification(consumer), _records, ((MAX, "0"),), hurry)


def still_here(consumer: str, within_s: float) -> Ask[list[Record]]:
    """Say that we are there. What was handed out is neither acknowledged nor fetched again."""
    return Ask("Observe", _identification(consumer), _records, ((MAX, "0"),), within_s=within_s)


def watch(consumer: str) -> Ask[list[Record]]:
    """Hear whenever something waits."""
    return Ask("Watch", _identification(consumer), _records, ((MAX, "0"),))


class Line:
    """A server, how to be let in, and how long to wait. Raises `InvalidFormat`, `InvalidValue`."""

    def __init__(
        self,
        address: str,
        peer: str | None,
        token: str | None,
        tls: Tls | None,
        timeout_s: float,
        patience_s: float,
    ) -> None:
        _check_address(address)
        if not timeout_s > 0:
            raise InvalidValue("timeout_s", timeout_s, "more than 0")
        self.address, self._tls = address, tls
        self._timeout_s, self._patience_s = timeout_s, check_patience(patience_s)
        self._token = token
        if peer is None:
            self.draw()
            draw_in_children(self)
        else:
            self.name, self.words = peer, _words(peer, token)

    def draw(self) -> None:
        """Be another peer: as a forked child, which would take its parent's payloads away."""
        self.name = letters(_PEER_LETTERS)
        self.words = _words(self.name, self._token)

    def limits(self, ask: Ask[Any]) -> dict[str, Any]:
        """Return how long gRPC waits for an answer, and with patience for the server before it.

        What certainly was not sent is sent again while time is left; nothing else ever is.
        """
        if ask.hurry or ask.within_s is not None:
            return {"timeout": min(self._timeout_s, ask.within_s or _HURRY_S)}
        timeout = self._timeout_s + self._patience_s
        return {"timeout": timeout, "wait_for_ready": self._patience_s > 0}

    def observing(self, batch: str) -> Words:
        """Metadata of an observer to whom *batch* came last."""
        return (*self.words, (ACK, batch))

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return what TLS needs, if it is used. Raises `SettingsError`."""
        if self._tls is None:
            return None
        if not self._tls.verify:
            raise SettingsError("gRPC verifies every server: name its authority with ca")
        # What cannot be used is refused here, where the error still has a name.
        self._tls.context()
        roots = self._tls.ca or ssl.get_default_verify_paths().cafile
        return grpc.ssl_channel_credentials(*map(_file, (roots, self._tls.key, self._tls.cert)))

    def failure(self, call: str, error: Any) -> BrokerError:
        """Return the error that says what a status of gRPC's means for *call*."""
        status, details = error.code(), error.details() or ""
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer to {call} in time"
        if status in _AWAY:
            return BrokerUnavailable(self.address, details)
        return BrokerRefused(call, status.name, details)

    def closed(self) -> BrokerUnavailable:
        """Return the error for a call that `close` cut off."""
        return BrokerUnavailable(self.address, "the client was closed")


@dataclass(frozen=True, slots=True)
class Batch:
    """What a reply says of what it brought."""

    name: str = ""
    """Empty if its server keeps none."""
    timeout_s: float | None = None
    """After how long without a word from us it gives it to others."""


def batch_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> Batch:
    """Return the batch a reply speaks of."""
    words = {name: str(word) for name, word in metadata or () if name in (BATCH, TIMEOUT)}
    try:
        timeout_s = float(words[TIMEOUT])
    except (KeyError, ValueError):
        timeout_s = None
    return Batch(words.get(BATCH, ""), timeout_s)


def _record(key: str, payload: Payload) -> pb.PublishRecord:
    keys.check_key(_name("key", key))
    return pb.PublishRecord(key=key, payload=_bytes(payload))


def _subscription(key: str, consumer: str) -> pb.Subscription:
    keys.check_key(_name("key", key))
    keys.check_consumer(_name("consumer", consumer))
    return pb.Subscription(key=key, consumerID=consumer)


def _identification(consumer: str) -> pb.Identification:
    keys.check_consumer(_name("consumer", consumer))
    return pb.Identification(consumerID=consumer)


def _name(what: str, value: str) -> str:
    try:
        value.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidFormat(what, value, "text that UTF-8 can carry") from None
    return value


def _bytes(payload: Payload) -> bytes:
    if isinstance(payload, bytes):
        return payload
    if isinstance(payload, bytearray | memoryview):
        return bytes(payload)
    try:
        return payload.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidBody(payload) from None


def _succeeded(result: pb.Result) -> None:
    # Existing servers may answer -1 where ours have a status.
    if result.code:
        raise BrokerRefused("call", "UNKNOWN", f"the server answers with code {result.code}")


def _records(reply: pb.RecordSet) -> list[Record]:
    return [
        Record(record.key, record.value.id, record.value.timestamp, record.value.payload)
        for record in reply.records
    ]


def _words(name: str, token: str | None) -> Words:
    words = {PEER: name} if token is None else {PEER: name, "authorization": f"Bearer {token}"}
    for what, word in words.items():
        if not (word.isascii() and word.isprintable()):
            raise InvalidFormat(what, "…", "printable ASCII")
    # A server would refuse the name with each call.
    Gate().admit("", words)
    return tuple(words.items())


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    names_it = host and port.isascii() and port.isdigit() and (":" not in host or host[0] == "[")
    # Without a port gRPC would go to 443. What has a scheme, gRPC understands by itself.
    if not names_it and not address.startswith(("dns:", "unix:")):
        raise InvalidFormat("address", address, "host:port, such as 127.0.0.1:10001 or [::1]:10001")


def _file(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
