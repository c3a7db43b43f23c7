"""Clients that share no code with ours: one in C, written from the description, and a shell."""

from __future__ import annotations

import shutil
import subprocess
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from tambomq.kqueue import Consumer, Producer
from tests.kqueue.naive import message
from tests.kqueue.server_process import ServerProcess
from tests.kqueue.serving import Raw
from tests.peers.driver import PEERS

pytestmark = pytest.mark.interop

_WITHIN_S = 30.0

Run: TypeAlias = Callable[..., "subprocess.Popen[str]"]

PACES = [
    pytest.param((), id="frame by frame"),
    pytest.param(("--bytes",), id="byte by byte"),
    pytest.param(("--together",), id="all together"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C client, compiled."""
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        pytest.skip("no C compiler on PATH")
    program = tmp_path_factory.mktemp("kqueue_c") / "client"
    source = PEERS / "kqueue_c" / "client.c"
    command = [compiler, "-std=c99", "-D_DEFAULT_SOURCE", "-O2", "-Wall", "-Wextra"]
    done = subprocess.run(
        [*command, "-o", program, source], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return program


@pytest.fixture(scope="module", params=["uvloop", "asyncio"])
def running(request: pytest.FixtureRequest) -> Iterator[ServerProcess]:
    with ServerProcess(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def running_with_answers() -> Iterator[ServerProcess]:
    with ServerProcess(ok_replies=True) as started:
        yield started


@pytest.fixture
def server(running: ServerProcess) -> ServerProcess:
    """A server that nobody uses."""
    running.comes_to(lambda stats: stats.connections == 0)
    return running


@pytest.fixture
def answering(running_with_answers: ServerProcess) -> ServerProcess:
    """A server that nobody uses, and that says OK to everything."""
    running_with_answers.comes_to(lambda stats: stats.connections == 0)
    return running_with_answers


@pytest.fixture
def run(client: Path) -> Iterator[Run]:
    """A function that starts the C client."""
    started: list[subprocess.Popen[str]] = []

    def start(server: ServerProcess, *args: object) -> subprocess.Popen[str]:
        command = [str(client), str(server.port), *map(str, args)]
        pipe = subprocess.PIPE
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def lines_of(process: subprocess.Popen[str]) -> list[str]:
    """All that the client has printed, when it has ended well."""
    out, err = process.communicate(timeout=_WITHIN_S)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


@contextmanager
def subscribed(server: ServerProcess, queue: str, *, others: int = 0) -> Iterator[Consumer]:
    """A consumer of ours that the server knows, besides so many *others*."""
    with Consumer(port=server.port) as consumer:
        consumer.subscribe(queue)
        has_subscribers(server, others + 1)
        yield consumer


def has_subscribers(server: ServerProcess, count: int) -> None:
    """Wait until the server knows of so many."""
    server.comes_to(lambda stats: stats.subscriptions == count)


def line(queue: bytes, body: bytes) -> str:
    """What the C client prints for a message."""
    return f"{queue.hex()} {len(body)} {zlib.crc32(body):08x}"


def body_of(number: int, size: int) -> bytes:
    """What the C client sends."""
    return bytes((7 * number + k) % 251 for k in range(size))


def received(consumer: Consumer, count: int) -> list[str]:
    """The next messages, as the C client would print them."""
    found = []
    for _ in range(count):
        got = consumer.receive(timeout_s=_WITHIN_S)
        assert got is not None
        found.append(line(got.queue, got.body))
    return found


@pytest.mark.parametrize("pace", PACES)
@pytest.mark.parametrize(("count", "size"), [(300, 100), (50, 0), (3, 70_000)])
def test_what_a_c_producer_sends_our_consumer_gets(
    server: ServerProcess, run: Run, pace: tuple[str, ...], count: int, size: int
) -> None:
    with subscribed(server, "from c") as consumer:
        sending = run(server, "produce", "from c", count, size, *pace)
        expected = [line(b"from c", body_of(number, size)) for number in range(count)]
        assert received(consumer, count) == expected
        assert lines_of(sending) == expected


@pytest.mark.parametrize("name", ["to c", ""])
@pytest.mark.parametrize("pace", PACES[:2])
def test_what_our_producer_sends_a_c_consumer_gets(
    server: ServerProcess, run: Run, name: str, pace: tuple[str, ...]
) -> None:
    sent = [("to c", bytes([n % 256]) * (n * n)) for n in range(200)]
    reading = run(server, "consume", name, len(sent), *pace)
    has_subscribers(server, 1)
    with Producer(port=server.port) as producer:
        producer.send_many(sent)
    told = lines_of(reading)
    assert told == ["ready", *(line(queue.encode(), body) for queue, body in sent)]


def test_a_c_consumer_of_all_queues_sees_every_name(server: ServerProcess, run: Run) -> None:
    sent = [(b"", b"nameless"), (b"\xff\x00*", b"any bytes"), (b"q" * 65_536, b"a long name")]
    reading = run(server, "consume", "", len(sent))
    has_subscribers(server, 1)
    with Producer(port=server.port) as producer:
        producer.send_many(sent)
    assert lines_of(reading) == ["ready", *(line(*each) for each in sent)]


@pytest.mark.parametrize("pace", PACES)
def test_what_a_c_producer_sends_every_c_consumer_gets(
    server: ServerProcess, run: Run, pace: tuple[str, ...]
) -> None:
    reading = [run(server, "consume", name, 200) for name in ("c to c", "c to c", "")]
    has_subscribers(server, 3)
    sent = lines_of(run(server, "produce", "c to c", 200, 500, *pace))
    assert len(sent) == 200
    for each in reading:
        assert lines_of(each) == ["ready", *sent]


@pytest.mark.parametrize("pace", PACES)
def test_clients_in_c_get_an_ok_for_everything_if_the_server_says_so(
    answering: ServerProcess, run: Run, pace: tuple[str, ...]
) -> None:
    reading = run(answering, "consume", "answered", 200, "--ok", *pace[:1])
    assert reading.stdout is not None
    # The OK to its subscription tells that it is known.
    assert reading.stdout.readline() == "ready\n"
    with subscribed(answering, "answered", others=1) as consumer:
        sent = lines_of(run(answering, "produce", "answered", 200, 50, "--ok", *pace))
        assert lines_of(reading) == sent == received(consumer, 200)


def test_our_producer_and_a_c_consumer_understand_a_server_that_answers(
    answering: ServerProcess, run: Run
) -> None:
    reading = run(answering, "consume", "ours", 1000, "--ok")
    assert reading.stdout is not None
    assert reading.stdout.readline() == "ready\n"
    with Producer(port=answering.port) as producer:
        producer.send_many(("ours", b"%d" % number) for number in range(1000))
    assert lines_of(reading) == [line(b"ours", b"%d" % number) for number in range(1000)]


def test_a_c_client_whose_first_word_is_wrong_is_shown_out(server: ServerProcess, run: Run) -> None:
    lost = run(server, "consumX", "a", 1)
    _, err = lost.communicate(timeout=_WITHIN_S)
    assert lost.returncode == 1
    assert err.startswith("client: ")


def test_a_shell_is_a_client(server: ServerProcess) -> None:
    if (bash := shutil.which("bash")) is None:
        pytest.skip("no bash on PATH")
    there = f"exec 3<>/dev/tcp/127.0.0.1/{server.port}"
    frame = message(b"queue", b"Hello, world")
    asking = rf"{there} && printf 'consume>\0\0\0\5queue' >&3 && head -c {len(frame)} <&3"
    saying = rf"{there} && printf 'produce*\0\0\0\5queue\0\0\0\14Hello, world' >&3"
    with (
        subscribed(server, "queue") as ours,
        subprocess.Popen([bash, "-c", asking], stdout=subprocess.PIPE) as shell,
    ):
        has_subscribers(server, 2)
        subprocess.run([bash, "-c", saying], check=True, timeout=_WITHIN_S)
        assert shell.communicate(timeout=_WITHIN_S)[0] == frame
        assert received(ours, 1) == [line(b"queue", b"Hello, world")]
    with Raw(server.port).say(b"healthz") as probe:
        assert probe.rest() == b"OK"
