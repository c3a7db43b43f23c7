"""The foreign ``rsmqctl`` and ours, on queues that they share with libraries."""

from __future__ import annotations

from itertools import product

import pytest

from tests.peers import fixtures
from tests.peers.driver import PeerError
from tests.peers.fixtures import COMMANDS, FOREIGN, OURS, Peers

pytestmark = pytest.mark.interop

drivers, peers = fixtures.both

QUEUE = "orders"
UNKNOWN_ID = "k" * 32
# One of the two is ours: a process for each operation makes these tests the slowest.
PAIRS = [*product(["rsmqctl"], OURS), *product(["ours-rsmqctl"], FOREIGN)]
TEXT = "ñandú \U0001f680".encode()


@pytest.mark.parametrize(("command", "library"), PAIRS)
def test_a_command_and_a_library_share_a_queue(peers: Peers, command: str, library: str) -> None:
    ctl, lib = peers.command(command), peers.get(library)
    ctl.create(QUEUE, vt=20, delay=0, maxsize=2048)
    assert lib.names() == [QUEUE]
    attributes = lib.attributes(QUEUE)
    assert (attributes["vt"], attributes["delay"], attributes["maxsize"]) == (20, 0, 2048)

    id = lib.send(QUEUE, TEXT)
    message = ctl.receive(QUEUE)
    assert message is not None
    assert (message.id, message.body, message.rc) == (id, TEXT, 1)
    assert lib.hide(QUEUE, id, 0)
    again = lib.receive(QUEUE)
    assert again is not None
    assert (again.rc, again.fr) == (2, message.fr)
    assert ctl.hide(QUEUE, id, 0)
    assert ctl.delete(QUEUE, id)
    assert not lib.delete(QUEUE, id)

    id = ctl.send(QUEUE, TEXT)
    popped = lib.pop(QUEUE)
    assert popped is not None
    assert (popped.id, popped.body) == (id, TEXT)
    lib.drop(QUEUE)
    assert ctl.names() == []


def test_both_commands_print_the_same(peers: Peers) -> None:
    theirs, ours, node = peers.command("rsmqctl"), peers.command("ours-rsmqctl"), peers.get("node")
    node.create(QUEUE, vt=20, delay=0, maxsize=2048)
    node.send(QUEUE, b"one")
    node.receive(QUEUE)
    node.send(QUEUE, b"later", delay=100)
    assert ours.names() == theirs.names() == [QUEUE]
    assert list(ours.attributes(QUEUE).items()) == list(theirs.attributes(QUEUE).items())


@pytest.mark.parametrize("first", COMMANDS)
def test_one_command_takes_over_from_the_other(peers: Peers, first: str) -> None:
    (other,) = set(COMMANDS) - {first}
    a, b = peers.command(first), peers.command(other)
    a.create(QUEUE)
    with pytest.raises(PeerError, match="queueExists"):
        b.create(QUEUE)
    id = b.send(QUEUE, TEXT, delay=100)
    assert a.pop(QUEUE) is None
    assert a.hide(QUEUE, id, 0)
    message = a.pop(QUEUE)
    assert message is not None
    assert (message.id, message.body) == (id, TEXT)
    b.drop(QUEUE)
    with pytest.raises(PeerError, match="queueNotFound"):
        a.attributes(QUEUE)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_on_an_empty_or_missing_queue_finds_nothing(peers: Peers, command: str) -> None:
    ctl = peers.command(command)
    for mistake in (
        lambda: ctl.drop(QUEUE),
        lambda: ctl.attributes(QUEUE),
        lambda: ctl.send(QUEUE, b"one"),
        lambda: ctl.receive(QUEUE),
        lambda: ctl.pop(QUEUE),
    ):
        with pytest.raises(PeerError, match="queueNotFound"):
            mistake()
    peers.get("pyrsmq").create(QUEUE)
    assert ctl.receive(QUEUE) is None
    assert not ctl.delete(QUEUE, UNKNOWN_ID)
    assert not ctl.hide(QUEUE, UNKNOWN_ID, 5)


def test_our_command_keeps_the_delay_of_the_queue(peers: Peers) -> None:
    ctl, node = peers.command("ours-rsmqctl"), peers.get("node")
    node.create(QUEUE, delay=100)
    ctl.send(QUEUE, b"later")
    assert node.receive(QUEUE) is None
    assert node.attributes(QUEUE)["hiddenmsgs"] == 1
