"""Run by the Python of an installed package: writes and reads a queue in every format of Spark."""

from __future__ import annotations

import sys

from tambomq.rsmq import Rsmq
from tambomq.spark import session

ROWS = {
    "rsmq": "SELECT 'one' AS body, 'wheel' AS queue",
    "chasqui": "SELECT named_struct('text', 'one') AS payload, 'smoke' AS name, 'wheel' AS queue",
    "gomq": "SELECT 'one' AS payload, 'wheel' AS key",
    "tambo": "SELECT 'one' AS body, 'wheel' AS queue",
}


def main() -> None:
    """Print how many rows each format has."""
    url = sys.argv[1]
    with Rsmq(url) as rsmq:
        rsmq.create_queue("wheel")
    spark = session("wheel", master="local[2]")
    for kind, rows in ROWS.items():
        options = {"url": url, **({"protocol": "kqueue"} if kind == "tambo" else {})}
        spark.sql(rows).write.format(kind).mode("append").options(**options).save()
        found = spark.read.format(kind).options(queue="wheel", **options).load().count()
        print(f"{kind} {found}")  # noqa: T201  (read by the test)


if __name__ == "__main__":
    main()
