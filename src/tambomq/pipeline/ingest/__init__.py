"""Fills the lake: reads events and journals into bronze, derives silver and gold.

- Bronze: each entry of events, dead letters and journals as it was read, one row for each.
- Silver: one row for each lifecycle of a job or message, folded from its rows in bronze.
- Gold: counts and percentiles per minute, queue and name, summed up from silver; failed runs and
  retries are counted from bronze.

Read `run` first (the query, with a drawing), then `batch` (what a batch writes, and when lifecycles
are closed), `silver` (states of lifecycles), `lifecycles` (jobs with several of them) and `gold`
(sums per minute). `sources` is what Spark reads, `depths` and `snapshots` count the messages in
queues, and `progress` formats the line that a terminal shows for each batch.
"""
