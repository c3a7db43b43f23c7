"""Clients that share no code with ours: one in C, written from the protocol page, and a shell."""

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

_WITHIN_S = 120.0

Run: TypeAlias = Callable[..., "subprocess.Popen[str]"]

RATES = [
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
    """A server without connections."""
    running.comes_to(lambda stats: stats.connections == 0)
    return running


@pytest.fixture
def answering(running_with_answers: ServerProcess) -> ServerProcess:
    """A server without connections, with `ok_replies`."""
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
    """The output of the client, after it has exited with 0."""
    out, err = process.communicate(timeout=_WITHIN_S)
    assert (process.returncode, err) == (0, "")
    return out.splitlines()


@contextmanager
def subscribed(server: ServerProcess, queue: str, *, others: int = 0) -> Iterator[Consumer]:
    """Our consumer, once the server has registered it besides *others*."""
    with Consumer(port=server.port) as consumer:
        consumer.subscribe(queue)
        has_subscribers(server, others + 1)
        yield consumer


def has_subscribers(server: ServerProcess, count: int) -> None:
    """Wait until the server has *count* subscriptions."""
    server.comes_to(lambda stats: stats.subscriptions == count)


def line(queue: bytes, body: bytes) -> str:
    """The line that the C client prints for a message."""
    return f"{queue.hex()} {len(body)} {zlib.crc32(body):08x}"


def body_of(number: int, size: int) -> bytes:
    """The body that the C client sends."""
    return bytes((7 * number + k) % 251 for k in range(size))


def received(consumer: Consumer, count: int) -> list[str]:
    """The next messages, as the C client would print them."""
    found = []
    for _ in range(count):
        got = consumer.receive(timeout_s=_WITHIN_S)
        assert got is not None
        found.append(line(got.queue, got.body))
    return found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize(("count", "size"), [(300, 100), (50, 0), (3, 70_000)])
def test_our_consumer_receives_from_a_c_producer(
    server: ServerProcess, run: Run, rate: tuple[str, ...], count: int, size: int
) -> None:
    with subscribed(server, "from c") as consumer:
        sending = run(server, "produce", "from c", count, size, *rate)
        expected = [line(b"from c", body_of(number, size)) for number in range(count)]
        assert received(consumer, count) == expected
        assert lines_of(sending) == expected


@pytest.mark.parametrize("name", ["to c", ""])
@pytest.mark.parametrize("rate", RATES[:2])
def test_a_c_consumer_receives_from_our_producer(
    server: ServerProcess, run: Run, name: str, rate: tuple[str, ...]
) -> None:
    sent = [("to c", bytes([n % 256]) * (n * n)) for n in range(200)]
    reading = run(server, "consume", name, len(sent), *rate)
    has_subscribers(server, 1)
    with Producer(port=server.port) as producer:
        producer.send_many(sent)
    printed = lines_of(reading)
    assert printed == ["ready", *(line(queue.encode(), body) for queue, body in sent)]


def test_a_c_consumer_of_all_queues_sees_every_name(server: ServerProcess, run: Run) -> None:
    sent = [(b"", b"nameless"), (b"\xff\x00*", b"any bytes"), (b"q" * 65_536, b"a long name")]
    reading = run(server, "consume", "", len(sent))
    has_subscribers(server, 1)
    with Producer(port=server.port) as producer:
        producer.send_many(sent)
    assert lines_of(reading) == ["ready", *(line(*each) for each in sent)]


@pytest.mark.parametrize("rate", RATES)
def test_every_c_consumer_receives_from_a_c_producer(
    server: ServerProcess, run: Run, rate: tuple[str, ...]
) -> None:
    reading = [run(server, "consume", name, 200) for name in ("c to c", "c to c", "")]
    has_subscribers(server, 3)
    sent = lines_of(run(server, "produce", "c to c", 200, 500, *rate))
    assert len(sent) == 200
    for each in reading:
        assert lines_of(each) == ["ready", *sent]


@pytest.mark.parametrize("rate", RATES)
def test_clients_in_c_get_an_ok_for_each_frame_with_ok_replies(
    answering: ServerProcess, run: Run, rate: tuple[str, ...]
) -> None:
    reading = run(answering, "consume", "answered", 200, "--ok", *rate[:1])
    assert reading.stdout is not None
    # The OK for its subscription shows that it is registered.
    assert reading.stdout.readline() == "ready\n"
    with subscribed(answering, "answered", others=1) as consumer:
        sent = lines_of(run(answering, "produce", "answered", 200, 50, "--ok", *rate))
        assert lines_of(reading) == sent == received(consumer, 200)


def test_our_producer_and_a_c_consumer_work_with_ok_replies(
    answering: ServerProcess, run: Run
) -> None:
    reading = run(answering, "consume", "ours", 1000, "--ok")
    assert reading.stdout is not None
    assert reading.stdout.readline() == "ready\n"
    with Producer(port=answering.port) as producer:
        producer.send_many(("ours", b"%d" % number) for number in range(1000))
    assert lines_of(reading) == [line(b"ours", b"%d" % number) for number in range(1000)]


def test_a_c_client_with_an_unknown_role_is_disconnected(server: ServerProcess, run: Run) -> None:
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
    with Raw(server.port).send_bytes(b"healthz") as probe:
        assert probe.rest() == b"OK"
