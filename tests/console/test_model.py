"""The values of the console: queues by their names, and JSON that keeps its shape."""

from __future__ import annotations

import msgspec
import pytest

from tambomq.console.model import PROTOCOLS, Overview, QueueRef, QueueRow
from tambomq.errors import InvalidFormat


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_queue_is_written_as_commands_take_it(protocol: str) -> None:
    ref = QueueRef.parse(f"{protocol}:orders")
    assert (ref.protocol, ref.name) == (protocol, "orders")
    assert str(ref) == f"{protocol}:orders"


@pytest.mark.parametrize("name", ["a:b", ":", " ", "ü", "a\nb", "<script>"])
def test_a_name_may_have_any_character(name: str) -> None:
    assert QueueRef.parse(f"gomq:{name}").name == name


@pytest.mark.parametrize("text", ["", "orders", "rsmq", "rsmq:", "kafka:a", "RSMQ:a", ":a"])
def test_what_names_no_queue_is_refused(text: str) -> None:
    with pytest.raises(InvalidFormat, match="rsmq, chasqui, gomq, kqueue"):
        QueueRef.parse(text)


def test_queues_are_sorted_by_protocol_and_name() -> None:
    refs = [QueueRef.parse(text) for text in ("rsmq:b", "chasqui:z", "rsmq:a")]
    assert [str(ref) for ref in sorted(refs)] == ["chasqui:z", "rsmq:a", "rsmq:b"]


def test_rows_do_not_share_their_lists() -> None:
    first = QueueRow(queue="rsmq:a", protocol="rsmq", name="a", depth=0)
    second = QueueRow(queue="rsmq:b", protocol="rsmq", name="b", depth=0)
    first.backlog.append(1)
    assert second.backlog == []


def test_every_field_is_in_the_json_even_if_it_has_its_default() -> None:
    row = QueueRow(queue="rsmq:a", protocol="rsmq", name="a", depth=0)
    assert msgspec.json.decode(msgspec.json.encode(row)).keys() == set(row.__struct_fields__)


def test_an_overview_survives_its_json() -> None:
    schema = msgspec.json.schema(Overview)
    assert schema["$ref"] == "#/$defs/Overview"
    needed = {"at_ms", "redis", "totals", "throughput", "queues"}
    assert set(schema["$defs"]["Overview"]["required"]) == needed
