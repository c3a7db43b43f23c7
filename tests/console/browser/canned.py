"""A console's worth of made-up data, for pages and states that real traffic rarely shows.

One incident, seen from every page: chasqui:payments fails, and its jobs die.
"""

from __future__ import annotations

import math
import time

from tambomq.console.actions.model import AuditEntry
from tambomq.console.model import (
    LakeTable,
    LeaderRow,
    Overview,
    PipelineStatus,
    Protocol,
    QueueDetail,
    QueueRow,
    RedisStatus,
    ScheduleRow,
    Series,
    Totals,
    Trouble,
    WorkerRow,
)

ERROR = "HTTPStatusError: 503 from acquirer 7c1e"
SCRIPT = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1>"
RIGHT_TO_LEFT = "\u202eתור\u202c حساب"


def now_ms() -> int:
    """Return the time."""
    return time.time_ns() // 1_000_000


def _wave(seed: int, level: float, n: int = 60) -> list[float]:
    return [
        round(level * (1 + 0.12 * math.sin(i / 4 + seed) + 0.05 * math.sin(i * 1.7 + seed)), 1)
        for i in range(n)
    ]


def minutes(n: int = 60) -> list[int]:
    """Return the minutes of the last hour."""
    now = now_ms() // 1000 * 1000
    return [now - (n - 1 - i) * 60_000 for i in range(n)]


def _row(protocol: Protocol, name: str, counts: tuple[int | None, ...], **more: object) -> QueueRow:
    visible, in_flight, delayed, dead = counts
    depth = sum(each or 0 for each in (visible, in_flight, delayed))
    backlog = [round(value) for value in _wave(len(name), max(depth, 1), 60)]
    values: dict[str, object] = {
        "size_bytes": depth * 1340,
        "backlog": backlog,
        "oldest_s": (visible or 0) / 50 if visible else None,
        "drain_s": depth / 40 if depth else None,
        **more,
    }
    return QueueRow(
        queue=f"{protocol}:{name}",
        protocol=protocol,
        name=name,
        depth=depth,
        visible=visible,
        in_flight=in_flight,
        delayed=delayed,
        dead=dead,
        **values,  # type: ignore[arg-type]  # fields by name
    )


def _in_trouble() -> list[QueueRow]:
    """Return two queues that need a look."""
    failing = Trouble(
        kind="failing",
        severity="red",
        why=f"96 % of its runs failed in the last 10 m: {ERROR}.",
    )
    silent = Trouble(
        kind="peer silent",
        severity="amber",
        why="The peer risk-3 has not observed for 4 m 11 s. 61,408 payloads wait for it.",
        link="workers",
    )
    rising: list[int | None] = [*[20] * 44, *(400 * i for i in range(16))]
    return [
        _row(
            *("chasqui", "payments", (4212, 120, 11906, 1284)),
            oldest_s=1084.0,
            in_per_s=71.4,
            out_per_s=3.2,
            failed_per_s=68.9,
            drain_s=None,
            grows_per_s=68.0,
            trouble=failing,
            backlog=rising,
        ),
        _row(
            *("gomq", "price-ticks", (61408, 500, None, None)),
            oldest_s=251.0,
            in_per_s=240.0,
            out_per_s=0.0,
            drain_s=None,
            grows_per_s=240.0,
            trouble=silent,
            backlog=rising,
        ),
    ]


def queues() -> list[QueueRow]:
    """Return the queues of a small shop, two of them in trouble."""
    return [
        *_in_trouble(),
        _row("chasqui", "newsletter", (25000, 0, 0, 0), paused=True, oldest_s=3141.0, drain_s=None),
        _row("rsmq", "legacy-import", (18220, 10, 0, 0), out_per_s=4.4, oldest_s=11520.0),
        _row("chasqui", "invoices", (7, 4, 2204, 188), in_per_s=3.1, out_per_s=3.1),
        _row("kqueue", "market-data", (1842, None, None, None), in_per_s=410.0, out_per_s=1640.0),
        _row("rsmq", "webhooks", (1120, 64, 380, 72), in_per_s=44.0, out_per_s=46.2),
        _row("chasqui", "mail", (96, 40, 1310, 41), in_per_s=58.2, out_per_s=58.0),
        _row("rsmq", "orders", (842, 120, 64, 3), in_per_s=212.6, out_per_s=214.0),
        _row("gomq", "audit-trail", (204, 50, None, None), in_per_s=36.8, out_per_s=110.4),
        _row("chasqui", "thumbnails", (0, 18, 0, 0), in_per_s=22.4, out_per_s=22.4),
        _row("kqueue", "chat", (0, None, None, None)),
    ]


def thousand() -> list[QueueRow]:
    """Return 1,000 queues."""
    kinds: tuple[Protocol, ...] = ("rsmq", "chasqui", "gomq", "kqueue")
    return [
        _row(kinds[i % 4], f"queue-{i:04}", (i * 7 % 5000, i % 90, None, None), in_per_s=float(i))
        for i in range(1000)
    ]


def named(protocol: Protocol, name: str, dead: int = 0, **more: object) -> QueueRow:
    """Return a queue of a name, with what else is to be shown of it."""
    return _row(protocol, name, (1, 0, 0, dead), **more)


def hostile() -> list[QueueRow]:
    """Return queues whose names want to be markup, right to left, or a whole page."""
    return [
        _row("rsmq", SCRIPT, (1, 0, 0, 0)),
        _row("rsmq", RIGHT_TO_LEFT, (2, 0, 0, 0)),
        _row("rsmq", "x" * 1000, (3, 0, 0, 0)),
        _row(
            *("rsmq", "binary\x1b[31m\ufffd\x07", (4, 0, 0, 0)),
            trouble=Trouble(kind="failing", severity="red", why=SCRIPT),
        ),
    ]


def overview(rows: list[QueueRow], *, lost: bool = False, tick: int = 0) -> Overview:
    """Return an overview of *rows*; *tick* makes each one differ."""
    at = now_ms()
    redis = RedisStatus(
        ok=not lost,
        url="redis://127.0.0.1:6379",
        version="valkey 9.1",
        latency_ms=0.4,
        memory_bytes=412_000_000,
        max_memory_bytes=2_000_000_000,
        policy="noeviction",
        lost_since_ms=at - 42_000 if lost else None,
        next_try_ms=at + 4_000 if lost else None,
        why="connection refused" if lost else "",
    )
    dead = sum(row.dead or 0 for row in rows)
    values: dict[str, list[float | None]] = {
        "in": list(_wave(1, 1300)),
        "out": list(_wave(2, 1250)),
        "failed": [*[0.4] * 44, *[4.3 * i for i in range(16)]],
    }
    return Overview(
        at_ms=at,
        redis=redis,
        totals=Totals(
            in_per_s=1336.0 + tick,
            out_per_s=1259.0,
            failed_per_s=69.1 if dead else 0.0,
            dead=dead,
            dead_last_hour=1265 if dead else 0,
            backlog=sum(row.depth for row in rows),
            workers=41,
            places=900,
            places_taken=612,
        ),
        throughput=Series(times_ms=minutes(), values=values),
        queues=rows,
        watched_since_ms=at - 3_600_000,
    )


def _seconds(level: float, later: float) -> list[float | None]:
    return [*_wave(3, level, 42), *[later * (0.5 + i / 36) for i in range(18)]]


def queue_detail(row: QueueRow) -> QueueDetail:
    """Return the page of *row*."""
    chasqui = row.protocol == "chasqui"
    times = minutes()
    counts: dict[str, int | None] = {
        "visible": row.visible, "in_flight": row.in_flight, "delayed": row.delayed, "dead": row.dead
    }  # fmt: skip
    return QueueDetail(
        at_ms=now_ms(),
        row=row,
        settings=[
            ("Runs before dead", "8, or its own"),
            ("Between runs", "60 s, ×2, up to 5 m"),
            ("Limiter", "100 per second"),
            ("Taken over", "after 30 s of silence"),
            ("Results", "kept 1 h"),
            ("Largest job", "1 MiB"),
        ],
        throughput=Series(
            times_ms=times,
            values={
                "in": list(_wave(1, 71)),
                "out": [*_wave(2, 70, 44), *[max(3.0, 70.0 - 9 * i) for i in range(16)]],
                "failed": [*[0.5] * 44, *[min(69.0, 9.0 * i) for i in range(16)]],
            },
        ),
        run_times=Series(
            times_ms=times,
            values={"p50": _seconds(0.2, 1), "p95": _seconds(0.4, 1.6), "p99": _seconds(0.6, 2.2)},
        ) if chasqui else None,
        wait_times=Series(times_ms=times, values={"p50": _seconds(0.1, 40)}) if chasqui else None,
        workers=[row for row in workers() if row.kind == "worker"] if chasqui else [],
        leaders=LeaderRow(queue=row.queue, promoter="pay-2.prod", scheduler="pay-2.prod")
        if chasqui else None,
        schedules=schedules() if chasqui else [],
        states={**counts, "done": 812440} if chasqui else counts,
        actions=["pause", "resume", "purge", "drain", "send"],
    )  # fmt: skip


def workers() -> list[WorkerRow]:
    """Return workers, a lease, peers and connections."""
    queue = "chasqui:payments"
    return [
        WorkerRow(queue=queue, id="pay-1.prod", kind="worker", alive=True, holds=40, places=40,
                  idle_s=0.4, lease_s=24.0),
        WorkerRow(queue=queue, id="pay-2.prod", kind="worker", alive=True, holds=40, places=40,
                  idle_s=0.2, lease_s=28.0),
        WorkerRow(queue=queue, id="pay-3.prod", kind="worker", alive=False, holds=12, places=40,
                  idle_s=64.0, lease_s=0.0, note="What it holds is taken over by others."),
        WorkerRow(queue=queue, id="pay-4.prod", kind="worker", alive=True, holds=0, places=40,
                  idle_s=0.3),
        WorkerRow(queue="rsmq:orders", id="receipt 7f3a", kind="lease", alive=True, holds=1,
                  lease_s=21.0),
        WorkerRow(queue="gomq:price-ticks", id="risk-3", kind="peer", alive=False, holds=61408,
                  idle_s=251.0, address="10.0.3.9:51044"),
        WorkerRow(queue="kqueue", id="c-12", kind="consumer", alive=True, holds=0,
                  buffer_bytes=18_220, subscriptions=["market-data", "chat"],
                  address="10.0.3.7:40112"),
        WorkerRow(queue="kqueue", id="c-13", kind="producer", alive=True, holds=0,
                  buffer_bytes=0, address="10.0.3.8:40113"),
    ]  # fmt: skip


def schedules() -> list[ScheduleRow]:
    """Return two recurring jobs."""
    at = now_ms()
    return [
        ScheduleRow(queue="chasqui:payments", key="settle", name="settle",
                    pattern="0 2 * * * (Europe/Berlin)", next_ms=at + 35_460_000,
                    last_ms=at - 50_940_000, fired=212),
        ScheduleRow(queue="chasqui:payments", key="reconcile", name="reconcile",
                    pattern="every 15 m", next_ms=at + 401_000, last_ms=at - 499_000, fired=9120),
    ]  # fmt: skip


def pipeline() -> PipelineStatus:
    """Return a lake with three tables."""
    at = now_ms()
    sizes = {"bronze": 412_000_000, "silver": 118_000_000, "gold": 1_900_000}
    tables = [
        LakeTable(name=name, files=40, size_bytes=size, rows=size // 120, newest_ms=at - 3_100)
        for name, size in sizes.items()
    ]
    lease = WorkerRow(queue="rsmq:orders", id="bronze-rsmq", kind="lease", alive=True, holds=0,
                      lease_s=22.0)  # fmt: skip
    gold: dict[str, list[float | None]] = {
        "entered": list(_wave(1, 1300)), "done": list(_wave(2, 1250)), "dead": [0.5] * 60
    }  # fmt: skip
    return PipelineStatus(
        lake="/var/lib/tambo/lake",
        tables=tables,
        lag_s=3.1,
        batches=[(at - 3_100 - i * 5_000, 6_000 + i, "bronze") for i in range(6)],
        gold=Series(times_ms=minutes(), values=gold),
        leases=[lease],
        journals=[("rsmq:orders", 14_210, 120), ("chasqui:payments", 92_114, 0)],
    )


def audit() -> list[AuditEntry]:
    """Return what was done and refused."""
    at = now_ms()
    done = AuditEntry(at_ms=at - 60_000, user="ops", role="operator", address="127.0.0.1",
                      verb="pause", target="chasqui:newsletter", outcome="done",
                      detail="Paused chasqui:newsletter.")  # fmt: skip
    refused = AuditEntry(at_ms=at - 90_000, user="unknown", role="none", address="10.0.0.9",
                         verb="log in", target="", outcome="refused",
                         detail="wrong token")  # fmt: skip
    return [done, refused]
