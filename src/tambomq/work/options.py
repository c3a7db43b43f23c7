"""The options of ``tambo work``, and what each process gets at its start."""

from __future__ import annotations

from typing import Final

import msgspec

DRAIN_S: Final = 30.0
SETTLE_S: Final = 5.0
"""After its drain a worker settles its last jobs: this comes on top of `WorkOptions.drain_s`."""


class WorkOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run, in how many processes, and when to replace one."""

    targets: tuple[str, ...]
    """Modules, or ``module:object``."""
    processes: int = 1
    concurrency: int | None = None
    """Jobs at a time, for each target of a process; `None` keeps what the target says."""
    queues: tuple[str, ...] = ()
    """Work on these alone; on all if empty."""
    drain_s: float = DRAIN_S
    max_jobs: int | None = None
    """A process is replaced after so many runs."""
    max_rss_bytes: int | None = None
    """A process is replaced when its resident memory is larger."""
    reload: bool = False
    http_host: str = "127.0.0.1"
    http_port: int = 0
    """0 serves nothing."""
    quiet: bool = False
    """Print no line for each run."""
    as_json: bool = False
    log_level: str = "info"


class WorkerProcessConfig(msgspec.Struct, frozen=True):
    """The argument of a worker process, as JSON."""

    number: int
    """Its place, from 1; its successor has the same."""
    supervisor: int
    """The supervisor's process id."""
    link_fd: int
    """The socket to the supervisor."""
    options: WorkOptions
