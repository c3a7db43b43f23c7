"""Fills the lake: reads events and journals into bronze, derives silver and gold.

Read `run` first (the query, with a drawing), then `batch` (what a batch writes, and when lifecycles
are closed), `silver` (states of lifecycles), `lifecycles` (jobs with several of them) and `gold`
(sums per minute). `sources` is what Spark reads, `depths` and `snapshots` count queues, `progress`
is for people.
"""
