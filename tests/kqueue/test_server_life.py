"""TLS of a server, and its start and stop."""

from __future__ import annotations

import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tambomq.errors import BrokerUnavailable, SettingsError
from tambomq.kqueue import KqueueServer
from tambomq.runtime import tls_server
from tambomq.runtime.tls_server import TlsServer
from tambomq.tls import ServerTls
from tests.kqueue.conftest import Serve
from tests.kqueue.naive import message, subscribe
from tests.kqueue.serving import Served
from tests.servers import eventually
from tests.servers.tls import Certificate, certificate


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    return certificate(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    """Another, self-signed certificate."""
    return certificate(tmp_path_factory.mktemp("theirs"))


def trusting(server: Certificate, own: Certificate | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(server.cert))
    if own:
        context.load_cert_chain(own.cert, own.key)
    return context


# ── TLS ──────────────────────────────────────────────────────────────────────


def test_messages_pass_through_tls(serve: Serve, ours: Certificate) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key), slow="block")
    context = trusting(ours)
    body = b"x" * 3_000_000
    with (
        served.connect(b"consume", subscribe(b"a"), tls=context) as consumer,
        served.connect(b"produce", tls=context) as producer,
    ):
        served.comes_to(lambda stats: stats.subscriptions == 1)
        sending = threading.Thread(target=producer.send, args=((b"a", b"1"), (b"a", body)))
        sending.start()
        assert consumer.messages(2) == [(b"a", b"1"), (b"a", body)]
        sending.join()
        served.run(served.server.check())


def test_a_client_without_tls_is_refused(serve: Serve, ours: Certificate) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key))
    with served.connect(b"produce", message(b"a", b"1")) as plain:
        # Only a TLS alert may arrive.
        assert b"*" not in plain.rest()
    assert served.stats.accepted == 0


def test_only_clients_with_a_certificate_are_accepted(
    serve: Serve, ours: Certificate, theirs: Certificate
) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key, client_ca=theirs.cert))
    with served.connect(b"healthz", tls=trusting(ours, theirs)) as known:
        assert known.read(2) == b"OK"
    for own in (None, ours):
        assert _answer(served, trusting(ours, own)) == b""
    # The server probes itself without a certificate: a refusal shows that it is alive.
    served.run(served.server.check())
    assert served.stats.probes == 1


def _answer(served: Served, context: ssl.SSLContext) -> bytes:
    """The reply to a probe; empty if the connection is refused."""
    try:
        with served.connect(b"healthz", tls=context) as client:
            return client.read(2)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_client_that_stops_in_the_middle_of_the_tls_handshake_has_limited_time(
    serve: Serve, ours: Certificate
) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key), handshake_s=0.2)
    with served.connect(b"\x16\x03\x01") as silent:
        assert silent.is_closed()


def test_unfinished_handshakes_count_as_connections(serve: Serve, ours: Certificate) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key), max_connections=3, handshake_s=60)
    with ExitStack() as held:
        silent = [held.enter_context(served.connect(b"\x16\x03\x01")) for _ in range(3)]
        with served.connect(b"") as refused:
            assert refused.is_closed()
        assert served.stats.refused == 1
        silent[0].socket.close()
        eventually(lambda: _answer(served, trusting(ours)) == b"OK")


def test_clients_wait_for_their_turn_to_shake_hands(
    serve: Serve, ours: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_server, "MAX_HANDSHAKES", 1)
    served = serve(tls=ServerTls(ours.cert, ours.key), handshake_s=60)
    with served.connect(b"\x16\x03\x01") as silent, ThreadPoolExecutor(1) as thread:
        answer = thread.submit(_answer, served, trusting(ours))
        server = served.server._server
        assert isinstance(server, TlsServer)
        eventually(lambda: len(server._handshakes) == 2)
        assert not answer.done()
        silent.socket.close()
        assert answer.result(60) == b"OK"


def test_stopping_ends_handshakes(serve: Serve, ours: Certificate) -> None:
    served = serve(tls=ServerTls(ours.cert, ours.key), handshake_s=60)
    with served.connect(b"\x16\x03\x01") as silent:
        server = served.server._server
        assert isinstance(server, TlsServer)
        eventually(lambda: len(server._handshakes) == 1)
        served.run(served.server.stop(0))
        assert silent.is_closed()


def test_unusable_tls_files_are_an_error(serve: Serve, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="TLS files"):
        serve(tls=ServerTls(tmp_path / "missing.pem", tmp_path / "missing.key"))


# ── start and stop ───────────────────────────────────────────────────────────


def test_stopping_flushes_write_buffers(serve: Serve) -> None:
    served = serve(max_buffer_bytes=64 << 20)
    body = b"x" * 15_000_000
    with served.consumer(b"a") as consumer, served.producer() as producer:
        producer.send((b"a", body), (b"a", b"end"))
        served.comes_to(lambda stats: stats.delivered == 2)
        stopping = threading.Thread(target=served.run, args=(served.server.stop(20),))
        stopping.start()
        assert consumer.rest() == message(b"a", body) + message(b"a", b"end")
        assert producer.is_closed()
        stopping.join()
    assert served.stats.connections == 0


def test_stopping_does_not_wait_for_consumers_that_do_not_read(serve: Serve) -> None:
    served = serve(max_buffer_bytes=64 << 20)
    with served.consumer(b"a"), served.producer() as producer:
        producer.send((b"a", b"x" * 15_000_000))
        served.comes_to(lambda stats: stats.delivered == 1)
        served.run(served.server.stop(0.05))
        assert served.stats.connections == 0


def test_a_stopped_server_refuses_connections_and_may_start_again(serve: Serve) -> None:
    served = serve()
    port = served.port
    served.run(served.server.stop())
    with pytest.raises(ConnectionRefusedError):
        served.connect()
    served.run(served.server.stop())
    served.run(served.server.start())
    served.run(served.server.start())
    with served.consumer(b"a") as consumer, served.producer() as producer:
        producer.send((b"a", b"1"))
        assert consumer.message() == (b"a", b"1")
    assert port


def test_stopping_closes_clients_without_a_role(served: Served) -> None:
    with served.connect(b"prod") as silent:
        served.comes_to(lambda stats: stats.connections == 1)
        served.run(served.server.stop(5))
        assert silent.is_closed()


async def test_a_server_runs_within_async_with() -> None:
    async with KqueueServer(port=0) as server:
        await server.check()
        assert server.address[0] == "127.0.0.1"
        assert server.stats.probes == 1
    with pytest.raises(BrokerUnavailable):
        await server.check()
