from __future__ import annotations

import ast
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
        ("redis+sentinel://h/m?sentinel_password=pw", "redis+sentinel://h/m?sentinel_password=***"),
        (
            "cannot reach redis://:a@x and redis://:b@y",
            "cannot reach redis://:***@x and redis://:***@y",
        ),
    ],
)
def test_a_password_is_masked(url: str, masked: str) -> None:
    assert log.mask_url(url) == masked


def test_a_text_line_has_time_level_logger_and_message() -> None:
    stream = lines("info", "text")
    logging.getLogger("tambomq.embedded.server").info("at %s", "redis://:pw@h")
    assert re.fullmatch(
        r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} INFO    embedded\.server  at redis://:\*\*\*@h\n",
        stream.getvalue(),
    )


def test_a_json_line_has_level_logger_message_and_fields() -> None:
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
def test_a_traceback_is_logged_without_passwords(style: str) -> None:
    stream = lines("info", style)
    error = OSError("redis://:pw@h")
    logging.getLogger("tambomq").error("failed", exc_info=error)
    assert "OSError: " in stream.getvalue()
    assert ":pw@" not in stream.getvalue()


def test_records_below_the_level_are_dropped_and_of_other_loggers_only_warnings_kept() -> None:
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
@pytest.mark.parametrize("place", ["argument", "exception", "extra"])
def test_a_job_id_forges_no_line_and_steers_no_terminal(style: str, place: str) -> None:
    stream = lines("info", style)
    logger = logging.getLogger("tambomq.chasqui.worker.handler_pool")
    if place == "argument":
        logger.info("job %s failed", FORGED)
    elif place == "exception":
        logger.info("a job failed", exc_info=ValueError(FORGED))
    else:
        logger.info("a job failed", extra={"id": FORGED})
    text = stream.getvalue()
    text.encode()
    assert text.replace("\n", "").isprintable()
    heads = [line for line in text.split("\n") if re.match(r"\d{4}-|\{", line)]
    assert len(heads) == 1
    if style == "json":
        assert text.count("\n") == 1
        assert json.dumps(FORGED)[1:-1] in json.dumps(json.loads(text))


def test_further_lines_of_a_record_are_indented() -> None:
    stream = lines("info", "text")
    logging.getLogger("tambomq").error("failed", exc_info=ValueError("one\ntwo"), stack_info=True)
    head, *below, end = stream.getvalue().split("\n")
    assert head.endswith("failed")
    assert {line[:4] for line in below} == {"  | "}
    assert "  | two" in below
    assert end == ""


@pytest.mark.parametrize("field", ["time", "level", "logger"])
def test_a_field_does_not_replace_what_every_json_line_has(field: str) -> None:
    stream = lines("info", "json")
    logging.getLogger("tambomq.serve").info("text", extra={field: "forged", "queue": "orders"})
    entry = json.loads(stream.getvalue())
    assert entry[field] != "forged"
    assert entry["queue"] == "orders"


def test_a_line_for_people_has_no_fields() -> None:
    stream = lines("info", "text")
    logging.getLogger("tambomq.serve").info("text", extra={"queue": "orders"})
    assert stream.getvalue().endswith("serve  text\n")


def test_a_logger_with_fields_adds_them_to_each_record() -> None:
    stream = lines("info", "json")
    logger = log.with_fields(logging.getLogger("tambomq.serve"), queue="orders", consumer="c1")
    logger.info("text", extra={"job": "j1"})
    logger.info("text", extra={"queue": "other"})
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["queue"], first["consumer"], first["job"]) == ("orders", "c1", "j1")
    assert (second["queue"], "job" in second) == ("other", False)


def _log_calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=logger), args=[_, *_]):
                if ast.unparse(logger).endswith("log"):
                    yield node


def test_a_line_that_names_something_has_the_name_as_a_field_too() -> None:
    source = Path(log.__file__).parent
    calls = [(path, call) for path in source.rglob("*.py") for call in _log_calls(path)]
    naming = [(path, call) for path, call in calls if "%r" in ast.unparse(call.args[0])]
    assert len(naming) > 20
    for path, call in naming:
        has_extra = any(word.arg == "extra" for word in call.keywords)
        has_fields = ast.unparse(call.func).startswith("self._log.")
        assert has_extra or has_fields, (path, call.lineno)


def test_ids_are_quoted_also_for_programs_that_format_by_themselves() -> None:
    source = Path(log.__file__).parent
    calls = re.compile(r"log\.\w+\(\s*\"[^\"]*(?:job|message|queue|key) %s")
    for path in source.rglob("*.py"):
        assert not calls.search(path.read_text("utf-8")), path
