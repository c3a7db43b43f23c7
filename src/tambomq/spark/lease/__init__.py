"""Leased streams: a streaming query claims messages, reads them, and acknowledges them.

A *lease* is durable: a name under which a query consumes a queue, over all its restarts. What
expires is a process's hold on it. The *driver* is the process that holds it. It is not the user's
program, but a Python process that Spark starts beside it to plan the source.

Two fields name who holds a lease: *owner* is the fencing token, which scripts check; *holder* is a
text that describes the process, for people and for `process_identity`.

Read `reader` first (a micro-batch is a claim), then `holder` (acquires and renews the lease),
`leased_source` (the interface that each protocol implements), `verdicts` (retry or dead-letter
single rows), `process_identity` (whether a holder is known to be dead) and `admin` (for operators).
"""
