"""The requests of both clients: messages, metadata, timeouts, and decoders of the replies."""

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
from tambomq.gomq.model import Record
from tambomq.gomq.server.auth import ACK, BATCH, MAX, PEER, TIMEOUT, Authenticator
from tambomq.gomq.server.methods import METHODS, SERVICE
from tambomq.ids import draw_in_children, letters
from tambomq.store.endpoint import Tls, check_patience

Payload: TypeAlias = str | bytes
Metadata: TypeAlias = tuple[tuple[str, str], ...]
T = TypeVar("T")

ADDRESS: Final = "127.0.0.1:10001"
TIMEOUT_S: Final = 10.0

OPTIONS: Final = (
    # Reconnect within 2 s of a server's return.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Only during calls: existing servers disconnect clients that ping between calls.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Each client has its own connection, so that `close` ends it.
    ("grpc.use_local_subchannel_pool", 1),
    # Like all our clients, connect directly to the server.
    ("grpc.enable_http_proxy", 0),
)
# Bounds the acknowledgement that `close` sends.
_BEST_EFFORT_S: Final = 1.0
_PEER_LETTERS: Final = 20  # of an alphabet of 62: as unique as a UUID
# No reply came, whichever side noticed.
_NO_REPLY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
)


@dataclass(frozen=True, slots=True)
class Request(Generic[T]):
    """One gRPC call: its method, its message, its metadata, and the decoder of its reply."""

    method: str
    message: Message
    decode: Callable[[Any], T]
    metadata: Metadata = ()
    """Sent in addition to that of `ClientConfig`."""
    best_effort: bool = False
    """Whether to wait for the reply for `_BEST_EFFORT_S` at most."""
    timeout_s: float | None = None
    """How long to wait for the reply; by default as long as the client is configured to."""

    @property
    def path(self) -> str:
        """The path of the method on the wire."""
        return f"/{SERVICE}/{self.method}"

    @property
    def streams(self) -> bool:
        """Whether the reply is a stream."""
        return METHODS[self.path].streams

    @property
    def codecs(self) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
        """The serializer of the message, and the parser of the reply."""
        method = METHODS[self.path]
        return method.request.SerializeToString, method.reply.FromString


def publish(key: str, payload: Payload) -> Request[None]:
    """Append *payload* to the main queue of *key*."""
    return Request("Publish", _record(key, payload), _succeeded)


def publish_many(records: Iterable[tuple[str, Payload]]) -> Request[int]:
    """Append all payloads, or none."""
    message = pb.PublishRecords(records=[_record(key, payload) for key, payload in records])

    def decode(result: pb.Result) -> int:
        _succeeded(result)
        return len(message.records)

    return Request("PublishMany", message, decode)


def subscribe(key: str, consumer: str) -> Request[None]:
    """Subscribe *consumer* to *key*."""
    return Request("Subscribe", _subscription(key, consumer), _succeeded)


def unsubscribe(key: str, consumer: str) -> Request[None]:
    """End the subscription of *consumer* to *key*."""
    return Request("Unsubscribe", _subscription(key, consumer), _succeeded)


def observe(consumer: str, limit: int | None = None) -> Request[list[Record]]:
    """Fetch the records that wait, at most *limit* of each key."""
    if limit is not None and limit < 1:
        raise InvalidValue("limit", limit, "at least 1")
    metadata = () if limit is None else ((MAX, str(limit)),)
    return Request("Observe", _identification(consumer), _records, metadata)


def settle(consumer: str, *, best_effort: bool = False) -> Request[list[Record]]:
    """Acknowledge the last batch, or fetch it again if it was lost; fetch nothing new."""
    return Request("Observe", _identification(consumer), _records, ((MAX, "0"),), best_effort)


def heartbeat(consumer: str, timeout_s: float) -> Request[list[Record]]:
    """Keep the peer connected. The last batch is neither acknowledged nor fetched again."""
    observer = _identification(consumer)
    return Request("Observe", observer, _records, ((MAX, "0"),), timeout_s=timeout_s)


def watch(consumer: str) -> Request[list[Record]]:
    """Get a reply whenever messages wait."""
    return Request("Watch", _identification(consumer), _records, ((MAX, "0"),))


class ClientConfig:
    """The server, credentials and timeouts of a client. Raises `InvalidFormat`, `InvalidValue`."""

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
            self.peer, self.metadata = peer, _metadata(peer, token)

    def draw(self) -> None:
        """Take a new random peer name; a forked child with its parent's would steal its records."""
        self.peer = letters(_PEER_LETTERS)
        self.metadata = _metadata(self.peer, self._token)

    def limits(self, request: Request[Any]) -> dict[str, Any]:
        """Return gRPC's timeout options for *request*.

        gRPC repeats a request only if it was certainly not sent, and only until the timeout.
        """
        if request.best_effort or request.timeout_s is not None:
            return {"timeout": min(self._timeout_s, request.timeout_s or _BEST_EFFORT_S)}
        timeout = self._timeout_s + self._patience_s
        return {"timeout": timeout, "wait_for_ready": self._patience_s > 0}

    def observe_metadata(self, batch: str) -> Metadata:
        """Return the metadata of an Observe that acknowledges *batch*."""
        return (*self.metadata, (ACK, batch))

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return the TLS credentials, `None` without TLS. Raises `SettingsError`."""
        if self._tls is None:
            return None
        if not self._tls.verify:
            raise SettingsError(
                "gRPC verifies every server: name its certificate authority with ca"
            )
        # Load them now: gRPC would fail later, without saying which file is wrong.
        self._tls.context()
        roots = self._tls.ca or ssl.get_default_verify_paths().cafile
        return grpc.ssl_channel_credentials(*map(_file, (roots, self._tls.key, self._tls.cert)))

    def failure(self, call: str, error: Any) -> BrokerError:
        """Return the error for a *call* that gRPC ended with a status."""
        status, details = error.code(), error.details() or ""
        if status is grpc.StatusCode.DEADLINE_EXCEEDED:
            details = f"no answer to {call} in time"
        if status in _NO_REPLY:
            return BrokerUnavailable(self.address, details)
        return BrokerRefused(call, status.name, details)

    def closed(self) -> BrokerUnavailable:
        """Return the error for a call that `close` interrupted."""
        return BrokerUnavailable(self.address, "the client was closed")


@dataclass(frozen=True, slots=True)
class ObservedBatch:
    """The batch of records that the metadata of a reply names."""

    name: str = ""
    """What to acknowledge; empty if the server keeps no batches."""
    timeout_s: float | None = None
    """The peer timeout of the server; `None` if it does not name one."""


def batch_of(metadata: Iterable[tuple[str, str | bytes]] | None) -> ObservedBatch:
    """Return the batch that the *metadata* of a reply names."""
    values = {name: str(value) for name, value in metadata or () if name in (BATCH, TIMEOUT)}
    try:
        timeout_s = float(values[TIMEOUT])
    except (KeyError, ValueError):
        timeout_s = None
    return ObservedBatch(values.get(BATCH, ""), timeout_s)


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
        raise InvalidFormat(what, value, "text that can be encoded as UTF-8") from None
    return value


def _bytes(payload: Payload) -> bytes:
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload)
    try:
        return payload.encode()
    except (AttributeError, UnicodeEncodeError):
        raise InvalidBody(payload) from None


def _succeeded(result: pb.Result) -> None:
    # Existing servers may reply with code -1 where ours send a gRPC status.
    if result.code:
        raise BrokerRefused("call", "UNKNOWN", f"the server replied with code {result.code}")


def _records(reply: pb.RecordSet) -> list[Record]:
    return [
        Record(record.key, record.value.id, record.value.timestamp, record.value.payload)
        for record in reply.records
    ]


def _metadata(name: str, token: str | None) -> Metadata:
    metadata = {PEER: name} if token is None else {PEER: name, "authorization": f"Bearer {token}"}
    for what, word in metadata.items():
        if not (word.isascii() and word.isprintable()):
            raise InvalidFormat(what, "…", "printable ASCII")
    # Check the name now; a server would refuse it with each call.
    Authenticator().admit("", metadata)
    return tuple(metadata.items())


def _check_address(address: str) -> None:
    host, _, port = address.rpartition(":")
    is_complete = host and port.isascii() and port.isdigit() and (":" not in host or host[0] == "[")
    # Without a port gRPC would use 443. Addresses with a scheme are left to gRPC.
    if not is_complete and not address.startswith(("dns:", "unix:")):
        raise InvalidFormat("address", address, "host:port, such as 127.0.0.1:10001 or [::1]:10001")


def _file(path: str | None) -> bytes | None:
    return Path(path).read_bytes() if path else None
