"""The worker: fetches stream entries, runs a handler for each job, and settles the jobs.

Read `worker` first (the stages, with a drawing), then the stages in the order of the flow:
`fetcher` (with `prefetch`, how many entries it may read), `handler_pool` (with `handler` and
`runner_cancellation`), `outcomes` (done, retry, dead letter) and `settler` (with `settlement`, what
it sends). `in_flight` renews the leases of the entries that the worker holds.

Beside the flow: `consumer_group` (join, and check after a failover), `cancellations` (jobs that
were cancelled elsewhere), `job_reporter` (progress and log lines), `observed_runs` (runs
reported to an observer) and `control` (stop, pause, health).
"""
