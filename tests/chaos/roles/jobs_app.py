"""The module that `tambo work` loads into each of its processes."""

from __future__ import annotations

import json
import os
import threading

from tests.chaos.role import RoleContext
from tests.chaos.roles.jobs_definition import VARIABLE, define

# All processes of a `tambo work` are one actor: none of them counts as high as its number.
_context = RoleContext(json.loads(os.environ[VARIABLE]), first_operation=os.getpid() * 1_000_000)
_jobs, _ = define(_context)
threading.Thread(target=_context.watch_machine, daemon=True).start()

worker = _jobs.worker(
    concurrency=10,
    claim_min_idle_ms=round(_context.lease_s * 1000),
    grace_s=_context.lease_s * 3,
    patience_s=_context.lease_s,
    store_results=False,
)
