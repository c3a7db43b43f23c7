"""The GOMQ component: its server, with the transport that the settings choose."""

from __future__ import annotations

import logging
from typing import Any, Final

from tambomq.access.directory import NO_ACCESS, AccessOptions
from tambomq.errors import ComponentFailed
from tambomq.extras import how_to_install, is_installed
from tambomq.journal.policy import JournalPolicy
from tambomq.serve.broker_component import BrokerComponent, Server, StatFields
from tambomq.serve.listeners import server_tls
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import GomqSettings

NAME: Final = "gomq"
NO_JOURNAL: Final = JournalPolicy(NAME, ())
_SPELLED: Final = {"grpc": "grpc.aio", "envoy": "Envoy"}
STAT_FIELDS: Final[StatFields] = {
    "published": ("counter", "Messages published."),
    "copies": ("counter", "Messages copied to dedicated queues."),
    "observed": ("counter", "Messages delivered."),
    "watchers": ("gauge", "Watch calls in progress."),
    "disconnected": ("counter", "Peers disconnected because they were silent for too long."),
    "returned": ("counter", "Messages of such peers that were requeued."),
    "refused": ("counter", "Messages refused because of an alarm."),
    "overflowed": ("counter", "Messages dead-lettered because their key was full."),
    "expired": ("counter", "Messages dead-lettered because they had expired."),
}

_log: Final = logging.getLogger(__name__)


class GomqComponent(BrokerComponent):
    """GOMQ, by Envoy or grpc.aio."""

    def __init__(
        self,
        settings: GomqSettings,
        redis: StoreComponent,
        journal: JournalPolicy,
        access: AccessOptions,
    ) -> None:
        self._settings, self._redis, self._journal = settings, redis, journal
        self._access = access
        self._tls = tls = server_tls(NAME, settings)
        self._transport: str = settings.transport
        if self._transport == "auto":
            self._transport = "envoy" if is_installed("envoy") else "grpc"
        super().__init__(
            NAME,
            self._serve,
            STAT_FIELDS,
            at=(settings.host, settings.port),
            about="",
            try_it=f"tambo gomq publish --address {{}}{' --tls' if tls else ''} greetings hello",
        )
        self._describe()

    async def _open(self) -> None:
        """Start the server; with transport ``auto``, fall back to grpc.aio if Envoy fails."""
        try:
            await super()._open()
        except ComponentFailed as failure:
            if self._settings.transport != "auto" or self._transport == "grpc":
                raise
            self._transport = "grpc"
            self._describe()
            await super()._open()
            _log.warning("GOMQ is served by grpc.aio, because Envoy did not start: %s", failure)

    def _describe(self) -> None:
        """Describe the transport, and how to choose the other."""
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
                max_backlog_bytes=settings.max_backlog_bytes,
                message_ttl_s=settings.message_ttl_s,
                overflow=settings.overflow,
                durable=settings.durable,
                durable_timeout_s=settings.durable_timeout_s,
                journal=self._journal.patterns,
                journal_bounds=self._journal.bounds,
            ),
            tls=self._tls,
            token=settings.token,
            access=self._access,
        )
        return served


def gomq_component(
    settings: GomqSettings,
    redis: StoreComponent,
    journal: JournalPolicy = NO_JOURNAL,
    access: AccessOptions = NO_ACCESS,
) -> GomqComponent:
    """Return GOMQ on the server of *redis*; keys that match *journal* are journalled.

    Raises `SettingsError` for unusable certificates.
    """
    return GomqComponent(settings, redis, journal, access)


def _server_class(transport: str) -> Any:
    """Return the server class of *transport*."""
    if transport == "grpc":
        from tambomq.gomq.server.grpc_server import GomqServer  # noqa: PLC0415  (as above)

        return GomqServer
    from tambomq.gomq.envoy.server import EnvoyGomqServer  # noqa: PLC0415  (as above)

    return EnvoyGomqServer
