"""A worker in its own process, for tests that kill it. Run by ``python -m``, options in JSON.

Its handler records its calls in Redis: list ``begun`` and list ``ended``, of ``<pid> <body>``.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from tambomq.rsmq import Message, RsmqWorker

_KEEPS_THE_GIL = ctypes.PyDLL(None)


def main() -> None:
    options: dict[str, Any] = json.loads(sys.argv[1])
    db = redis.Redis.from_url(options["url"])
    hold_s = options.pop("hold_interpreter_s", 0)
    die, hang = options.pop("die", False), options.pop("hang", False)

    def handler(message: Message) -> None:
        db.rpush("begun", f"{os.getpid()} {message.text}")
        if die:
            os._exit(1)
        if hang:
            threading.Event().wait()
        # A function of a PyDLL does not release the GIL.
        _KEEPS_THE_GIL.sleep(hold_s)
        db.rpush("ended", f"{os.getpid()} {message.text}")

    RsmqWorker("q", handler, **options).run_forever()


@contextmanager
def worker_process(url: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a worker process; it is killed at the end of the block."""
    argument = json.dumps({"url": url, **options})
    process = subprocess.Popen([sys.executable, "-m", __name__, argument])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    main()
