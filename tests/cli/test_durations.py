"""One grammar of durations for every command: a plain number is seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import click
import pytest

from tambomq.cli import durations
from tambomq.cli.chasqui import chasqui
from tambomq.cli.chasqui.add import pattern_of
from tambomq.cli.durations import (
    METAVAR,
    milliseconds,
    positive_seconds,
    seconds,
    whole_days,
    whole_seconds,
)
from tambomq.cli.main import tambo
from tambomq.cli.rsmq.rsmqctl import rsmqctl

TYPES = {
    each.__name__: each
    for each in (milliseconds, seconds, positive_seconds, whole_seconds, whole_days)
}
# Options that another tool's users know: rsmqctl's are whole seconds.
FOREIGN = {"watch --interval-ms"}


def commands(command: click.Command, path: str) -> Iterator[tuple[str, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        ctx = click.Context(command)
        for name in command.list_commands(ctx):
            if (found := command.get_command(ctx, name)) is not None:
                yield from commands(found, f"{path} {name}".strip())


def options(root: click.Command) -> dict[str, click.Option]:
    return {
        f"{path} {option.opts[-1]}": option
        for path, command in commands(root, "")
        for option in command.params
        if isinstance(option, click.Option)
    }


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("0", 0),
        ("5", 5000),
        ("0.5", 500),
        ("250ms", 250),
        ("10s", 10_000),
        ("1.5m", 90_000),
        ("0.0005s", 0),
        (" 2 h ", 7_200_000),
        ("7d", 604_800_000),
        ("36500d", 36_500 * 86_400_000),
    ],
)
def test_plain_number_is_seconds_and_units_are_ms_s_m_h_d(text: str, ms: int) -> None:
    assert milliseconds(text) == ms
    assert int(seconds(text) * 1000) == ms


@pytest.mark.parametrize("text", ["", "-1", "s", "1w", "5min", "1h30m", "nan", "٣", "9" * 19])
@pytest.mark.parametrize("read", TYPES.values(), ids=TYPES)
def test_anything_else_is_refused_with_what_to_write(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(click.BadParameter, match="is not a duration: write a number of seconds"):
        read(text)


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [(whole_seconds, "2m", 120), (whole_seconds, "3000ms", 3), (whole_days, "48h", 2)],
)
def test_whole_numbers_may_have_any_unit(
    read: Callable[[str], object], text: str, value: int
) -> None:
    assert read(text) == value


@pytest.mark.parametrize(
    ("read", "text", "error"),
    [
        (whole_seconds, "1500ms", "'1500ms' is not a whole number of seconds"),
        (whole_days, "30", "'30' is not a whole number of days: write 30d"),
        (whole_days, "36h", "is not a whole number of days"),
        (whole_days, "0d", "is not a whole number of days"),
        (positive_seconds, "0s", "'0s' is no time at all"),
        (seconds, "36501d", "'36501d' is more than a century, 36500d"),
        (milliseconds, "9" * 18 + "d", "is more than a century"),
    ],
)
def test_an_invalid_value_of_an_option_is_refused(
    read: Callable[[str], object], text: str, error: str
) -> None:
    with pytest.raises(click.BadParameter, match=error):
        read(text)


def test_all_options_that_take_a_duration_read_the_same_grammar() -> None:
    found = options(tambo)
    read = {name for name, option in found.items() if getattr(durations, option.type.name, None)}
    assert read == {
        name
        for name, option in found.items()
        if option.metavar in (METAVAR, "DAYS", "SECONDS", "MS", "SPAN")
    } - {f"chasqui {each}" for each in FOREIGN}
    assert {name.split()[-1] for name in read} >= {
        *("--every", "--watermark", "--give-up", "--retain", "--since", "--wait", "--canary-wait"),
        *("--delay", "--older-than", "--visibility-timeout", "--timeout", "--seconds"),
        *("--gomq-peer-timeout-s", "--kqueue-handshake-s", "--kqueue-frame-s"),
    }


def test_the_chasqui_command_reads_the_same_durations() -> None:
    alone = {name: option.type.name for name, option in options(chasqui).items()}
    assert alone.items() >= {
        (name.removeprefix("chasqui "), option.type.name)
        for name, option in options(tambo).items()
        if name.startswith("chasqui ") and option.metavar == METAVAR
    }


def test_rsmqctl_keeps_the_whole_seconds_of_its_users() -> None:
    times = [each for each in options(rsmqctl).values() if each.metavar == "SECONDS"]
    assert {each.type.name for each in times} == {"integer"}


def test_default_durations_are_read_as_well() -> None:
    run = options(tambo)["pipeline run --every"]
    with click.Context(click.Command("run")) as ctx:
        assert run.get_default(ctx) == "10s"
        assert run.type_cast_value(ctx, "10s") == 10


def test_job_that_recurs_every_five_does_so_every_five_seconds() -> None:
    every = options(chasqui)["add --every"]
    with click.Context(click.Command("add")) as ctx:
        pattern = pattern_of(every.type_cast_value(ctx, "5"), None, None)
    assert pattern is not None
    assert pattern.interval_ms == 5000
