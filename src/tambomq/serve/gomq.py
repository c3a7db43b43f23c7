"""GOMQ's door: its server, by the transport that the settings choose."""

from __future__ import annotations

from typing import Any, Final

from tambomq.journal.recording import Recording
from tambomq.serve.broker import BrokerDoor, Counted, Server
from tambomq.serve.listening import server_tls
from tambomq.serve.store import StoreDoor
from tambomq.settings import GomqSettings

NAME: Final = "gomq"
NO_JOURNAL: Final = Recording(NAME, ())
COUNTED: Final[Counted] = {
    "published": ("counter", "Messages taken."),
    "copies": ("counter", "Messages put into dedicated queues."),
    "observed": ("counter", "Messages handed out."),
    "watchers": ("gauge", "Calls to Watch under way."),
    "disconnected": ("counter", "Peers that were silent for too long."),
    "returned": ("counter", "Messages of such peers that went back to a main queue."),
}


def gomq_door(
    settings: GomqSettings, redis: StoreDoor, journal: Recording = NO_JOURNAL
) -> BrokerDoor:
    """Return GOMQ on the data of *redis*; keys that match *journal* have one.

    Raises `SettingsError` for useless certificates.
    """
    tls = server_tls(NAME, settings)

    def make() -> Server:
        from tambomq.gomq.model import Options  # noqa: PLC0415  (slow, for those who serve it)

        served: Server = _transport(settings.transport)(
            redis.url,
            host=settings.host,
            port=settings.port,
            options=Options(
                peer_timeout_s=settings.peer_timeout_s,
                max_message_bytes=settings.max_message_bytes,
                max_peers=settings.max_peers,
                max_keys=settings.max_keys,
                max_connection_peers=settings.max_connection_peers,
                journal=journal.patterns,
                journal_bounds=journal.bounds,
            ),
            tls=tls,
            token=settings.token,
        )
        return served

    return BrokerDoor(
        NAME,
        make,
        COUNTED,
        at=(settings.host, settings.port),
        about=f"GOMQ by {settings.transport}{' with TLS' if tls else ''}",
        try_it="tambo gomq publish --address {}" + (" --tls" if tls else "") + " greetings hello",
    )


def _transport(name: str) -> Any:
    """Return the class that speaks gRPC."""
    if name == "grpc":
        from tambomq.gomq.server import GomqServer  # noqa: PLC0415  (as above)

        return GomqServer
    from tambomq.gomq.envoy import EnvoyGomqServer  # noqa: PLC0415  (as above)

    return EnvoyGomqServer
