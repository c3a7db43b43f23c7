"""`EnvoyGomqServer`: the fast transport of GOMQ. Envoy runs the service in a child process."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from tambomq.access.denials import Denial
from tambomq.access.directory import NO_ACCESS, AccessOptions
from tambomq.embedded import ports
from tambomq.errors import BrokerUnavailable, ComponentFailed, EmbeddedError, SettingsError
from tambomq.gomq.envoy import config as envoy_config
from tambomq.gomq.envoy.child import ChildConfig
from tambomq.gomq.envoy.control import NO_STATS
from tambomq.gomq.envoy.process import EnvoyProcess
from tambomq.gomq.model import GomqStats, Options
from tambomq.gomq.server.auth import Authenticator
from tambomq.gomq.server.grpc_server import HOST, PORT
from tambomq.gomq.server.probe import probe
from tambomq.store.endpoint import URL, endpoint
from tambomq.text import format_address
from tambomq.tls import ServerTls

COMPONENT: Final = "gomq"
# A child that has not reported its start by then has failed.
_START_TIMEOUT_S: Final = 60.0
_POLL_EVERY_S: Final = 0.01
_REPLY_TIMEOUT_S: Final = 5.0
# Attempts with port 0: another program may take the free port that we found.
_TRIES: Final = 5

_log: Final = logging.getLogger(__name__)


class EnvoyGomqServer:
    """A GOMQ server on *host* and *port*, in Envoy; port 0 is any that is free.

    Like `GomqServer`, but *url* is always a URL, and `stats` may be a second old. Needs the extra
    ``tambomq[envoy]``.
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
        access: AccessOptions = NO_ACCESS,
    ) -> None:
        if not isinstance(url, str):
            raise SettingsError(
                "Envoy runs in its own process: give it a Redis URL instead of a store"
            )
        endpoint(url)
        # Checked here: the child would only fail to start.
        Authenticator(token)
        self._url, self._options, self._token = url, options or Options(), token
        self._host, self._port, self._tls, self._access = host, port, tls, access
        self._envoy: EnvoyProcess | None = None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; once it is started, the real port instead of 0."""
        return self._host, self._port

    @property
    def stats(self) -> GomqStats:
        """Counters since the start, at most a second old, or as of the last `check`."""
        return self._envoy.control.stats if self._envoy else NO_STATS

    @property
    def denials(self) -> Sequence[Denial]:
        """The calls that were denied since the start, by user and right."""
        return self._envoy.control.denials if self._envoy else ()

    @property
    def pid(self) -> int:
        """The process id of Envoy; 0 if it is not running."""
        return self._envoy.pid if self._envoy else 0

    async def start(self) -> None:
        """Start Envoy and wait until it serves.

        Raises `BrokerUnavailable` if the port is taken, `ComponentFailed` and `SettingsError`.
        """
        if self._tls:
            self._tls.pems()
        port = self._port
        try:
            await self._start_on(port)
        except BaseException:
            await self.stop(0)
            self._port = port
            raise

    async def watch(self) -> None:
        """Wait until Envoy ends; raises `ComponentFailed` then."""
        if self._envoy is None:
            raise ComponentFailed(COMPONENT, "it is not started")
        raise _failed(self._envoy, await self._envoy.wait())

    async def stop(self, grace_s: float = 5.0) -> None:
        """Let calls finish for *grace_s* seconds, and end the others with UNAVAILABLE.

        Calls to Watch are ended at once; their messages stay queued. An Envoy that does not end in
        time is killed.
        """
        envoy, self._envoy = self._envoy, None
        if envoy is None:
            return
        try:
            timeout_s = grace_s + _REPLY_TIMEOUT_S
            with suppress(OSError):
                await envoy.control.request("close", timeout_s=timeout_s, grace_s=grace_s)
        finally:
            await envoy.end()

    async def check(self) -> None:
        """Check that Envoy, Redis and the port answer. Raises `BrokerUnavailable`."""
        if self._envoy is None:
            raise BrokerUnavailable(self._address_text, "it is not started")
        try:
            reply = await self._envoy.control.request("ping", timeout_s=_REPLY_TIMEOUT_S)
        except OSError as error:
            raise BrokerUnavailable(self._address_text, "Envoy does not answer") from error
        if reply.failed:
            raise BrokerUnavailable(self._address_text, reply.failed)
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
    def _address_text(self) -> str:
        return format_address(self._host, self._port)

    async def _resolved(self) -> str:
        """Return the IP address of the host: Envoy resolves no names."""
        try:
            loop = asyncio.get_running_loop()
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BrokerUnavailable(self._address_text, f"cannot listen: {error}") from error
        return str(found[0][4][0])

    async def _free_port(self, port: int) -> tuple[str, int]:
        host = await self._resolved()
        try:
            return host, await asyncio.to_thread(ports.choose, host, port)
        except EmbeddedError as error:
            raise BrokerUnavailable(self._address_text, f"cannot listen: {error}") from error

    async def _start_on(self, port: int) -> None:
        for _ in range(1 if port else _TRIES):
            host, self._port = await self._free_port(port)
            if await self._starts(host):
                return
        raise BrokerUnavailable(self._address_text, "cannot listen: the port is taken")

    async def _starts(self, host: str) -> bool:
        """Start Envoy; false if another program has taken the port meanwhile."""
        config = ChildConfig(self._url, self._options, self._token, -1, _level(), self._access)
        command = envoy_config.command(host, self._port, self._tls)
        self._envoy = envoy = await EnvoyProcess.start(command, config)
        try:
            async with asyncio.timeout(_START_TIMEOUT_S):
                while envoy.is_running:
                    if envoy.control.is_up.is_set() and await self._listens(host):
                        return True
                    await asyncio.sleep(_POLL_EVERY_S)
        except TimeoutError:
            raise ComponentFailed(
                COMPONENT, f"Envoy is not up after {_START_TIMEOUT_S:.0f} s"
            ) from None
        code = await envoy.wait()
        if "Address already in use" not in envoy.last_error:
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
    """Return the level of our log, by a name that every log knows."""
    name = logging.getLevelName(_log.getEffectiveLevel())
    return name if name in logging.getLevelNamesMapping() else "DEBUG"


def _failed(envoy: EnvoyProcess, code: int) -> ComponentFailed:
    why = (
        envoy.control.failed
        or f"Envoy ended with code {code}: {envoy.last_error or 'it gave no reason'}"
    )
    return ComponentFailed(COMPONENT, why)
