from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tambomq.runtime.systemd import READY, SystemdNotifier


def test_systemd_gets_a_datagram(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "s"))
        environ = {"NOTIFY_SOCKET": str(tmp_path / "s"), "WATCHDOG_USEC": "3000000"}
        notifier = SystemdNotifier(environ)
        notifier.notify(READY, "STATUS=fine")
        assert systemd.recv(100) == b"READY=1\nSTATUS=fine"
    assert notifier.watchdog_s == 3.0
    assert environ == {}  # not for our processes
    notifier.notify(READY)  # gone, and no reason to fail


@pytest.mark.skipif(sys.platform != "linux", reason="abstract sockets exist on Linux alone")
def test_its_socket_may_have_an_abstract_name() -> None:
    name = f"tambo-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(f"\0{name}")
        SystemdNotifier({"NOTIFY_SOCKET": f"@{name}"}).notify(READY)
        assert systemd.recv(100) == b"READY=1"


def test_without_systemd_nothing_happens() -> None:
    notifier = SystemdNotifier({"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"})
    notifier.notify(READY)
    assert notifier.watchdog_s == (0.001 if os.getpid() == 1 else 0.0)
