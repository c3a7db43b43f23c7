"""What the replies to a wait prove; no server."""

from __future__ import annotations

from typing import Any

import hiredis
import pytest

from tambomq.store.durability.level import Durability
from tambomq.store.durability.waits import Wait

DISK, TWO = Durability("disk", 0), Durability("replicas:2", 2)
ALWAYS = [b"appendfsync", b"always"]
IDLE = b"aof_last_write_status:ok\r\naof_pending_bio_fsync:0\r\n"
BUSY = IDLE.replace(b"fsync:0", b"fsync:1")


def observed(states: str, confirmed: int = 1) -> list[Any]:
    """Replies of a server whose fsync is pending (``1``) or not (``0``) at seven observations."""
    pairs = [(BUSY if each == "1" else IDLE, 0) for each in states]
    return [reply for pair in pairs for reply in pair] + [[confirmed, 0]]


def test_enough_replicas_are_a_proof() -> None:
    assert Wait(TWO).proof([2]) == (2, "")
    assert Wait(TWO).proof([3]) == (3, "")


def test_too_few_replicas_are_no_proof() -> None:
    copies, why = Wait(TWO).proof([1])
    assert (copies, why) == (1, "1 of 2 replicas have it within 5 s")


def test_a_file_that_is_synced_with_each_write_is_believed() -> None:
    wait = Wait(DISK, "always")
    assert (wait.due, wait.proof([[1, 0], ALWAYS])) == (2, (1, ""))
    assert wait.proof([[0, 0], ALWAYS]).why


def test_a_policy_that_was_changed_meanwhile_proves_nothing() -> None:
    wait = Wait(DISK, "always")
    assert "changed" in wait.proof([[1, 0], [b"appendfsync", b"everysec"]]).why


@pytest.mark.parametrize("states", ["0000000", "1100011", "0111001", "1011100"])
def test_an_fsync_that_began_and_ended_after_the_write_is_a_proof(states: str) -> None:
    wait = Wait(DISK, "everysec")
    assert len(observed(states)) == wait.due
    assert wait.proof(observed(states)) == (1, "")


@pytest.mark.parametrize("states", ["1110000", "0001111", "0000101", "0001011"])
def test_an_fsync_that_may_have_begun_before_the_write_is_no_proof(states: str) -> None:
    assert "disk of the server is slow" in Wait(DISK).proof(observed(states)).why


def test_an_fsync_is_no_proof_where_the_server_confirms_none() -> None:
    assert "does not have it" in Wait(DISK).proof(observed("0000000", confirmed=0)).why


def test_a_file_that_cannot_be_written_is_no_proof() -> None:
    replies = observed("0000000")
    replies[12] = IDLE.replace(b"ok", b"err")
    assert "cannot write" in Wait(DISK).proof(replies).why


@pytest.mark.parametrize("wait", [Wait(TWO), Wait(DISK), Wait(DISK, "always")])
def test_an_error_is_no_proof(wait: Wait) -> None:
    replies = [hiredis.ReplyError("ERR not now")] * wait.due
    assert wait.proof(replies) == (0, "ERR not now")
