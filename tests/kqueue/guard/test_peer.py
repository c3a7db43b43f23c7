"""KqueueMsgQ for users: the client certificate decides, and a frame without the right closes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import pytest

from tambomq.access.denials import Denial
from tambomq.access.directory import AccessOptions
from tambomq.errors import SettingsError
from tambomq.kqueue.frames import encode_message, encode_subscribe
from tambomq.kqueue.guard.peer import GuardedConnection
from tambomq.kqueue.server import KqueueServer
from tambomq.tls import ServerTls
from tests.access.users import Users
from tests.servers import eventually_async
from tests.servers.tls import Certificate, certificate

WITHIN_S = 60.0
NAMES = ("server", "sender", "receiver", "stranger")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Certificate]:
    made = {}
    for name in NAMES:
        alternative = {"names": "DNS:x"} if name != "server" else {}
        made[name] = certificate(tmp_path_factory.mktemp(name), name, **alternative)
    return made


@pytest.fixture
def users(tmp_path: Path) -> Users:
    found = Users(tmp_path / "users.toml")
    found.add("sender", ["send"], ["kqueue:a*"], tls=["CN:sender"])
    found.add("receiver", ["receive"], ["kqueue:a*"], tls=["CN:receiver"])
    return found


class Guarded:
    """A server with users, and connections to it."""

    def __init__(
        self, server: KqueueServer, certificates: dict[str, Certificate], stack: AsyncExitStack
    ) -> None:
        self.server, self._certificates, self._stack = server, certificates, stack

    async def connect(
        self, name: str, role: bytes
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        own = self._certificates[name]
        context = ssl.create_default_context(cafile=self._certificates["server"].cert)
        context.load_cert_chain(own.cert, own.key)
        host, port = self.server.address
        reader, writer = await asyncio.open_connection(host, port, ssl=context)
        self._stack.push_async_callback(closed, writer)
        writer.write(role)
        return reader, writer

    async def subscribed(self, *names: str) -> asyncio.StreamReader:
        reader, writer = await self.connect("receiver", b"consume")
        for name in names:
            writer.write(encode_subscribe(name))
        count = len(names)
        await eventually_async(lambda: self.server.stats.subscriptions == count, within_s=WITHIN_S)
        return reader


@pytest.fixture
async def guarded(
    users: Users, certificates: dict[str, Certificate], tmp_path: Path
) -> AsyncIterator[Guarded]:
    ca = tmp_path / "clients.pem"
    ca.write_text("".join(certificates[name].cert.read_text() for name in NAMES))
    tls = ServerTls(certificates["server"].cert, certificates["server"].key, ca)
    options = AccessOptions(str(users.path))
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(KqueueServer(port=0, tls=tls, access=options))
        yield Guarded(server, certificates, stack)


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with suppress(OSError):
        await writer.wait_closed()


async def is_closed(reader: asyncio.StreamReader) -> bool:
    try:
        async with asyncio.timeout(WITHIN_S):
            return await reader.read() == b""
    except ConnectionError:
        return True


async def test_users_send_and_receive_what_they_have_the_right_to(guarded: Guarded) -> None:
    reader = await guarded.subscribed("a", "ab")
    _, writer = await guarded.connect("sender", b"produce")
    frames = encode_message("a", "one") + encode_message("ab", "two")
    writer.write(frames)
    async with asyncio.timeout(WITHIN_S):
        assert await reader.readexactly(len(frames)) == frames
    assert list(guarded.server.denials) == []


@pytest.mark.parametrize(
    ("name", "role", "frame", "right"),
    [
        ("sender", b"produce", encode_message("b", "x"), "send"),
        ("sender", b"produce", encode_message("a", "x") + encode_message("b", "x"), "send"),
        ("sender", b"consume", encode_subscribe("a"), "receive"),
        ("receiver", b"produce", encode_message("a", "x"), "send"),
        ("receiver", b"consume", encode_subscribe("b"), "receive"),
        ("receiver", b"consume", encode_subscribe("a") + encode_subscribe(""), "receive"),
    ],
)
async def test_a_frame_without_the_right_closes_the_connection(
    guarded: Guarded, name: str, role: bytes, frame: bytes, right: str
) -> None:
    reader, writer = await guarded.connect(name, role)
    writer.write(frame)
    assert await is_closed(reader)
    stats = guarded.server.stats
    assert (stats.received, stats.subscriptions, stats.protocol_errors) == (0, 0, 0)
    assert list(guarded.server.denials) == [Denial(name, right, 1)]


@pytest.mark.parametrize(
    ("role", "frame"),
    [(b"produce", encode_message("b", "x")), (b"consume", encode_subscribe("b"))],
)
async def test_a_client_that_is_denied_at_once_is_counted_no_more(
    guarded: Guarded, role: bytes, frame: bytes
) -> None:
    # One read has both.
    reader, _ = await guarded.connect("sender", role + frame)
    assert await is_closed(reader)
    await eventually_async(lambda: guarded.server.stats.connections == 0, within_s=WITHIN_S)
    assert (guarded.server.stats.producers, guarded.server.stats.consumers) == (0, 0)


async def test_a_server_that_could_not_start_reads_no_users(users: Users, tmp_path: Path) -> None:
    before = asyncio.all_tasks()
    missing = tmp_path / "missing.pem"
    tls, options = ServerTls(missing, missing, missing), AccessOptions(str(users.path))
    with pytest.raises(SettingsError, match="TLS files"):
        await KqueueServer(port=0, tls=tls, access=options).start()
    assert asyncio.all_tasks() == before


async def test_a_certificate_without_a_user_is_disconnected(guarded: Guarded) -> None:
    reader, _ = await guarded.connect("stranger", b"produce")
    assert await is_closed(reader)
    assert list(guarded.server.denials) == [Denial("_unknown", "login", 1)]


async def test_a_consumer_whose_user_loses_the_right_is_disconnected(
    guarded: Guarded, users: Users
) -> None:
    reader = await guarded.subscribed("a")
    users.add("receiver", ["receive"], ["kqueue:b"], tls=["CN:receiver"])
    assert await is_closed(reader)


async def test_a_change_of_another_user_costs_no_check_of_subscriptions(
    guarded: Guarded, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[list[bytes]] = []
    rechecks: list[bool] = []
    require_all, recheck = GuardedConnection.require_all, GuardedConnection.recheck

    def counted(connection: GuardedConnection, names: list[bytes]) -> None:
        checked.append(names)
        require_all(connection, names)

    def noted(connection: GuardedConnection) -> bool:
        rechecks.append(recheck(connection))
        return rechecks[-1]

    await guarded.subscribed("a")
    monkeypatch.setattr(GuardedConnection, "require_all", counted)
    monkeypatch.setattr(GuardedConnection, "recheck", noted)
    users.remove("sender")
    await eventually_async(lambda: rechecks == [False], within_s=WITHIN_S)
    assert not checked
    users.add("receiver", ["receive"], ["kqueue:a"], tls=["CN:receiver"])
    await eventually_async(lambda: rechecks == [False, True], within_s=WITHIN_S)
    assert checked == [[b"a"]]


async def test_a_producer_whose_user_is_removed_sends_nothing_more(
    guarded: Guarded, users: Users
) -> None:
    reader, writer = await guarded.connect("sender", b"produce")
    writer.write(encode_message("a", "x"))
    await eventually_async(lambda: guarded.server.stats.received == 1, within_s=WITHIN_S)
    users.remove("sender")
    assert await is_closed(reader)


async def test_a_wildcard_needs_the_right_to_all_queues(guarded: Guarded, users: Users) -> None:
    users.add("receiver", ["receive"], ["kqueue:*"], tls=["CN:receiver"])

    async def is_subscribed() -> bool:
        reader, writer = await guarded.connect("receiver", b"consume")
        writer.write(encode_subscribe("") + encode_subscribe("a"))
        # Either it is subscribed, or it is disconnected.
        ended = asyncio.ensure_future(reader.read())
        try:
            await eventually_async(
                lambda: ended.done() or guarded.server.stats.subscriptions, within_s=WITHIN_S
            )
        finally:
            ended.cancel()
            await asyncio.gather(ended, return_exceptions=True)
        return guarded.server.stats.subscriptions > 0

    await eventually_async(is_subscribed, within_s=WITHIN_S)


def test_without_client_certificates_there_are_no_users(
    users: Users, certificates: dict[str, Certificate]
) -> None:
    server = certificates["server"]
    for tls in (None, ServerTls(server.cert, server.key)):
        with pytest.raises(SettingsError, match="has no tokens"):
            KqueueServer(tls=tls, access=AccessOptions(str(users.path)))
