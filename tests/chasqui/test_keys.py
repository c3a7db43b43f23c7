"""The keys of a queue, and the checks of names."""

from __future__ import annotations

import fnmatch
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.chasqui.keys import (
    NAME_BYTES,
    Keys,
    check_job_id,
    check_name,
    check_page_name,
    check_queue,
    queue_of,
    trace_of,
)
from tambomq.errors import InvalidFormat

KEYS = Keys("emails")

# A lone surrogate, which UTF-8 cannot encode.
HALF = "\ud800"

names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def every_key(keys: Keys) -> list[str]:
    fixed = [
        *(keys.stream, keys.dlq, keys.delayed, keys.repeat, keys.events),
        *(keys.promoter_lock, keys.scheduler_lock, keys.paused, keys.limiter),
    ]
    by_id = (keys.spec, keys.result, keys.marker, keys.index, keys.progress, keys.stalls, keys.log)
    fixed += keys.signs[2:]
    return fixed + [make("x") for make in (*by_id, keys.added, keys.window)]


@pytest.mark.parametrize(
    ("key", "spelled"),
    [
        (KEYS.stream, "{chasqui:emails}:stream"),
        (KEYS.dlq, "{chasqui:emails}:dlq"),
        (KEYS.delayed, "{chasqui:emails}:delayed"),
        (KEYS.repeat, "{chasqui:emails}:repeat"),
        (KEYS.events, "{chasqui:emails}:events"),
        (KEYS.promoter_lock, "{chasqui:emails}:promoter:lock"),
        (KEYS.scheduler_lock, "{chasqui:emails}:scheduler:lock"),
        (KEYS.paused, "{chasqui:emails}:paused"),
        (KEYS.throttle("a"), "{chasqui:emails}:tambo:throttle:a"),
        (KEYS.limiter, "{chasqui:emails}:tambo:limiter"),
        (KEYS.unless_queued, "{chasqui:emails}:tambo:unless_queued"),
        (KEYS.previous, "{chasqui:emails}:tambo:previous"),
        (KEYS.spec("digest::every:5"), "{chasqui:emails}:repeat:spec:digest::every:5"),
        (KEYS.result("j1"), "{chasqui:emails}:result:j1"),
        (KEYS.marker("j1"), "{chasqui:emails}:dlid:j1"),
        (KEYS.index("j1"), "{chasqui:emails}:didx:j1"),
        (KEYS.progress("j1"), "{chasqui:emails}:progress:j1"),
        (KEYS.log("j1"), "{chasqui:emails}:log:j1"),
        (KEYS.stalls("j1"), "{chasqui:emails}:stalls:j1"),
        (KEYS.added("j1"), "{chasqui:emails}:added:j1"),
        (KEYS.window("p"), "{chasqui:emails}:idmp:p"),
    ],
)
def test_a_key_is_spelled_as_its_peers_expect(key: str, spelled: str) -> None:
    assert key == spelled


def test_no_two_keys_of_a_queue_are_the_same() -> None:
    assert len(set(every_key(KEYS))) == len(every_key(KEYS))


@given(names)
def test_all_keys_of_a_queue_have_one_hash_tag(queue: str) -> None:
    # Redis takes what stands between the first { and the first } after it.
    tags = {key[1 : key.index("}")] for key in every_key(Keys(queue))}
    assert len(tags) == 1


@pytest.mark.parametrize("queue", ["a", "a*b", "a?b", "[a]", "a^b", "back\\slash", "{x}", "a b"])
def test_the_pattern_of_a_queue_matches_its_keys(queue: str) -> None:
    # fnmatch has no backslash: [x] is its way to say the same.
    pattern = Keys(queue).pattern
    literal = "".join(
        f"[{char}]" if escaped and char in "*?[" else char
        for escaped, char in _unescaped(pattern[:-1])
    )
    for key in every_key(Keys(queue)):
        assert fnmatch.fnmatchcase(key, f"{literal}*")
    assert not fnmatch.fnmatchcase("{chasqui:other}:stream", f"{literal}*")


def _unescaped(pattern: str) -> list[tuple[bool, str]]:
    found, escaped = [], False
    for char in pattern:
        if char == "\\" and not escaped:
            escaped = True
        else:
            found.append((escaped, char))
            escaped = False
    return found


@given(names.filter(lambda name: "}:" not in name))
def test_a_queue_is_found_by_its_keys(queue: str) -> None:
    keys = Keys(queue)
    assert {queue_of(key) for key in (keys.stream, keys.delayed, keys.repeat)} == {queue}


@given(names.filter(lambda name: "}:" not in name))
def test_any_remaining_key_of_a_queue_reveals_its_name(queue: str) -> None:
    assert {trace_of(key) for key in Keys(queue).traces} == {queue}
    assert trace_of(Keys(queue).paused) is None


def test_a_queue_is_not_found_by_what_may_outlive_it() -> None:
    for key in (KEYS.events, KEYS.dlq, KEYS.result("x"), KEYS.spec("x"), "rsmq:QUEUES", ""):
        assert queue_of(key) is None


@given(names)
def test_any_text_names_a_queue(queue: str) -> None:
    assert check_queue(queue) == queue


@pytest.mark.parametrize("queue", ["", None, 7, b"q", HALF, ["q"]])
def test_a_queue_name_that_is_not_text_is_refused(queue: Any) -> None:
    with pytest.raises(InvalidFormat, match="queue name"):
        Keys(queue)


@pytest.mark.parametrize("id", ["a", "a b", "{x}", "two\nlines", "ñandú-✓", "x" * 10_000])
def test_an_id_may_have_any_characters(id: str) -> None:
    assert check_job_id(id) == id


@pytest.mark.parametrize("id", ["", " ", "\t\n", "\u3000", None, 7, b"id", HALF, True])
def test_an_id_is_text_that_is_not_blank(id: Any) -> None:
    with pytest.raises(InvalidFormat, match="a non-empty, non-whitespace string"):
        check_job_id(id)


@pytest.mark.parametrize("name", ["", "n" * 255, "n" * NAME_BYTES, "é" * 128, "\0", " "])
def test_a_name_has_up_to_256_bytes(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize("name", ["n" * 257, "é" * 129, "✓" * 86, "n" * 100_000])
def test_a_longer_name_is_refused_with_its_length(name: str) -> None:
    with pytest.raises(InvalidFormat) as caught:
        check_name(name)
    assert f"exceeds 256-byte cap (got {len(name.encode())} bytes)" in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("name", [None, 7, b"job", HALF])
def test_a_name_is_text(name: Any) -> None:
    with pytest.raises(InvalidFormat, match="job name"):
        check_name(name)


def test_in_the_page_dialect_a_delayed_name_has_up_to_255_bytes() -> None:
    assert check_page_name("n" * 255) == "n" * 255
    for name in ("n" * 256, "é" * 128):
        with pytest.raises(InvalidFormat, match="at most 255 bytes in the page dialect, not 256"):
            check_page_name(name)


@pytest.mark.parametrize("name", ["\0", "a\0", "ab\0d"])
def test_in_the_page_dialect_no_delayed_name_looks_like_a_long_length(name: str) -> None:
    with pytest.raises(InvalidFormat, match="NUL"):
        check_page_name(name)
    assert check_page_name(f"abc{name}")
