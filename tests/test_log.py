from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tambomq import log


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("tambomq")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    root.handlers[:] = []  # pytest's own, which set_up would close
    yield
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def lines(level: str, style: str) -> io.StringIO:
    stream = io.StringIO()
    log.set_up(level, style, stream)
    return stream


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("redis://ana:pw@h:6379", "redis://ana:***@h:6379"),
        ("rediss://:p@s/w@h", "rediss://:***@h"),
        ("unix://:pw@/run/s.sock?db=1", "unix://:***@/run/s.sock?db=1"),
        ("redis://h?db=1&password=pw&x=2", "redis://h?db=1&password=***&x=2"),
        (
            "cannot reach redis://:a@x and redis://:b@y",
            "cannot reach redis://:***@x and redis://:***@y",
        ),
    ],
)
def test_a_password_is_masked(url: str, masked: str) -> None:
    assert log.mask_url(url) == masked


def test_a_line_for_people() -> None:
    stream = lines("info", "text")
    logging.getLogger("tambomq.store.embedded").info("at %s", "redis://:pw@h")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    store\.embedded  at redis://:\*\*\*@h\n",
        stream.getvalue(),
    )


def test_a_line_for_programs() -> None:
    stream = lines("info", "json")
    logging.getLogger("tambomq.serve").warning("ü\n2", extra={"url": "redis://:pw@h", "n": 3})
    entry = json.loads(stream.getvalue())
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "tambomq.serve",
        "message": "ü\n2",
        "url": "redis://:***@h",
        "n": 3,
    }
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("style", ["text", "json"])
def test_a_traceback_is_told_without_passwords(style: str) -> None:
    stream = lines("info", style)
    error = OSError("redis://:pw@h")
    logging.getLogger("tambomq").error("failed", exc_info=error)
    assert "OSError: " in stream.getvalue()
    assert ":pw@" not in stream.getvalue()


def test_what_is_below_the_level_is_not_told_and_of_others_only_warnings() -> None:
    stream = lines("warning", "text")
    logging.getLogger("tambomq.x").info("quiet")
    logging.getLogger("other").info("quiet")
    logging.getLogger("other").warning("loud")
    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()


def test_a_second_call_replaces_the_first() -> None:
    first, second = lines("info", "text"), lines("info", "text")
    logging.getLogger("tambomq").info("once")
    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1


FORGED = "x\n2026-11-16 12:00:00.000 INFO    serve  all is well\x1b[2K\x85\u2028\udc80\r\x7f"


@pytest.mark.parametrize("style", ["text", "json"])
@pytest.mark.parametrize("where", ["argument", "exception", "extra"])
def test_a_job_id_forges_no_line_and_steers_no_terminal(style: str, where: str) -> None:
    stream = lines("info", style)
    logger = logging.getLogger("tambomq.chasqui.floor")
    if where == "argument":
        logger.info("job %s failed", FORGED)
    elif where == "exception":
        logger.info("a job failed", exc_info=ValueError(FORGED))
    else:
        logger.info("a job failed", extra={"id": FORGED})
    told = stream.getvalue()
    told.encode()
    assert told.replace("\n", "").isprintable()
    heads = [line for line in told.split("\n") if re.match(r"\d{4}-|\{", line)]
    assert len(heads) == 1
    if style == "json":
        assert told.count("\n") == 1
        assert json.dumps(FORGED)[1:-1] in json.dumps(json.loads(told))


def test_what_is_below_a_line_is_indented() -> None:
    stream = lines("info", "text")
    logging.getLogger("tambomq").error("failed", exc_info=ValueError("one\ntwo"), stack_info=True)
    head, *below, end = stream.getvalue().split("\n")
    assert head.endswith("failed")
    assert {line[:4] for line in below} == {"  | "}
    assert "  | two" in below
    assert end == ""


def test_ids_are_quoted_also_for_programs_that_format_by_themselves() -> None:
    source = Path(log.__file__).parent
    calls = re.compile(r"log\.\w+\(\s*\"[^\"]*(?:job|message|queue|key) %s")
    for path in source.rglob("*.py"):
        assert not calls.search(path.read_text("utf-8")), path
