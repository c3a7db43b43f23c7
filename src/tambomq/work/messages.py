"""Messages from a worker process to its supervisor: lines of JSON on a socket.

Nothing is sent the other way but `GO`: the supervisor commands by signals, which also work by hand.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

GO: Final = b"g"
"""The banner is printed: lines of runs may follow."""

BUCKETS_S: Final = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0),
)
"""Upper bounds of the histograms' buckets; one without a bound follows."""

MAX_NAMES: Final = 100
"""Job names that are counted by themselves, for each queue. Names come from whoever adds a job:
without a limit they could fill the memory of whoever stores the metrics."""
OTHER: Final = "other"


class TargetInfo(msgspec.Struct, frozen=True):
    """A worker of a process, as the banner shows it."""

    source: str
    """``module:object``."""
    kind: str
    """The class of the object: ``Jobs``, ``Worker`` or ``RsmqWorker``."""
    queue: str
    redis: str
    """The server, without secrets."""
    concurrency: int
    jobs: tuple[str, ...] = ()
    """The names of the jobs, if the target knows them."""


class LoadedMessage(msgspec.Struct, frozen=True, tag=True):
    """All targets are loaded, and their workers are about to run."""

    targets: list[TargetInfo]
    files: list[str] = []
    """Source files to watch."""


class LoadFailedMessage(msgspec.Struct, frozen=True, tag=True):
    """A target cannot be loaded; the process ends."""

    why: str
    """One line."""
    traceback: str = ""
    files: list[str] = []


class QueueState(msgspec.Struct, frozen=True):
    """How far a worker of a process is with its queue."""

    queue: str
    in_flight: int
    concurrency: int
    is_consuming: bool
    """Whether it reads as it should, or has a reason not to read."""
    fetched_s_ago: float | None
    """Since it last read from Redis; `None` if it has not yet."""


class RunningJob(msgspec.Struct, frozen=True):
    """A job whose handler runs."""

    queue: str
    id: str
    name: str
    since_s: float

    def __str__(self) -> str:
        return " ".join(filter(None, (self.queue, self.name, self.id)))


class RunCounts(msgspec.Struct):
    """Runs of one job of one queue, counted since the last report."""

    queue: str
    job: str
    outcomes: dict[str, int]
    failures: int
    """Runs whose handler raised."""
    wait_buckets: list[int]
    wait_s: float
    run_buckets: list[int]
    run_s: float


class ProcessReport(msgspec.Struct, frozen=True, tag=True):
    """The state of a process, sent about once a second, also while its event loop is blocked."""

    rss_bytes: int
    blocked_s: float
    """For how long the event loop has not answered."""
    queues: list[QueueState]
    oldest: RunningJob | None
    """The job that has been running longest."""
    counts: list[RunCounts]
    is_paused: bool = False
    is_stopping: bool = False
    files: list[str] = []
    """Source files that were imported since the last report."""


class ExitMessage(msgspec.Struct, frozen=True, tag=True):
    """The process drains, then ends: it must be replaced."""

    cause: str
    """For metrics: ``max_jobs``, ``max_rss`` or ``failed``."""
    why: str


class ConsumerMessage(msgspec.Struct, frozen=True, tag=True):
    """A consumer is about to read, under an id that no other process has; or it has left."""

    consumer: str
    lease: str | None
    """What releases its jobs when the process has ended, for `process/lease_release.py` alone: it
    has the password of the server. `None` when it has left, and has no jobs."""


class ReleaseResult(msgspec.Struct, frozen=True):
    """What became of the jobs of a process that has ended, in one queue."""

    queue: str
    jobs: int
    """How many were given back."""
    error: str = ""


ProcessMessage: TypeAlias = (
    LoadedMessage | LoadFailedMessage | ProcessReport | ExitMessage | ConsumerMessage
)

_decoder: Final = msgspec.json.Decoder(ProcessMessage)


def encode_message(message: ProcessMessage) -> bytes:
    """Return *message* as a line."""
    return msgspec.json.encode(message) + b"\n"


def decode_message(line: bytes) -> ProcessMessage:
    """Return the message that *line* holds."""
    message: ProcessMessage = _decoder.decode(line)
    return message
