"""Who is known to be gone, and who is not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import redis

from tambomq.rsmq import Rsmq
from tambomq.rsmq.keys import Keys
from tambomq.spark import alive
from tambomq.spark.lease import Lease
from tambomq.spark.leased_rsmq import LeasedMessages
from tambomq.spark.options import Place
from tests.servers import Server, eventually
from tests.store.proxy import Proxy

TELL = "from tambomq.spark import alive; print(alive.label(), flush=True)"


def ended() -> str:
    """Who a process was that is no more."""
    told = subprocess.run([sys.executable, "-c", TELL], capture_output=True, text=True, check=True)
    return told.stdout.strip()


def test_this_process_is_not_gone() -> None:
    assert not alive.is_gone(alive.label())


def test_a_process_that_has_ended_is_gone() -> None:
    assert alive.is_gone(ended())


def test_a_process_that_was_stopped_but_lives_is_not_gone() -> None:
    code = f"{TELL}; input()"
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    who = child.stdout.readline().strip()
    assert not alive.is_gone(who)
    child.communicate("\n")
    assert alive.is_gone(who)


@pytest.mark.skipif(sys.platform != "linux", reason="nobody else tells that a process is a zombie")
def test_a_process_that_has_ended_and_was_not_waited_for_is_gone() -> None:
    with subprocess.Popen([sys.executable, "-c", TELL], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        who = child.stdout.readline().strip()
        eventually(lambda: alive.is_gone(who))


@pytest.mark.skipif(sys.platform != "linux", reason="nobody else tells when a process was started")
def test_a_process_whose_number_was_given_again_is_gone() -> None:
    was = alive.label().rpartition("-")[0] + "-1)"
    assert alive.is_gone(was)


def test_a_process_of_another_machine_may_be_there() -> None:
    assert not alive.is_gone("process 4194305 on elsewhere (00000000-1)")


@pytest.mark.parametrize("who", ["", "somebody", "process 1", "process x on y (z-1)"])
def test_who_says_nothing_may_be_there(who: str) -> None:
    assert not alive.is_gone(who)


def test_the_lease_of_a_process_that_is_gone_is_taken_at_once(
    rsmq: Rsmq, server: Server, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ledger = Keys().ledger("q", "l")
    far = 1 << 52
    db.hset(ledger, mapping={"owner": "who", "label": ended(), "until": far, "acked": 7})
    lease = Lease(LeasedMessages(Keys()), Place(server.url), "q", "l", 60)
    try:
        assert lease.take().acked == 7
        assert db.hget(ledger, "label") == alive.label().encode()
        assert f"process {os.getpid()} " in lease.term.label
    finally:
        lease.close()


def test_a_lease_is_renewed_though_a_connection_goes_silent(
    rsmq: Rsmq, server: Server, db: redis.Redis
) -> None:
    rsmq.create_queue("q")
    ledger = Keys().ledger("q", "l")

    def until() -> int:
        return int(db.hget(ledger, "until") or 0)

    with Proxy(server.port) as proxy:
        lease = Lease(LeasedMessages(Keys()), Place(proxy.url), "q", "l", 1.5)
        try:
            lease.take()
            for _ in range(2):
                before = until()
                eventually(lambda least=before: until() > least, within_s=20)  # type: ignore[misc]
                proxy.stall()
            before = until()
            eventually(lambda: until() > before, within_s=20)
        finally:
            proxy.hang_up()
            lease.close()


def test_a_renewal_waits_for_half_the_time_to_the_next_and_no_longer() -> None:
    lease = Lease(LeasedMessages(Keys()), Place("redis://127.0.0.1:1"), "q", "l", 60)
    try:
        waits = lease._renewals.endpoint
        assert waits.reply_timeout_s == waits.connect_timeout_s == lease._beat_s / 2 < 10
    finally:
        lease.close()
