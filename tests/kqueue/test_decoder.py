"""Decoding of a consumer's bytes: the same messages however they are split, or an error."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import RemoteProtocolError
from tambomq.kqueue import Message
from tambomq.kqueue.decoder import MessageDecoder
from tests.kqueue import naive
from tests.kqueue.naive import SMALL, message, u32


def fed(pieces: list[bytes]) -> tuple[list[tuple[bytes, bytes]], bool]:
    """The decoded messages, and whether an error followed."""
    decoder, found = MessageDecoder(SMALL), []
    try:
        for piece in [*pieces, b""]:
            found += [(each.queue, each.body) for each in decoder.feed(piece)]
    except RemoteProtocolError:
        return found, True
    return found, False


@given(naive.messages, naive.cuts)
def test_any_split_of_the_bytes_gives_the_same_messages(
    found: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    assert fed(naive.pieces(naive.stream(found), cuts)) == (found, False)


@given(naive.messages, st.binary(max_size=30), naive.cuts)
def test_garbage_raises_a_remote_error_after_all_messages_before_it(
    found: list[tuple[bytes, bytes]], garbage: bytes, cuts: list[int]
) -> None:
    data = naive.stream(found) + garbage.replace(b"O", b"")
    expected, _, is_bad = naive.decode(data, SMALL)
    assert fed(naive.pieces(data, cuts)) == (expected, is_bad)


@given(naive.messages, naive.cuts)
def test_ok_replies_between_messages_are_skipped(
    found: list[tuple[bytes, bytes]], cuts: list[int]
) -> None:
    data = b"OK" + b"".join(message(*each) + b"OKOK" for each in found)
    assert fed(naive.pieces(data, cuts)) == (found, False)


def test_a_message_before_a_bad_frame_is_returned_and_then_the_error_raised() -> None:
    decoder = MessageDecoder(SMALL)
    assert decoder.feed(message(b"a", b"1") + b"?") == [Message(b"a", b"1")]
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="no frame begins with"):
            decoder.feed(b"")


@pytest.mark.parametrize("data", [b"*" + u32(7), b"*" + u32(0) + u32(13)])
def test_a_length_over_the_limit_is_refused_before_its_bytes_arrive(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="exceeds"):
        MessageDecoder(SMALL).feed(data)


def test_a_message_has_its_body_as_text() -> None:
    (found,) = MessageDecoder().feed(message(b"a", "schön".encode()))
    assert found.text == "schön"
