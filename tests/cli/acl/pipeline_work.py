"""Everything that a pipeline does with the queues of one protocol: Spark's tables, and commands."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tambomq.chasqui import BlockingQueue
from tambomq.cli.acl.rights import Protocol
from tambomq.cli.main import tambo
from tambomq.gomq import wire
from tambomq.gomq.ops.journal import push_recorded
from tambomq.ids import Xids
from tambomq.journal.keys import JournalKeys
from tambomq.journal.ops import append_bounded
from tambomq.journal.policy import DEFAULT_BOUNDS, JournalPolicy
from tambomq.rsmq import Rsmq
from tambomq.spark import Leases, settle
from tambomq.store.sync import Store
from tests import sparking
from tests.cli.acl import operator_work
from tests.cli.transcript import Done, call
from tests.servers import eventually

TABLES: dict[Protocol, tuple[str, ...]] = {
    "rsmq": ("messages", "queues"),
    "chasqui": ("jobs", "delayed", "dlq", "events", "repeat", "results", "pending"),
    "gomq": ("main", "dedicated", "subscriptions"),
    "kqueue": (),
}
BODY: dict[Protocol, str] = {"rsmq": "body", "chasqui": "data", "gomq": "payload", "kqueue": "body"}
FORMAT = {"kqueue": "tambo"}
_NOW_S = 1_800_000_000


def fill(url: str, protocol: Protocol, queue: str) -> None:
    """Leave messages, a journal and dead letters, as others do who use the queue."""
    if protocol == "chasqui":
        operator_work.fill(url, queue)
        with BlockingQueue(queue, redis_url=url, journal=True) as jobs:
            jobs.add_bulk([{"name": "mail", "data": n} for n in range(9)])
            jobs.add("mail", 1, delay_ms=3_600_000)
    elif protocol == "rsmq":
        with Rsmq(url, journal=(queue,)) as rsmq:
            for end in ("", "-dead", "-copy", "-next", "-again"):
                rsmq.create_queue(queue + end)
            rsmq.send_messages(queue, [f"{n}" for n in range(9)])
            rsmq.send_messages(f"{queue}-dead", [f"dead {n}" for n in range(4)])
    else:
        with closing(Store(url)) as store:
            _record(store, protocol, queue)


def _record(store: Store, protocol: Protocol, queue: str) -> None:
    if protocol == "kqueue":
        found = JournalKeys(protocol, queue)
        store.run(append_bounded(found, DEFAULT_BOUNDS, [(1, b"%d" % n) for n in range(9)]))
        return
    ids = Xids()
    elements = [wire.encode(ids.next(_NOW_S), "", b"%d" % n) for n in range(9)]
    store.run(push_recorded(JournalPolicy("gomq", (queue,)), {queue: elements}))


def pipeline(spark: SparkSession, url: str, protocol: Protocol, queue: str, folder: Path) -> None:
    """Follow, look, lease, settle, write, redrive, undo, migrate, replay, audit."""

    def run(*words: str) -> Done:
        return _run(url, *words)

    address = f"{protocol}:{queue}"
    with sparking.lent(spark):
        lake = str(folder / "lake")
        run("run", "--once", "--queue", f"{protocol}:{queue}*", "--lake", lake)
        for table in TABLES[protocol]:
            _source(spark, url, protocol, queue, table=table).load().count()
        _follow(spark, url, protocol, queue, folder)
        _write(spark, url, protocol, queue)
        run("leases", "list")
        if protocol == "kqueue":
            return
        if protocol != "gomq":
            run("dlq", address)
            run("dlq", "redrive", address, "--id", "one", "--journal")
            run("dlq", "undo", f"{address}/one", "--journal")
        _lease(spark, url, protocol, queue, folder)
        run("leases", "forget", address, "nightly", "--give-back", "--yes")
        again = ("--name", "again") if protocol == "chasqui" else ()
        run("replay", "--from", lake, "--to", f"{address}-again", "--journal", *again)
        run("run", "--once", "--queue", f"{protocol}:{queue}*", "--lake", lake)
    run("audit", protocol)
    run("audit", protocol, "--repair", "--yes")
    run("migrate", f"{address}-copy", f"{address}-next", "--journal")


def _source(spark: SparkSession, url: str, protocol: str, queue: str, **options: str) -> Any:
    return spark.read.format(protocol).options(url=url, queue=queue, **options)


def _follow(spark: SparkSession, url: str, protocol: Protocol, queue: str, folder: Path) -> None:
    journal = spark.readStream.format("tambo").options(url=url, protocol=protocol, queue=queue)
    _to_end(journal.load(), folder / "journal")
    for table in ("events", "dlq") if protocol == "chasqui" else ():
        tail = spark.readStream.format("chasqui").options(url=url, queue=queue, table=table)
        _to_end(tail.load(), folder / table)


def _to_end(rows: DataFrame, folder: Path) -> None:
    writer = rows.writeStream.format("noop").option("checkpointLocation", str(folder))
    writer.trigger(availableNow=True).start().awaitTermination()


def _write(spark: SparkSession, url: str, protocol: Protocol, queue: str) -> None:
    made = spark.range(20).select(f.col("id").cast("string").alias(BODY[protocol]))
    if protocol == "chasqui":
        made = made.withColumn("name", f.lit("copied"))
    options = {"url": url, "queue": f"{queue}-copy"}
    options |= {"protocol": protocol} if protocol == "kqueue" else {"journal": "true"}
    made.write.format(FORMAT.get(protocol, protocol)).options(**options).mode("append").save()


def _lease(spark: SparkSession, url: str, protocol: Protocol, queue: str, folder: Path) -> None:
    options = {"url": url, "queue": queue, "lease": "nightly", "maxRowsPerBatch": "4"}
    rows = spark.readStream.format(protocol).options(**options).load()

    def keep(batch: DataFrame, number: int) -> None:
        batch.count()
        if protocol == "gomq":
            return
        id = "id" if protocol == "rsmq" else "entry_id"
        verdict = f.when(f.rand() < 0.5, "dead").otherwise("retry") if number < 2 else f.lit("done")
        judged = batch.select("queue", "claim", id, verdict.alias("verdict"))
        judged = judged.withColumn("delay_ms", f.lit(100)).withColumn("reason", f.lit("no"))
        settle(judged, lease="nightly", url=url, source=protocol)

    writer = rows.writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(folder / "lease"))
    writer.trigger(availableNow=True).start().awaitTermination()
    # The process that holds the lease ends a little after the query.
    with closing(Leases(protocol, url)) as leases:
        eventually(lambda: [each.state for each in leases.of(queue)] in (["free"], ["away"]))
        assert [each.name for each in leases.of(queue)] == ["nightly"]


def _run(url: str, *words: str) -> Done:
    done = call(tambo, "tambo", "pipeline", *words, url=url)
    assert done.code in {0, 3, 4}, (words, done.out, done.err)
    return done
