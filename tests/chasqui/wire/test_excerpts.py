"""Jobs are decoded from their two ends as they are from all of their bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.bulk.excerpts import Excerpt
from tambomq.chasqui.job import BackoffSpec, Envelope, RetryOverride
from tambomq.chasqui.wire.envelope import encode_envelope, encode_member
from tambomq.chasqui.wire.excerpts import decode_envelope_excerpt, decode_member_excerpt
from tambomq.errors import RemoteProtocolError

HEAD, TAIL = 600, 128
RETRY = RetryOverride(9, BackoffSpec("exponential", 1000, 60_000, 2.0, 5))


def cut(data: bytes) -> Excerpt:
    """As the scripts do it, with a shorter head."""
    if len(data) <= HEAD:
        return Excerpt(data, b"", len(data))
    return Excerpt(data[:HEAD], data[max(HEAD, len(data) - TAIL) :], len(data))


@given(
    # The two ends meet in some of them, also within the numbers behind the payload.
    st.text(min_size=1, max_size=60),
    st.binary(max_size=3)
    | st.integers(300, 70_000).map(lambda size: b"x" * size)
    | st.integers(HEAD - 100, HEAD + TAIL).map(lambda size: b"x" * size),
    st.sampled_from([None, RETRY, RetryOverride(2**32 - 1)]),
)
def test_an_envelope_is_decoded_from_the_two_ends_of_its_bytes(
    id: str, payload: bytes, retry: RetryOverride | None
) -> None:
    whole = Envelope(id, payload, 1_800_000_000_000, 7, retry)
    found, size = decode_envelope_excerpt(cut(encode_envelope(whole)))
    assert (found.id, found.created_at_ms, found.attempt, found.retry) == (
        *(id, 1_800_000_000_000, 7, retry),
    )
    assert size == len(payload)
    assert payload.startswith(found.payload)


@pytest.mark.parametrize("dialect", ["page", "engine"])
def test_members_have_their_name_first(dialect: str) -> None:
    stored = encode_envelope(Envelope("id-1", b"y" * 5000, 5, 2))
    name, envelope = decode_member_excerpt(cut(encode_member("charge", stored, dialect)))
    found, size = decode_envelope_excerpt(envelope)
    assert (name, found.id, found.attempt, size) == ("charge", "id-1", 2, 5000)


@pytest.mark.parametrize("head", [b"", b"\xff" * 600, b"\x94", b"\x94\xa1a" + b"\x01" * 600])
def test_bytes_that_are_not_an_envelope_are_refused(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        decode_envelope_excerpt(Excerpt(head, b"\x00" * 128, 10_000))
