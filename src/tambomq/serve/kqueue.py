"""The KqueueMsgQ component: its server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from tambomq.access.directory import NO_ACCESS, AccessOptions
from tambomq.errors import ComponentFailed
from tambomq.journal.policy import JournalPolicy
from tambomq.kqueue.frames import Limits
from tambomq.kqueue.model import ConnectionInfo, QueueTraffic
from tambomq.kqueue.server import KqueueServer
from tambomq.serve.broker_component import BrokerComponent, Server, StatFields
from tambomq.serve.listeners import server_tls
from tambomq.serve.store import StoreComponent
from tambomq.settings.load import KqueueSettings

NAME: Final = "kqueue"
NO_JOURNAL: Final = JournalPolicy(NAME, ())
STAT_FIELDS: Final[StatFields] = {
    "connections": ("gauge", "Connected clients."),
    "producers": ("gauge", "Connected producers."),
    "consumers": ("gauge", "Connected consumers."),
    "subscriptions": ("gauge", "Subscriptions of all consumers."),
    "buffered_bytes": ("gauge", "Bytes that consumers have not read yet."),
    "accepted": ("counter", "Connections accepted."),
    "refused": ("counter", "Connections refused because there were too many."),
    "received": ("counter", "Messages from producers."),
    "received_bytes": ("counter", "Bytes of their frames."),
    "delivered": ("counter", "Messages delivered, counted once per consumer."),
    "delivered_bytes": ("counter", "Bytes of their frames."),
    "unrouted": ("counter", "Messages to queues without a subscriber."),
    "dropped": ("counter", "Messages dropped for slow consumers."),
    "disconnected": ("counter", "Consumers disconnected for being slow."),
    "protocol_errors": ("counter", "Connections closed for a protocol error."),
    "handshake_timeouts": ("counter", "Connections closed because no role was sent in time."),
    "frame_timeouts": ("counter", "Connections closed because a frame was not completed in time."),
    "over_budget": ("counter", "Connections closed to keep the memory limit of all clients."),
    "probes": ("counter", "Health probes answered."),
    "recorded": ("counter", "Messages recorded in a journal."),
    "unrecorded": ("counter", "Messages that should have been recorded in a journal and were not."),
}


class KqueueView:
    """What the console sees of the server of *component*; nothing while that is not started."""

    def __init__(self, component: BrokerComponent, max_buffer_bytes: int) -> None:
        self._component, self.max_buffer_bytes = component, max_buffer_bytes

    def list_queues(self) -> Sequence[QueueTraffic]:
        """Return the queues with messages or subscribers lately, by name."""
        server = self._server
        return server.list_queues() if server else ()

    def list_connections(self, limit: int) -> Sequence[ConnectionInfo]:
        """Return up to *limit* connections, those with the fullest buffers first."""
        server = self._server
        return server.list_connections(limit) if server else ()

    @property
    def _server(self) -> KqueueServer | None:
        with suppress(ComponentFailed):
            if isinstance(server := self._component.server, KqueueServer):
                return server
        return None


def kqueue_component(
    settings: KqueueSettings,
    redis: StoreComponent | None = None,
    journal: JournalPolicy = NO_JOURNAL,
    access: AccessOptions = NO_ACCESS,
) -> BrokerComponent:
    """Return KqueueMsgQ; the journals of queues that match *journal* are in *redis*.

    Raises `SettingsError` for certificates that cannot be used.
    """
    tls = server_tls(NAME, settings)

    def make() -> Server:
        return KqueueServer(
            settings.host,
            settings.port,
            limits=Limits(settings.max_name_bytes, settings.max_message_bytes),
            slow=settings.slow_consumer,
            max_buffer_bytes=settings.max_buffer_bytes,
            max_connections=settings.max_connections,
            handshake_s=settings.handshake_s,
            frame_s=settings.frame_s,
            max_memory_bytes=settings.max_memory_bytes,
            ok_replies=settings.ok_replies,
            tls=tls,
            journal=journal.patterns,
            journal_bounds=journal.bounds,
            journal_durable=settings.journal_durable,
            url=redis.url if redis else "",
            access=access,
        )

    return BrokerComponent(
        NAME,
        make,
        STAT_FIELDS,
        at=(settings.host, settings.port),
        about=f"KqueueMsgQ{' with TLS' if tls else ''}",
        try_it="tambo kqueue consume --address {}" + (" --tls" if tls else ""),
    )
