"""Excerpts of GOMQ messages: whole, cut, and of other clients."""

from __future__ import annotations

import pytest

from tambomq.bulk.excerpts import Excerpt
from tambomq.gomq import wire
from tambomq.gomq.bulk import excerpts
from tambomq.gomq.model import Options
from tambomq.gomq.ops import messages as ops
from tambomq.ids import Xids
from tambomq.store.sync import Store

STAMP = "Tue Jul 18 10:15:04 CEST 2017"


def cut(data: bytes, head: int = 200) -> Excerpt:
    if len(data) <= head:
        return Excerpt(data, b"", len(data))
    return Excerpt(data[:head], data[max(head, len(data) - 128) :], len(data))


@pytest.mark.parametrize("size", [0, 1, 2, 3, *range(70, 110), 500, 501, 502, 70_000])
def test_a_message_is_known_by_its_ends(size: int) -> None:
    payload = bytes(byte % 251 for byte in range(size))
    found = excerpts.decode_element(cut(wire.encode("id-1", STAMP, payload)))
    assert (found.id, found.timestamp, found.size) == ("id-1", STAMP, size)
    assert payload.startswith(found.payload)
    assert found.payload or not payload


@pytest.mark.parametrize("data", [b"", b"<script>", b"[1]", b'{"payload":"' + b"A" * 400])
def test_other_elements_are_shown_as_they_are(data: bytes) -> None:
    found = excerpts.decode_element(cut(data))
    assert (found.id, found.payload, found.size) == ("", data[:200], len(data))


def test_an_xid_says_when_it_was_published() -> None:
    id = Xids().next(1_800_000_000)
    found = excerpts.decode_element(cut(wire.encode(id, STAMP, b"")))
    assert found.published_ms == 1_800_000_000_000
    assert excerpts.decode_element(cut(wire.encode("other", STAMP, b""))).published_ms is None


def test_a_batch_is_read_for_one_key(each: Store) -> None:
    for key in ("a", "b"):
        each.run(ops.subscribe(key, "c", "p", Options()))
        each.run(ops.push(key, [wire.encode(f"{key}{n}", STAMP, b"x") for n in range(3)]))
        each.run(ops.dispatch(key, observed=True))
    assert each.run(excerpts.handed("a", "c", "p")).name == ""
    each.run(ops.observe_kept("c", "p", Options(), acked="", batch="b1"))
    found = each.run(excerpts.handed("b", "c", "p", 1, 1))
    assert (found.name, found.total, [m.id for m in found.messages]) == ("b1", 3, ["b1"])


def test_the_state_and_the_backlog_hold_of_a_key_are_read(each: Store) -> None:
    assert each.run(excerpts.key_state("k")) == excerpts.KeyState(False, "")
    assert each.run(excerpts.backlog_held_until("k")) is None
    each.run(ops.push("k", [b"x"]))
    each.run(ops.subscribe("k", "c", "p", Options(), hold_ms=1000))
    assert each.run(excerpts.backlog_held_until("k")) is not None
