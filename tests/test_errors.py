"""The texts and attributes of errors. A house rule compares the drawn tree with the real one."""

from __future__ import annotations

import pickle

import pytest

from tambomq import errors


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errors.InvalidFormat("queue name", "a b", "no spaces"), "queue name 'a b' is not valid"),
        (errors.InvalidValue("vt", -1, "0 or more"), "vt must be 0 or more, not -1"),
        (errors.InvalidBody(7), "a body is str or bytes, not int"),
        (errors.NothingToSet(), "give at least one of vt, delay and maxsize"),
        (errors.QueueNotFound("orders"), "queue 'orders' does not exist"),
        (errors.QueueExists("orders"), "queue 'orders' already exists"),
        (errors.MessageTooLong("orders", 9, 8), "a message of 9 bytes exceeds the 8"),
        (errors.QueueCorrupt("orders", "no vt"), "queue 'orders' is damaged: no vt"),
        (
            errors.BatchIncomplete("orders", ["a", None, None]),
            "1 of 3 messages reached queue 'orders'",
        ),
        (errors.InvalidPayload(1j, "why"), "a payload of type complex cannot be encoded: why"),
        (errors.QueueFull("orders", 9), "queue 'orders' holds 9 jobs and takes no more"),
        (errors.QueueBusy("orders", 2), "2 jobs of queue 'orders' are"),
        (errors.JobBusy("orders", "j1", "c-1"), "job 'j1' of queue 'orders' is running in worker"),
        (errors.ForeignLeader("orders", "c-1"), "queue 'orders' is led by 'c-1', another engine"),
        (errors.JobFailed("orders", "j1", "x"), "job 'j1' of queue 'orders' is dead: x"),
        (errors.JobCancelled("orders", "j1", "x"), "job 'j1' of queue 'orders' was cancelled: x"),
        (
            errors.LeaseTaken("orders", "l", "process 7"),
            "lease 'l' on queue 'orders' is held by process 7, which is alive: stop that query",
        ),
        (
            errors.LeaseLost("orders", "l", "it was released"),
            "lease 'l' on queue 'orders' is lost: it was released; this query changes nothing",
        ),
        (
            errors.BrokerUnavailable("127.0.0.1:8000", "refused"),
            "no server at 127.0.0.1:8000: refused",
        ),
        (errors.BrokerRefused("Publish", "INTERNAL", "why"), "Publish: INTERNAL: why"),
        (errors.ComponentFailed("gomq", "port taken"), "gomq cannot be served: port taken"),
        (errors.WrongType(("a", "b")), "one of the keys a, b holds a value of another type"),
        (errors.PortTaken("127.0.0.1", 6379), "127.0.0.1:6379 is taken"),
        (errors.DataDirBusy("data", "process 7"), "data is in use by process 7"),
    ],
)
def test_an_error_says_what_happened_to_what(error: errors.TamboError, says: str) -> None:
    assert says in str(error)
    # Pools of processes hand errors on.
    copied = pickle.loads(pickle.dumps(error))  # noqa: S301  (just made)
    assert (type(copied), str(copied)) == (type(error), str(error))
    assert vars(copied).keys() == vars(error).keys()


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InvalidFormat("queue name", "a b", "no spaces"), "invalidFormat"),
        (errors.InvalidFormat("queue name", "", "not empty"), "missingParameter"),
        (errors.InvalidValue("vt", -1, "0 or more"), "invalidValue"),
        (errors.InvalidBody(7), "messageNotString"),
        (errors.NothingToSet(), "noAttributeSupplied"),
        (errors.QueueNotFound("orders"), "queueNotFound"),
        (errors.QueueExists("orders"), "queueExists"),
        (errors.MessageTooLong("orders", 9, 8), "messageTooLong"),
        (errors.StoreFull(""), ""),
    ],
)
def test_an_error_of_the_rsmq_specification_has_its_name(
    error: errors.TamboError, code: str
) -> None:
    assert error.code == code


def test_a_lost_reply_is_an_unavailable_store() -> None:
    assert issubclass(errors.ReplyLost, errors.StoreUnavailable)


def test_a_full_store_is_not_an_unavailable_one() -> None:
    assert not issubclass(errors.StoreFull, errors.StoreUnavailable)
    assert not issubclass(errors.StoreRefused, errors.StoreUnavailable)


def test_errors_of_jobs_carry_their_nouns() -> None:
    full, busy = errors.QueueFull("orders", 9), errors.QueueBusy("orders", 2)
    led, dead = errors.ForeignLeader("orders", "c-1"), errors.JobFailed("orders", "j1", "x")
    assert {error.queue for error in (full, busy, led, dead)} == {"orders"}
    assert (full.cap, busy.active, led.holder, dead.id, dead.reason) == (9, 2, "c-1", "j1", "x")


def test_errors_of_streams_carry_their_nouns() -> None:
    taken = errors.LeaseTaken("orders", "l", "process 7")
    lost = errors.LeaseLost("orders", "l", "it was released")
    assert (taken.queue, taken.lease, taken.holder) == ("orders", "l", "process 7")
    assert (lost.queue, lost.lease) == ("orders", "l")
    assert isinstance(errors.EntriesLost("orders", "why"), errors.QueueError)


def test_a_payload_that_cannot_be_written_is_the_callers_fault() -> None:
    error = errors.InvalidPayload(object(), TypeError("no"))
    assert isinstance(error, errors.LocalProtocolError)
    assert isinstance(error, ValueError)
    assert error.code == ""


def test_a_handler_may_say_that_a_job_is_dead_in_two_ways() -> None:
    assert issubclass(errors.UnrecoverableError, errors.Reject)
    # As in the engine's package, where users may catch it so.
    assert issubclass(errors.UnrecoverableError, RuntimeError)
    assert str(errors.UnrecoverableError("no such user")) == "no such user"


def test_errors_of_brokers_carry_their_nouns() -> None:
    unavailable = errors.BrokerUnavailable("127.0.0.1:8000", OSError("refused"))
    refused = errors.BrokerRefused("Publish", "UNAUTHENTICATED", "a token is needed")
    assert unavailable.address == "127.0.0.1:8000"
    assert (refused.call, refused.status) == ("Publish", "UNAUTHENTICATED")
    assert refused.details == "a token is needed"
    assert errors.ComponentFailed("gomq", "why").component == "gomq"
    assert not isinstance(unavailable, errors.StoreError)
