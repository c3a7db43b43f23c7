"""The requests of both clients: messages, metadata, timeouts, and decoders of the replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from google.protobuf.message import Message

from tambomq.errors import (
    BrokerRefused,
    InvalidBody,
    InvalidFormat,
    InvalidValue,
)
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq import keys
from tambomq.gomq.model import Record
from tambomq.gomq.server.auth import DURABLE, MAX
from tambomq.gomq.server.methods import METHODS, SERVICE
from tambomq.store.durability.level import MEMORY, durability

Payload: TypeAlias = str | bytes
Metadata: TypeAlias = tuple[tuple[str, str], ...]
T = TypeVar("T")


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
    durable: str = MEMORY
    """The level of durability that the server must confirm."""
    stored: object = None
    """What it returns if the server stores what it sends."""

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


def publish(key: str, payload: Payload, durable: str | None = None) -> Request[None]:
    """Append *payload* to the main queue of *key*; the server's default says how durably."""
    message = _record(key, payload)
    if durable is None:
        return Request("Publish", message, _succeeded)
    return Request("Publish", message, _succeeded, _level(durable), durable=durable)


def publish_many(
    records: Iterable[tuple[str, Payload]], durable: str | None = None
) -> Request[int]:
    """Append all payloads, or none."""
    message = pb.PublishRecords(records=[_record(key, payload) for key, payload in records])
    count = len(message.records)

    def decode(result: pb.Result) -> int:
        _succeeded(result)
        return count

    if durable is None:
        return Request("PublishMany", message, decode)
    metadata = _level(durable)
    return Request("PublishMany", message, decode, metadata, durable=durable, stored=count)


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


def _record(key: str, payload: Payload) -> pb.PublishRecord:
    keys.check_key(_name("key", key))
    return pb.PublishRecord(key=key, payload=_bytes(payload))


def _level(durable: str) -> Metadata:
    durability(durable)
    return ((DURABLE, durable),)


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
