"""Runs the load generator against a broker: ``python -m benchmarks.players.kqueue_load nats``.

The generator is written in C; this program prepares its input and reads its results.
"""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.loadgen import program
from benchmarks.players.kqueue_brokers import BROKERS, Broker, Running
from benchmarks.players.kqueue_dialects import write
from benchmarks.players.talk import play

_TURN_WITHIN_S = 60.0
_SLOW_BYTES, _SLOW_EVERY_S = 1024, 1.0


class LoadGenerator:
    """The tasks, against one broker."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def about(self, _: Mapping[str, Any]) -> dict[str, str]:
        """Return the version of the broker."""
        program("loadgen")
        return {"version": self._broker.about()}

    def pump(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """Send messages as fast as they are delivered, each to all consumers."""
        with self._broker.run(order) as running:
            measured = self._generate(order, running)
        return {**measured, "counted": running.counted}

    def memory(self, order: Mapping[str, Any]) -> Mapping[str, Any]:
        """The same with a reader of 1 KB/s: measure the growth of the server's resident memory."""
        with self._broker.run(order) as running:
            before_mb = _resident_mb(running.pid, "VmRSS")
            with _slow_reader(order, running.port):
                measured = self._generate(order, running)
            peak_mb = _resident_mb(running.pid, "VmHWM")
        _was_slow(order["slow"], running.counted)
        growth = {"before": before_mb, "peak": peak_mb, "growth": peak_mb - before_mb}
        return {**measured, **growth, "counted": running.counted}

    def _generate(self, order: Mapping[str, Any], running: Running) -> Mapping[str, Any]:
        shape = {key: order[key] for key in ("size", "names", "producers")}
        with tempfile.TemporaryDirectory() as name:
            script = write(Path(name), self._broker.dialect, **shape)
            frame = script.frame_bytes if order["single"] else 0
            words = [running.port, order["producers"], order["consumers"], order["window"]]
            words += [frame, script.messages, order["warm_ms"], order["timed_ms"]]
            done = subprocess.run(
                [program("loadgen"), script.folder, *map(str, words)],
                capture_output=True,
                text=True,
                timeout=_TURN_WITHIN_S,
                check=False,
            )
        if done.returncode:
            raise RuntimeError(done.stderr.strip() or f"the generator ended with {done.returncode}")
        measured: Mapping[str, Any] = json.loads(done.stdout)
        return measured


@contextmanager
def _slow_reader(order: Mapping[str, Any], port: int) -> Iterator[None]:
    """A consumer of the first queue that reads 1 KB/s, and disconnects before the others do.

    If it stayed, a server that blocks producers for it could not deliver the rest.
    """
    dialect, leave = BROKERS["tambomq"].dialect, threading.Event()

    def read() -> None:
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", port))
            slow.sendall(dialect.hello_consume([b"bench.0000"]))
            stay_s = order["timed_ms"] / 1000 - 0.5
            for _ in range(int(stay_s / _SLOW_EVERY_S) + 1):
                if leave.wait(min(stay_s, _SLOW_EVERY_S)):
                    break
                try:
                    slow.recv(_SLOW_BYTES)
                except ConnectionError:
                    break  # the policy disconnects it

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        leave.set()
        thread.join()


def _was_slow(policy: str, counted: Mapping[str, Any]) -> None:
    """Check that the server applied its policy: otherwise the measurement is void."""
    lost = counted["disconnected"], counted["dropped"] > 0
    if lost != {"disconnect": (1, False), "drop": (0, True), "block": (0, False)}[policy]:
        raise RuntimeError(f"{policy} was not seen: {counted}")


def _resident_mb(pid: int, what: str) -> float:
    """Read a field of ``/proc/<pid>/status``; works on Linux alone."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(rf"{what}:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


if __name__ == "__main__":
    load = LoadGenerator(BROKERS[sys.argv[1]])
    play({"about": load.about, "pump": load.pump, "memory": load.memory})
