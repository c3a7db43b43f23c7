"""GOMQ's gRPC methods by their path on the wire. Both transports serve exactly these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from google.protobuf.message import Message

from tambomq.gomq import gomq_pb2 as pb

SERVICE: Final = "routeguide.RouteGuide"


@dataclass(frozen=True, slots=True)
class Method:
    """A gRPC method: its message types, and the method of `Service` that answers."""

    name: str
    request: type[Message]
    reply: type[Message]
    handler: str
    streams: bool = False
    """Whether the reply is a stream of messages instead of one."""


_ALL: Final = (
    Method("Publish", pb.PublishRecord, pb.Result, "publish"),
    Method("PublishMany", pb.PublishRecords, pb.Result, "publish_many"),
    Method("Subscribe", pb.Subscription, pb.Result, "subscribe"),
    Method("Unsubscribe", pb.Subscription, pb.Result, "unsubscribe"),
    Method("Observe", pb.Identification, pb.RecordSet, "observe"),
    Method("Watch", pb.Identification, pb.RecordSet, "watch", streams=True),
)

METHODS: Final = {f"/{SERVICE}/{method.name}": method for method in _ALL}
