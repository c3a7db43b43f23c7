"""The values that the console shows, as they are in its JSON. No bytes of any protocol, no clock.

A queue is written as commands take it: ``chasqui:payments``. Times are milliseconds since 1970
(``…_ms``), ages and durations seconds (``…_s``), rates per second (``…_per_s``). `None` means
that it does not apply to the protocol, or that there is none.
"""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from tambomq.errors import InvalidFormat

Protocol = Literal["rsmq", "chasqui", "gomq", "kqueue"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)


class QueueRef(msgspec.Struct, frozen=True, order=True):
    """The protocol and the name of a queue."""

    protocol: Protocol
    name: str

    def __str__(self) -> str:
        """Return it as commands take it."""
        return f"{self.protocol}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> QueueRef:
        """Return the queue that *text* names. Raises `InvalidFormat`."""
        protocol, _, name = text.partition(":")
        for known in PROTOCOLS:
            if protocol == known and name:
                return cls(known, name)
        raise InvalidFormat("queue", text, f"{', '.join(PROTOCOLS)}, then a colon and the name")


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs a look: why, in a sentence, and where to look."""

    kind: str
    """A word for the badge: ``failing``, ``growing``, ``peer silent``, ``no workers`` …"""
    severity: Literal["red", "amber"]
    why: str
    """A sentence with numbers. Text that came from a queue is in it as it is: escape it."""
    link: Literal["queue", "dead_letters", "workers"] = "queue"


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A queue as the overview shows it."""

    queue: str
    protocol: Protocol
    name: str
    depth: int
    """All messages that wait, run or are delayed; dead letters are not counted."""
    visible: int | None = None
    in_flight: int | None = None
    delayed: int | None = None
    dead: int | None = None
    oldest_s: float | None = None
    """Age of the oldest message that could run now."""
    in_per_s: float = 0.0
    out_per_s: float = 0.0
    done_per_s: float = 0.0
    """The same, with a message that goes to several consumers counted once."""
    failed_per_s: float | None = None
    drain_s: float | None = None
    """How long until it is empty at the present rates; `None` if it grows, stands or is empty."""
    grows_per_s: float | None = None
    size_bytes: int | None = None
    """An estimate: sampled where counting would cost too much."""
    paused: bool = False
    trouble: Trouble | None = None
    backlog: list[int | None] = []
    """The depth of the last hour, a value a minute, oldest first; `None` where nobody looked."""
    backlog_fine: list[int | None] = []
    """The same of the last ten minutes, a value each 10 s; only while the history is shorter."""


class RedisStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The server that holds the queues."""

    ok: bool
    url: str
    """Without a password."""
    version: str = ""
    latency_ms: float | None = None
    memory_bytes: int = 0
    max_memory_bytes: int = 0
    """0: no limit."""
    policy: str = ""
    alarms: list[str] = []
    """Alarms that stop producers, each a sentence with its values and what to do."""
    lost_since_ms: int | None = None
    next_try_ms: int | None = None
    why: str = ""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Lines of a chart: one value of each for every time, `None` where nothing is known."""

    times_ms: list[int]
    values: dict[str, list[float | None]]


class Totals(msgspec.Struct, frozen=True, kw_only=True):
    """The figures above the overview."""

    in_per_s: float
    out_per_s: float
    """Each message counted once, however many consumers it goes to."""
    failed_per_s: float
    dead: int
    dead_last_hour: int | None
    backlog: int
    workers: int
    places: int | None = None
    places_taken: int | None = None


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Every queue, as of one refresh."""

    at_ms: int
    redis: RedisStatus
    totals: Totals
    throughput: Series
    """``in``, ``out`` and ``failed`` per second of all queues, the last hour."""
    queues: list[QueueRow]
    cut_off: int = 0
    """How many queues are not in it, since there are too many."""
    watched_since_ms: int | None = None
    """History begins here: nothing is read while nobody looks."""


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, consumer, peer or connection, and what it holds."""

    queue: str
    """For KqueueMsgQ connections: the protocol alone."""
    id: str
    kind: Literal["worker", "lease", "peer", "producer", "consumer"]
    alive: bool
    holds: int
    places: int | None = None
    idle_s: float | None = None
    lease_s: float | None = None
    """Until what it holds may be taken by others."""
    buffer_bytes: int | None = None
    subscriptions: list[str] = []
    address: str = ""
    note: str = ""
    """A sentence, if there is something to say."""


class LeaderRow(msgspec.Struct, frozen=True, kw_only=True):
    """Who promotes and schedules for a ChasquiMQ queue."""

    queue: str
    promoter: str | None
    scheduler: str | None


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A recurring job."""

    queue: str
    key: str
    name: str
    pattern: str
    """As a person reads it: ``0 9 * * MON-FRI (Europe/Berlin)``, ``every 15 m``."""
    next_ms: int | None
    last_ms: int | None = None
    fired: int = 0
    note: str = ""


class QueueDetail(msgspec.Struct, frozen=True, kw_only=True):
    """The page of one queue."""

    at_ms: int
    row: QueueRow
    settings: list[tuple[str, str]]
    """Pairs of label and value, ready to show."""
    throughput: Series
    """``in``, ``out``, ``failed`` per second, the last hour."""
    run_times: Series | None = None
    """``p50``, ``p95``, ``p99`` of a run in seconds."""
    wait_times: Series | None = None
    """The same of the time a message waited."""
    workers: list[WorkerRow] = []
    leaders: LeaderRow | None = None
    schedules: list[ScheduleRow] = []
    states: dict[str, int | None] = {}
    """How many messages each tab has, in the order of the tabs, by `MessageState`."""
    actions: list[str] = []
    """What can be done to it: ``pause``, ``resume``, ``purge``, ``drain``, ``send``."""


class LakeTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of the pipeline's lake."""

    name: str
    files: int
    size_bytes: int
    rows: int | None
    newest_ms: int | None


class PipelineStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The data pipeline, as far as this machine can see it."""

    lake: str | None
    """The directory of the lake; `None`: there is none."""
    tables: list[LakeTable] = []
    lag_s: float | None = None
    batches: list[tuple[int, int, str]] = []
    """The last ones: when (ms), rows, of which table."""
    gold: Series | None = None
    leases: list[WorkerRow] = []
    journals: list[tuple[str, int, int]] = []
    """Queue, entries, entries that the pipeline has not read."""
    note: str = ""
