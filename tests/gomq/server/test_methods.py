"""The compiled protocol matches its source and that of existing clients."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor

import tambomq.gomq
from tambomq.gomq import gomq_pb2 as pb
from tambomq.gomq.server.methods import METHODS, SERVICE

TYPES = {
    FieldDescriptor.TYPE_STRING: "string",
    FieldDescriptor.TYPE_BYTES: "bytes",
    FieldDescriptor.TYPE_INT32: "int32",
}
# What is on the wire of every existing client; a change here cuts them off.
FIELDS = {
    "PublishRecord": {"key": (1, "string"), "payload": (2, "bytes")},
    "Subscription": {"key": (1, "string"), "consumerID": (2, "string")},
    "Identification": {"consumerID": (1, "string")},
    "Result": {"code": (1, "int32")},
    "RecordSet": {"records": (1, "Record")},
    "Record": {"key": (1, "string"), "value": (2, "Message")},
    "Message": {"id": (1, "string"), "timestamp": (2, "string"), "payload": (3, "bytes")},
}
CALLS = {
    "Publish": ("PublishRecord", "Result"),
    "Subscribe": ("Subscription", "Result"),
    "Unsubscribe": ("Subscription", "Result"),
    "Observe": ("Identification", "RecordSet"),
}


def compiled(message: str) -> dict[str, tuple[int, str]]:
    """The fields of a message: number and type."""
    return {
        field.name: (
            field.number,
            field.message_type.name if field.message_type else TYPES[field.type],
        )
        for field in pb.DESCRIPTOR.message_types_by_name[message].fields
    }


@pytest.mark.parametrize("message", FIELDS)
def test_a_message_has_the_fields_that_existing_clients_know(message: str) -> None:
    assert compiled(message) == FIELDS[message]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_takes_and_gives_what_existing_clients_know(call: str) -> None:
    method = pb.DESCRIPTOR.services_by_name["RouteGuide"].methods_by_name[call]
    assert (method.input_type.name, method.output_type.name) == CALLS[call]
    assert not method.server_streaming
    assert not method.client_streaming


def test_the_service_has_the_name_that_existing_clients_call() -> None:
    assert (
        pb.DESCRIPTOR.services_by_name["RouteGuide"].full_name == SERVICE == "routeguide.RouteGuide"
    )


def test_every_call_of_the_service_is_served() -> None:
    service = pb.DESCRIPTOR.services_by_name["RouteGuide"]
    assert set(METHODS) == {f"/{SERVICE}/{name}" for name in service.methods_by_name}
    for path, method in METHODS.items():
        described = service.methods_by_name[path.rpartition("/")[2]]
        assert method.name == described.name
        assert method.request.DESCRIPTOR is described.input_type
        assert method.reply.DESCRIPTOR is described.output_type
        assert method.streams == described.server_streaming


def test_the_compiled_protocol_matches_its_source() -> None:
    written = (Path(tambomq.gomq.__path__[0]) / "gomq.proto").read_text("utf-8")
    messages = {
        name: {
            field: (int(number), kind)
            for kind, field, number in re.findall(r"(\w+) (\w+) = (\d+);", body)
        }
        for name, body in re.findall(
            r"^message (\w+) \{(.*?)^\}", written, re.MULTILINE | re.DOTALL
        )
    }
    calls = re.findall(r"rpc (\w+)\((\w+)\) returns \((stream )?(\w+)\);", written)
    assert messages == {name: compiled(name) for name in pb.DESCRIPTOR.message_types_by_name}
    assert calls == [
        (each.name, each.input_type.name, "stream " * each.server_streaming, each.output_type.name)
        for each in pb.DESCRIPTOR.services_by_name["RouteGuide"].methods
    ]
