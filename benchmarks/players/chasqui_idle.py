"""The cost of many idle queues for `tambo serve`, and the delay of a due job in one of them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from benchmarks.players.talk import play
from tambomq.chasqui import BlockingQueue
from tambomq.chasqui.keys import Keys
from tambomq.store.call import Call
from tambomq.store.sync import Store

SERVE: Final = "import sys; from tambomq.cli.main import main; main()"
LED_WITHIN_S: Final = 120
SETTLE_S: Final = 3.0


def about(_: Mapping[str, Any]) -> dict[str, str]:
    """Return the version that is measured."""
    return {"version": f"TamboMQ {version('tambomq')}"}


def idle(order: Mapping[str, Any]) -> dict[str, float]:
    """Return the CPU load, in percent, of the process that leads all these queues."""
    names = [f"{order['queue']}-{n}" for n in range(order["queues"])]
    store = Store(order["url"])
    for name in names:
        with BlockingQueue(name, redis_url=order["url"]) as queue:
            queue.add("first", 1)
    with served(order["url"]) as pid:
        _wait_until_led(store, names)
        time.sleep(SETTLE_S)
        before, began = _cpu_s(pid), time.perf_counter()
        time.sleep(order["seconds"])
        busy = (_cpu_s(pid) - before) / (time.perf_counter() - began)
        late = [_late_ms(store, order["url"], name) for name in names[:: order["step"]]]
    store.close()
    return {"cpu": busy * 100, "late": statistics.median(late)}


@contextmanager
def served(url: str) -> Iterator[int]:
    """`tambo serve` that leads all queues of *url* and does nothing else; its process id."""
    words = ("serve", "--redis-url", url, "--no-rsmq", "--no-gomq", "--no-kqueue")
    command = [sys.executable, "-c", SERVE, *words, "--http-port", "0"]
    discard = subprocess.DEVNULL
    with subprocess.Popen(command, stdout=discard, stderr=discard) as process:
        try:
            yield process.pid
        finally:
            process.terminate()


def _wait_until_led(store: Store, names: list[str]) -> None:
    locks = tuple(Keys(name).scheduler_lock for name in names)
    until = time.monotonic() + LED_WITHIN_S
    while store.run(Call("EXISTS", locks, (), int)) < len(locks):
        if time.monotonic() > until:
            raise RuntimeError(f"not all queues are led after {LED_WITHIN_S} s")
        time.sleep(0.1)


def _late_ms(store: Store, url: str, name: str) -> float:
    """By how much a job that is added with a short delay waits for a worker too late."""
    length = Call("XLEN", (Keys(name).stream,), (), int)
    before, delay_ms = store.run(length), 10
    with BlockingQueue(name, redis_url=url) as queue:
        began = time.perf_counter()
        queue.add("delayed", 1, delay_ms=delay_ms)
    while store.run(length) == before:
        pass
    return (time.perf_counter() - began) * 1000 - delay_ms


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    play({"about": about, "idle": idle})
