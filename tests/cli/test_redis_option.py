"""Commands that send, and the level of durability that they wait for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pytest

from tambomq.cli.chasqui import chasqui
from tambomq.cli.main import tambo
from tambomq.gomq.model import Options
from tambomq.rsmq import Rsmq
from tests.cli.transcript import Done, call
from tests.gomq.fakes import serving
from tests.servers import Server

Send = Callable[..., Done]


@pytest.fixture(params=["rsmq", "chasqui", "gomq"])
def send(request: pytest.FixtureRequest, private_server: Server) -> Send:
    """A function from options to a command that sends one message, of each protocol in turn."""
    url = private_server.url
    if request.param == "chasqui":
        return partial(call, chasqui, "chasqui", "add", "q", "job", url=url)
    if request.param == "rsmq":
        with Rsmq(url) as client:
            client.create_queue("q")
        return partial(
            call, tambo, "tambo", "rsmq", "message", "send", "-n", "q", "-m", "x", url=url
        )
    served = request.getfixturevalue("served")
    words = ("gomq", "--address", served, "publish", "q", "x")
    return partial(call, tambo, "tambo", *words, url=url)


@pytest.fixture
def served(private_server: Server) -> Iterator[str]:
    """The address of a GOMQ server that does not wait long."""
    options = Options(durable_timeout_s=0.05)
    with serving(private_server.url, options=options) as running:
        yield running.address


def test_a_send_that_the_disk_confirms_succeeds(send: Send) -> None:
    assert send("--durable", "disk").code == 0


def test_a_send_that_replicas_do_not_confirm_exits_1(send: Send) -> None:
    done = send("--durable", "replicas:1")
    assert done.code == 1
    assert "stored in memory, but not confirmed with durable='replicas:1'" in done.err


def test_the_level_may_be_in_the_environment(send: Send, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAMBO_DURABLE", "replicas:1")
    assert send().code == 1
    assert send("--durable", "memory").code == 0


def test_a_word_that_is_no_level_is_wrong_usage(send: Send) -> None:
    done = send("--durable", "disc")
    assert done.code == 2
    assert "durable 'disc' is not valid: memory, disk, or replicas:N" in done.err
