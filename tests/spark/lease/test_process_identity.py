"""Processes that are known to have ended, and those that may be running."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.rsmq.bulk.lease import RsmqLeaseOps
from tambomq.rsmq.keys import Keys
from tambomq.spark.core.options import RedisTarget
from tambomq.spark.lease.holder import LeaseHolder
from tambomq.spark.lease.process_identity import describe_process, is_dead
from tests.servers import Server, eventually
from tests.store.proxy import Proxy

PRINT_DESCRIPTION = (
    "from tambomq.spark.lease.process_identity import describe_process;"
    "print(describe_process(), flush=True)"
)


def ended() -> str:
    """Who a process was that is no more."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DESCRIPTION], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_this_process_is_not_gone() -> None:
    assert not is_dead(describe_process())


def test_a_process_that_has_ended_is_gone() -> None:
    assert is_dead(ended())


def test_a_process_that_was_stopped_but_lives_is_not_gone() -> None:
    code = f"{PRINT_DESCRIPTION}; input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    identity = child.stdout.readline().strip()
    assert not is_dead(identity)
    child.communicate("\n")
    assert is_dead(identity)


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows in /proc that a process is a zombie"
)
def test_a_process_that_has_ended_and_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PRINT_DESCRIPTION], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        identity = child.stdout.readline().strip()
        eventually(lambda: is_dead(identity))


@pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows in /proc when a process started"
)
def test_a_process_whose_number_was_given_again_is_gone() -> None:
    was = describe_process().rpartition("-")[0] + "-1)"
    assert is_dead(was)


def test_a_process_of_another_machine_may_be_there() -> None:
    assert not is_dead("process 4194305 on elsewhere (00000000-1)")


@pytest.mark.parametrize("identity", ["", "somebody", "process 1", "process x on y (z-1)"])
def test_a_holder_without_a_process_identity_counts_as_alive(identity: str) -> None:
    assert not is_dead(identity)


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(
    rsmq: Rsmq, server: Server, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ledger = Keys().ledger("q", "l")
    far = 1 << 52
    db.hset(ledger, mapping={"owner": "who", "label": ended(), "until": far, "acked": 7})
    holder = LeaseHolder(RsmqLeaseOps(Keys()), RedisTarget(server.url), "q", "l", 60)
    try:
        assert holder.acquire().acked == 7
        assert db.hget(ledger, "label") == describe_process().encode()
        assert f"process {os.getpid()} " in holder.request.holder
    finally:
        holder.close()


def test_a_lease_is_renewed_though_a_connection_goes_silent(
    rsmq: Rsmq, server: Server, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ledger = Keys().ledger("q", "l")

    def until() -> int:
        return int(db.hget(ledger, "until") or 0)

    with Proxy(server.port) as proxy:
        holder = LeaseHolder(RsmqLeaseOps(Keys()), RedisTarget(proxy.url), "q", "l", 1.5)
        try:
            holder.acquire()
            for _ in range(2):
                before = until()
                eventually(lambda earlier=before: until() > earlier, within_s=20)  # type: ignore[misc]
                proxy.stall()
            before = until()
            eventually(lambda: until() > before, within_s=20)
        finally:
            proxy.hang_up()
            holder.close()


def test_a_renewal_waits_for_half_the_time_to_the_next_and_no_longer() -> None:
    holder = LeaseHolder(RsmqLeaseOps(Keys()), RedisTarget("redis://127.0.0.1:1"), "q", "l", 60)
    try:
        waits = holder._renewal_store.endpoint
        assert waits.reply_timeout_s == waits.connect_timeout_s == holder._heartbeat_s / 2 < 10
    finally:
        holder.close()
