"""`ClientHeartbeat`: sends a client's heartbeats from a thread, on a connection of its own.

So a batch stays with a client whose event loop is blocked, or whose own connection has gone silent.
Thread and connection exist only while a batch is handled.
"""

from __future__ import annotations

import time
import weakref
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, Final

import grpc

from tambomq.gomq import requests
from tambomq.gomq.batch_heartbeats import BatchHeartbeats
from tambomq.gomq.client_config import OPTIONS, ClientConfig
from tambomq.gomq.replies import ObservedBatch
from tambomq.gomq.requests import Request

_MAX_PAUSE_S: Final = 0.25


class ClientHeartbeat:
    """Sends the heartbeats of *client*, until it is garbage-collected."""

    def __init__(
        self, client: object, config: ClientConfig, credentials: grpc.ChannelCredentials | None
    ) -> None:
        """Keep a weak reference to *client*; nothing is started."""
        self._client, self._config, self._credentials = weakref.ref(client), config, credentials
        self._schedule = BatchHeartbeats()
        self._lock = Lock()
        self._thread: Thread | None = None

    def observed(self, consumer: str, batch: ObservedBatch) -> None:
        """Note the reply to an Observe; from now on there are heartbeats if it has a batch."""
        if not self._schedule.observed(consumer, batch.name, batch.timeout_s, time.monotonic()):
            return
        with self._lock:
            # After a fork the thread is in the parent only.
            if self._thread is None or not self._thread.is_alive():
                self._thread = Thread(target=self._run, name="gomq-heartbeat", daemon=True)
                self._thread.start()

    def drop(self, consumer: str) -> None:
        """Send none for *consumer* any more: its batch is not being handled."""
        self._schedule.drop(consumer)

    def clear(self) -> None:
        """Send none at all any more."""
        self._schedule.clear()

    def _run(self) -> None:
        channel: grpc.Channel | None = None
        try:
            while self._client() is not None:
                with self._lock:
                    pause_s = self._schedule.next_in_s(time.monotonic())
                    if pause_s is None:
                        self._thread = None
                        return
                for consumer in self._schedule.due(time.monotonic()):
                    channel = self._send(channel, consumer)
                time.sleep(min(pause_s, _MAX_PAUSE_S))
        finally:
            if channel is not None:
                channel.close()

    def _send(self, channel: grpc.Channel | None, consumer: str) -> grpc.Channel | None:
        """Send a heartbeat; return the channel on which it was answered, if it was."""
        request = requests.heartbeat(consumer, self._schedule.reply_timeout_s(consumer))
        # A connection may be dead (a NAT dropped it), which gRPC notices too late.
        for opened in (channel, None):
            current = opened or self._open()
            if self._is_answered(current, request):
                return current
            current.close()
        return None

    def _open(self) -> grpc.Channel:
        if self._credentials is None:
            return grpc.insecure_channel(self._config.address, OPTIONS)
        return grpc.secure_channel(self._config.address, self._credentials, OPTIONS)

    def _is_answered(self, channel: grpc.Channel, request: Request[Any]) -> bool:
        metadata = (*self._config.metadata, *request.metadata)
        with suppress(grpc.RpcError):
            stub = channel.unary_unary(request.path, *request.codecs)
            stub(request.message, metadata=metadata, **self._config.limits(request))
            return True
        return False
