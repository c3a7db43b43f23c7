"""Processes that are known to have ended, and those that may be running."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

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


needs_proc = pytest.mark.skipif(
    sys.platform != "linux", reason="only /proc tells this machine from others of its name"
)


def ended() -> str:
    """Return the identity of a process that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", PRINT_DESCRIPTION], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_this_process_is_not_gone() -> None:
    assert not is_dead(describe_process())


@needs_proc
def test_a_process_that_has_ended_is_gone() -> None:
    assert is_dead(ended())


@needs_proc
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


@pytest.mark.parametrize("hidden", [FileNotFoundError, PermissionError])
def test_another_user_s_process_that_proc_hides_is_not_gone(
    hidden: type[OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with /proc mounted with hidepid=2 and hidepid=1."""
    identity, stat, read_text = describe_process(), f"/proc/{os.getpid()}/stat", Path.read_text

    def refuse(*_: object) -> None:
        raise PermissionError

    def read_visible(path: Path) -> str:
        if str(path) == stat:
            raise hidden
        return read_text(path)

    monkeypatch.setattr(os, "kill", refuse)
    monkeypatch.setattr(Path, "read_text", read_visible)
    assert not is_dead(identity)


def test_without_proc_a_machine_of_the_same_host_name_may_be_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(path: Path) -> None:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "read_text", missing)
    monkeypatch.setattr(Path, "readlink", missing)
    # No process has so high a number: on this machine it would be dead.
    elsewhere = re.sub(r"^process \d+", "process 4194305", describe_process())
    assert not is_dead(elsewhere)


def test_a_process_of_another_machine_counts_as_alive() -> None:
    assert not is_dead("process 4194305 on elsewhere (00000000-1)")


@pytest.mark.parametrize("identity", ["", "somebody", "process 1", "process x on y (z-1)"])
def test_a_holder_without_a_process_identity_counts_as_alive(identity: str) -> None:
    assert not is_dead(identity)


@needs_proc
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


def test_a_holder_that_is_refused_for_a_dead_one_waits_and_does_not_spin(
    rsmq: Rsmq, server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    rsmq.create_queue("q")
    ledger = Keys().ledger("q", "l")
    # The server cannot recognise it: this host's name is no text.
    label = re.sub(rb" on .+ ", b" on \xff ", ended().encode())
    db.hset(ledger, mapping={"owner": "who", "label": label, "until": 1 << 52})
    waits: list[float] = []

    def expire(seconds: float) -> None:
        waits.append(seconds)
        db.hset(ledger, "until", 1)

    monkeypatch.setattr("tambomq.spark.lease.holder.time.sleep", expire)
    holder = LeaseHolder(RsmqLeaseOps(Keys()), RedisTarget(server.url), "q", "l", 60)
    try:
        assert holder.acquire().acquired
    finally:
        holder.close()
    assert len(waits) == 1


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
