"""Tells systemd how the service is: a datagram to the socket that ``NOTIFY_SOCKET`` names.

Without the variable nothing is sent. What the words mean: sd_notify(3), ``Type=notify``.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
WATCHDOG: Final = "WATCHDOG=1"

_SOCKET: Final = "NOTIFY_SOCKET"
_USEC: Final = "WATCHDOG_USEC"
_PID: Final = "WATCHDOG_PID"
_LONG_S: Final = 3600.0


class SystemdNotifier:
    """The service manager that started this process, if there is one."""

    def __init__(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Take the variables out of *environ*: they are not meant for our processes."""
        self._address = environ.pop(_SOCKET, "")
        usec, pid = environ.pop(_USEC, ""), environ.pop(_PID, "")
        is_ours = not pid or pid == str(os.getpid())
        self.watchdog_s = int(usec) / 1e6 if usec.isdigit() and is_ours else 0.0
        """systemd restarts the service if it hears no `WATCHDOG` for so long; 0: it does not."""

    def notify(self, *lines: str) -> None:
        """Send *lines*, such as `READY` or ``STATUS=…``. Never fails: it is only news."""
        # A path, or a name in Linux's abstract namespace.
        address = self._address
        if not address.startswith(("/", "@")):
            return
        if address.startswith("@"):
            address = "\0" + address[1:]
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.settimeout(0)
            sender.sendto("\n".join(lines).encode(), address)

    async def feed_watchdog(self) -> None:
        """Say three times in its time that this event loop runs; for ever, also without one."""
        while True:
            if self.watchdog_s:
                self.notify(WATCHDOG)
            await asyncio.sleep(self.watchdog_s / 3 or _LONG_S)
