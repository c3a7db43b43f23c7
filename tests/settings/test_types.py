from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tambomq.settings.types import (
    Count,
    Directory,
    EnumText,
    File,
    Flag,
    Host,
    Names,
    Port,
    Seconds,
    Secret,
    Size,
    Text,
    Url,
    ValueType,
)

SIZE = Size(1, 1 << 40)

TAKEN: list[tuple[ValueType, object, object]] = [
    (Text(), "a b", "a b"),
    (Url("redis"), "redis://h", "redis://h"),
    (EnumText("drop", "block"), "DROP", "drop"),
    (Directory(), "/a/../b", Path("/a/../b")),
    (File(), "/etc/x.pem", Path("/etc/x.pem")),
    (File(), Path("/etc/x.pem"), Path("/etc/x.pem")),
    (Flag(), True, True),
    (Flag(), False, False),
    *((Flag(), word, True) for word in ("1", "true", "yes", "on", "TRUE")),
    *((Flag(), word, False) for word in ("0", "false", "no", "off", "Off")),
    (Names(), ["a", "b c", "a"], ("a", "b c")),
    (Names(), ("a", "b,c"), ("a", "b,c")),
    (Names(), "a, b,a", ("a", "b")),
    (Names(), [], ()),
    (Port(), 0, 0),
    (Port(), "65535", 65535),
    (Count(1, 10), 10, 10),
    (Count(1, 10), "1", 1),
    (SIZE, 65536, 65536),
    (SIZE, "65536", 65536),
    (SIZE, "64KiB", 65536),
    (SIZE, "8MiB", 8 << 20),
    (SIZE, "8 mib", 8 << 20),
    (SIZE, "1GiB", 1 << 30),
    (SIZE, "5B", 5),
    (Seconds(), 30, 30.0),
    (Seconds(), "0.5", 0.5),
    (Host(), "127.0.0.1", "127.0.0.1"),
    (Host(), "queues.example.com", "queues.example.com"),
    (Host(), "::1", "::1"),
    (Host(), "[::1]", "::1"),
    (Secret(), "s3cr:et!", "s3cr:et!"),
]

REFUSED: list[tuple[ValueType, object]] = [
    *((Text(), value) for value in ("", 5, None, b"x", ["x"])),
    *((Url("redis"), value) for value in ("redis://", "http://h", "")),
    *((EnumText("drop", "block"), value) for value in ("", "dropped", 1)),
    *((Directory(), value) for value in ("", 5)),
    *((Flag(), value) for value in ("", "maybe", "2", 1, 0, None, 1.0)),
    *((Names(), value) for value in (5, {"a": 1}, ["a", 5], ["a", ""], "a,,b", ",", b"a")),
    *((Port(), value) for value in (-1, 65536, "65536", "x", "", True, 1.0, "1.0", None, "٣")),
    *((Count(1, 10), value) for value in (0, 11, "0", "11", "-1", "", "1e1", True, 1.5, None)),
    *((SIZE, value) for value in (0, "0", "0KiB", -1, "-1", "64KB", "64K", "1.5MiB", "KiB", "")),
    *((SIZE, value) for value in (True, 1.0, None, "1 024", "2048GiB", "9" * 40)),
    *((Seconds(), value) for value in (0, -1, "0", "nan", "inf", float("inf"), "", "x", True)),
    *((Seconds(), value) for value in (None, [1], 86401, "1e9")),
    *((Host(), value) for value in ("", "a b", "http://h", "h:80", "h/x", "[::1", "[h]", ":::", 5)),
    *((Secret(), value) for value in ("", "with space", "ümlaut", "a\nb", 5, None)),
]


@pytest.mark.parametrize(("form", "given", "value"), TAKEN)
def test_a_form_reads_valid_values(form: ValueType, given: object, value: object) -> None:
    read = form.read(given)
    assert read == value
    assert type(read) is type(value) or isinstance(value, Path)


@pytest.mark.parametrize(("form", "given"), REFUSED)
def test_a_form_refuses_everything_else_with_one_kind_of_error(
    form: ValueType, given: object
) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  (its text is nobody's)
        form.read(given)


@pytest.mark.parametrize(
    ("form", "value", "spelled"),
    [
        (Flag(), True, "true"),
        (Flag(), False, "false"),
        (Names(), (), "[]"),
        (Names(), ("a", 'b"c'), '["a", "b\\"c"]'),
        (SIZE, 64 << 10, '"64KiB"'),
        (SIZE, 8 << 20, '"8MiB"'),
        (SIZE, 3 << 30, '"3GiB"'),
        (SIZE, 1500, "1500"),
        (Seconds(), 30.0, "30"),
        (Seconds(), 0.25, "0.25"),
        (Count(1, 10_000), 10_000, "10000"),
        (Host(), "::1", '"::1"'),
    ],
)
def test_a_form_writes_toml_that_it_reads_again(form: ValueType, value: Any, spelled: str) -> None:
    assert form.toml(value) == spelled


def test_a_secret_is_not_written() -> None:
    assert "s3cret" not in Secret().toml("s3cret")


@pytest.mark.parametrize("form", [Flag(), Names(), SIZE, Seconds(), Host(), File(), Secret()])
def test_the_text_of_every_form_can_follow_the_word_expected(form: ValueType) -> None:
    assert str(form)
    assert not str(form).startswith("<")
