"""``tambo kqueue``, against a real server."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tambomq.cli.main import tambo
from tambomq.kqueue import Consumer, Producer
from tambomq.tls import ServerTls
from tests.cli.running import WITHIN_S, Start, on_a_terminal, starting
from tests.cli.transcript import Done, call
from tests.kqueue.serving import Served
from tests.serve.processes import serving
from tests.servers.ports import free_port
from tests.servers.tls import certificate

Kqueue = Callable[..., Done]
_UNREACHABLE = "redis://127.0.0.1:1"


@pytest.fixture
def served() -> Iterator[Served]:
    with Served("asyncio") as running:
        yield running


@pytest.fixture
def kqueue(served: Served) -> Kqueue:
    """``tambo kqueue --address …`` in this process."""

    def run(*args: str, stdin: bytes = b"") -> Done:
        words = ("kqueue", "--address", f"127.0.0.1:{served.port}", *args)
        return call(tambo, "tambo", *words, url=_UNREACHABLE, stdin=stdin)

    return run


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    with starting(tmp_path) as start:
        yield start


@contextmanager
def listening(served: Served, *queues: str | bytes) -> Iterator[Consumer]:
    """A consumer whose subscriptions count."""
    with Consumer(port=served.port) as consumer:
        consumer.subscribe(*queues)
        served.comes_to(lambda stats: stats.subscriptions == len(queues))
        yield consumer


@contextmanager
def sending(
    served: Served, *messages: tuple[str | bytes, str | bytes], subscriptions: int = 1
) -> Iterator[None]:
    """Send *messages* as soon as there are this many *subscriptions*."""
    # Whoever consumed before may not have left yet.
    served.comes_to(lambda stats: stats.subscriptions == 0)

    def send() -> None:
        served.comes_to(lambda stats: stats.subscriptions == subscriptions)
        with Producer(port=served.port) as producer:
            producer.send_many(messages)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


def received(consumer: Consumer, count: int) -> list[bytes]:
    found = [consumer.receive(WITHIN_S) for _ in range(count)]
    return [message.body for message in found if message]


# ── produce ──────────────────────────────────────────────────────────────────


def test_bodies_are_sent_in_order(kqueue: Kqueue, served: Served) -> None:
    with listening(served, "orders") as consumer:
        result = kqueue("produce", "orders", "first", "second", "")
        assert result == Done(0, "sent 3 messages to the queue orders\n")
        assert received(consumer, 3) == [b"first", b"second", b""]


def test_lines_of_standard_input_are_messages(kqueue: Kqueue, served: Served) -> None:
    lines = [b"line %d" % number for number in range(20_000)]
    with listening(served, "orders") as consumer:
        result = kqueue("produce", "orders", "--json", stdin=b"\n\n".join(lines))
        assert json.loads(result.out) == {"queue": "orders", "sent": 20_000}
        assert received(consumer, 20_000) == lines


def test_names_and_bodies_are_any_bytes(kqueue: Kqueue, served: Served, tmp_path: Path) -> None:
    (tmp_path / "body").write_bytes(b"\xff\n\x00")
    with listening(served, b"\xfe") as consumer:
        result = kqueue("produce", os.fsdecode(b"\xfe"), "--file", str(tmp_path / "body"), "--json")
        assert json.loads(result.out) == {"queue": {"base64": "/g=="}, "sent": 1}
        assert received(consumer, 1) == [b"\xff\n\x00"]


def test_a_line_goes_out_before_the_pipe_ends(served: Served, start: Start) -> None:
    with listening(served, "log") as consumer:
        producing = start("kqueue", "produce", "log", "--address", f"127.0.0.1:{served.port}")
        producing.write(b"first\nsec")
        assert received(consumer, 1) == [b"first"]
        producing.write(b"ond\n")
        assert received(consumer, 1) == [b"second"]
        assert producing.stop() == 130
    # The signal may be faster than the end of the call that sent the second.
    assert producing.err.strip() in (
        "2 sent, up to line 2",
        "1 sent, up to line 1; the next 1 may have been",
    )


def test_terminal_sees_a_bar(served: Served, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"line\n" * 100_000)
    words = ("kqueue", "produce", "log", "--address", f"127.0.0.1:{served.port}")
    code, drawn = on_a_terminal(*words, stdin=tmp_path / "lines")
    assert code == 0
    assert "sending" in drawn
    assert "sent 100000 messages to the queue log" in drawn


def test_message_that_is_too_long_is_refused_and_those_before_it_are_counted(
    kqueue: Kqueue, served: Served
) -> None:
    result = kqueue("produce", "orders", stdin=b"one\n" + b"x" * (17 << 20) + b"\n")
    assert (result.code, result.out, result.err.count("\n")) == (1, "", 1)
    assert "; 1 sent, up to line 1" in result.err
    assert kqueue("produce", "x" * 70_000, "body").code == 1
    served.comes_to(lambda stats: stats.received == 1)


# ── consume ──────────────────────────────────────────────────────────────────


def test_some_queues_are_consumed_and_others_not(kqueue: Kqueue, served: Served) -> None:
    with sending(served, ("b", "1"), ("other", "2"), ("a", "3"), subscriptions=2):
        assert kqueue("consume", "a", "b", "--count", "2") == Done(0, "b  1\na  3\n")


def test_no_queue_means_all_of_them(kqueue: Kqueue, served: Served) -> None:
    with sending(served, ("a", "1"), ("b", "2"), ("", "3")):
        result = kqueue("consume", "-c", "3")
    assert result == Done(0, "a  1\nb  2\n  3\n")


def test_json_has_every_byte_and_text_escapes_control_characters(
    kqueue: Kqueue, served: Served
) -> None:
    with sending(served, ("a", b"\xff\x1b[31m\n"), ("a", "ü")):
        result = kqueue("consume", "--json", "-c", "2")
    assert [json.loads(line) for line in result.out.splitlines()] == [
        {"queue": "a", "body": {"base64": "/xtbMzFtCg=="}},
        {"queue": "a", "body": "ü"},
    ]
    with sending(served, ("a\n", b"\xff\x1b[31m\n")):
        assert kqueue("consume", "-c", "1").out == "a\\n  \\xff\\x1b[31m\\n\n"
    with sending(served, ("a", "\x1b[31m")):
        assert kqueue("consume", "-c", "1", "--raw").out == "\x1b[31m\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_timeout_without_a_message_is_exit_3(kqueue: Kqueue, form: list[str]) -> None:
    result = kqueue("consume", "quiet", "--timeout", "0.05", *form)
    assert (result.code, result.out) == (3, "")
    assert result.err == ("" if form else "tambo: nothing was received within 0.05 s\n")


def test_a_timeout_after_a_message_is_exit_0(kqueue: Kqueue, served: Served) -> None:
    with sending(served, ("a", "1")):
        assert kqueue("consume", "--timeout", "2") == Done(0, "a  1\n")


def test_a_consumer_survives_a_restart_of_the_server_until_ctrl_c(
    tmp_path: Path, start: Start
) -> None:
    port = free_port()
    with Served("asyncio", port=port) as served:
        consuming = start("kqueue", "consume", "a", "--address", f"127.0.0.1:{port}")
        served.comes_to(lambda stats: stats.subscriptions == 1)
        with Producer(port=port) as producer:
            producer.send("a", "before")
        consuming.says("a  before\n")
    consuming.says("still trying\n", "err")
    with Served("asyncio", port=port) as served:
        served.comes_to(lambda stats: stats.subscriptions == 1)
        with Producer(port=port) as producer:
            producer.send("a", "after")
        consuming.says("a  after\n")
        assert consuming.stop() == 0
    assert consuming.out == "a  before\na  after\n"
    assert consuming.err.count("\n") == 1


# ── both ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("words", [("produce", "a", "x"), ("consume", "a"), ("produce", "a")])
def test_server_that_is_not_there_is_one_line(words: tuple[str, ...]) -> None:
    words = ("kqueue", "--address", "127.0.0.1:1", *words)
    done = call(tambo, "tambo", *words, url=_UNREACHABLE, stdin=b"line\n")
    assert (done.code, done.out, done.err.count("\n")) == (1, "", 1)
    assert done.err.startswith("tambo: no server at 127.0.0.1:1: ")
    assert done.err.endswith(": is it running? `tambo serve` starts one\n")


def test_tls_is_spoken_if_asked_for(tmp_path: Path) -> None:
    made = certificate(tmp_path)
    with Served("asyncio", tls=ServerTls(made.cert, made.key)) as served:
        words = ("kqueue", "--address", f"127.0.0.1:{served.port}", "produce", "a", "x")
        result = call(tambo, "tambo", *words, "--tls-ca", str(made.cert), url=_UNREACHABLE)
        assert result.code == 0
        served.comes_to(lambda stats: stats.received == 1)
        assert call(tambo, "tambo", *words, "--tls", url=_UNREACHABLE).code == 1


@pytest.mark.parametrize(
    "words",
    [
        ("consume", "--raw", "--json"),
        ("consume", "--timeout", "0"),
        ("consume", "--count", "0"),
        ("produce", "a", "x", "--file", "/dev/null"),
        ("produce", "a", "x", "--address", "8000"),
    ],
)
def test_wrong_usage_is_exit_2(kqueue: Kqueue, words: tuple[str, ...]) -> None:
    assert kqueue(*words).code == 2


# ── stats ────────────────────────────────────────────────────────────────────


def test_stats_are_asked_of_the_http_component(tmp_path: Path) -> None:
    with serving(tmp_path, "--no-gomq", "--no-rsmq", "--no-chasqui") as serve:
        http = serve.address("http")
        words = ("kqueue", "produce", "a", "x", "--address", serve.address("kqueue"))
        assert call(tambo, "tambo", *words, url=_UNREACHABLE).code == 0
        result = call(
            tambo, "tambo", "kqueue", "stats", "--http", f"{http}/", "--json", url=_UNREACHABLE
        )
        assert {"connections", "received", "unrouted"} <= set(json.loads(result.out))
        result = call(tambo, "tambo", "kqueue", "stats", "--http", http, url=_UNREACHABLE)
        assert result.out.splitlines()[0].split() == ["what", "count"]
        assert "received bytes" in result.out


def test_closed_http_component_is_one_line_with_advice() -> None:
    done = call(tambo, "tambo", "kqueue", "stats", "--http", "http://127.0.0.1:1", url=_UNREACHABLE)
    assert done == Done(
        1,
        "",
        "tambo: no server at http://127.0.0.1:1/stats: Connection refused: "
        "is it running? `tambo serve` starts one\n",
    )


@pytest.mark.parametrize(
    ("status", "body", "complaint"),
    [
        (404, b"", "answers 404"),
        (200, b"<html>", "does not answer with JSON"),
        (200, b"[]", "does not answer as expected"),
        (200, b"{}", "has no metrics of KqueueMsgQ"),
    ],
)
def test_another_server_on_that_port_is_noticed(status: int, body: bytes, complaint: str) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Other) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{other.server_port}"
        done = call(tambo, "tambo", "kqueue", "stats", "--http", url, url=_UNREACHABLE)
        other.shutdown()
        thread.join()
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert complaint in done.err


@pytest.mark.parametrize("url", ["localhost:8090", "file:///etc/hosts"])
def test_stats_are_asked_over_http_alone(url: str) -> None:
    done = call(tambo, "tambo", "kqueue", "stats", "--http", url, url=_UNREACHABLE)
    assert done.code == 2
    assert url in done.err
