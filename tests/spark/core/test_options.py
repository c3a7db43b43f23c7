"""Options: what may be said, and what is answered to everything else."""

from __future__ import annotations

import pickle
import re

import pytest

from tambomq.errors import SettingsError
from tambomq.spark.core.options import QueueSelector, RedisTarget, SourceOptions

KNOWN = ("url", "queue", "table", "partitions", "payloadSchema", "flag")


def options_of(**options: str) -> SourceOptions:
    return SourceOptions("rsmq", options, KNOWN)


def test_names_are_found_however_they_are_spelled() -> None:
    assert options_of(PAYLOADSCHEMA="a INT").text("payloadSchema") == "a INT"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("quue", "did you mean queue?"),
        ("payloadschem", "did you mean payloadSchema?"),
        ("xyz", "there are url, queue"),
        ("path", "there are url, queue"),
    ],
)
def test_an_unknown_option_is_refused_with_what_there_is(name: str, hint: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(hint)) as error:
        options_of(**{name: "x"})
    assert str(error.value).startswith(f"format 'rsmq': no option {name}; ")


@pytest.mark.parametrize("options", [{}, {"queue": ""}])
def test_a_missing_option_is_named(options: dict[str, str]) -> None:
    with pytest.raises(SettingsError, match="format 'rsmq': the option queue is missing"):
        options_of(**options).queue_selector()


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "٣", "10001", "9" * 5000, " 4", "4\n"])
def test_an_invalid_number_of_tasks_is_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="partitions must be a whole number from 1 to 10000"):
        options_of(partitions=text).partition_count()


def test_a_refusal_is_short_for_any_input() -> None:
    with pytest.raises(SettingsError) as error:
        options_of(partitions="9" * 5000).partition_count()
    assert len(str(error.value)) < 250


def test_numbers_flags_and_words_are_read() -> None:
    assert options_of(partitions="12").partition_count() == 12
    assert options_of().partition_count() == 4
    assert options_of(flag="TRUE").flag("flag", default=False) is True
    assert options_of().flag("flag", default=True) is True
    assert (
        options_of(table="Messages").one_of("table", ("messages", "queues"), "queues") == "messages"
    )


def test_a_flag_or_word_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="flag must be true or false, not 'maybe'"):
        options_of(flag="maybe").flag("flag", default=True)
    with pytest.raises(SettingsError, match="table must be one of messages, queues, not 'jobs'"):
        options_of(table="jobs").one_of("table", ("messages", "queues"), "queues")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ("a",)),
        ("a, b ,a", ("a", "b")),
        ('["a,b", "c"]', ("a,b", "c")),
        ('[ "a" ]', ("a",)),
        ("[ab]*", ("[ab]*",)),
        ("orders-*,x", ("orders-*", "x")),
    ],
)
def test_queues_are_a_name_names_a_list_or_patterns(text: str, names: tuple[str, ...]) -> None:
    assert options_of(queue=text).queue_selector() == QueueSelector(names)


@pytest.mark.parametrize("text", ["[]", "a,,b", ",", '["a", 1]', '["a"', '[""]', " "])
def test_queues_that_cannot_be_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match="queue must be names, or a JSON list of them"):
        options_of(queue=text).queue_selector()


def test_patterns_are_distinguished_from_names() -> None:
    selector = QueueSelector(("a", "b*", "c?", "[de]"))
    assert selector.names == ("a",)
    assert selector.has_patterns
    assert [
        name for name in ("a", "A", "bx", "cy", "cyy", "d", "f") if selector.includes(name)
    ] == [
        "a",
        "bx",
        "cy",
        "d",
    ]
    assert not QueueSelector(("a", "b")).has_patterns


def test_a_redis_target_hides_its_password_and_can_be_pickled() -> None:
    target = options_of(url="redis://me:secret@10.0.0.1:7000/2").redis_target()
    assert "secret" not in repr(target)
    assert "10.0.0.1:7000" in repr(target)
    assert pickle.loads(pickle.dumps(target)) == target  # noqa: S301  (our own)


@pytest.mark.parametrize("url", ["http://x", "redis://:secret@host:port", "redis://h/x"])
def test_an_invalid_url_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError) as error:
        options_of(url=url).redis_target()
    assert "secret" not in str(error.value)


def test_without_a_url_the_local_server_is_used() -> None:
    assert options_of().redis_target() == RedisTarget("redis://127.0.0.1:6379")
