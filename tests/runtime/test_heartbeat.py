"""Heartbeats renew leases from outside the worker's loop, until they are released or lost."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from io import BytesIO

import msgspec
import pytest
import redis

from tambomq.errors import SettingsError
from tambomq.runtime.heartbeat import (
    Heartbeat,
    ProcessHeartbeat,
    ThreadHeartbeat,
    heartbeat,
    message,
    messages,
)
from tambomq.runtime.renewal import drop
from tambomq.store.call import Call, Plan, only
from tambomq.store.endpoint import Endpoint, endpoint
from tests.servers import Server, eventually
from tests.store.proxy import Proxy
from tests.store.twins import script

# Hash `owners` has the receipt that counts for each id, hash `beats` how often it was renewed.
RENEW = script("""
local lost = {}
for i = 1, #ARGV, 2 do
  if redis.call('HGET', KEYS[1], ARGV[i]) == ARGV[i + 1] then
    redis.call('HINCRBY', KEYS[2], ARGV[i], 1)
  else
    lost[#lost + 1] = ARGV[i]
  end
end
return lost
""")

ODD_IDS = ["1700000000000-0", "two words", "two\nlines", '"', "+", "-é", "\0", ""]

OnLost = Callable[[list[str]], None]
Keep = Callable[..., Heartbeat]


class HashLease(msgspec.Struct, frozen=True):
    """Holds what `owners` says it does."""

    endpoint: Endpoint
    every_s: float = 0.05
    queue: str = "owners"

    def renew(self, held: dict[str, str]) -> Plan[list[str]]:
        args = [text for pair in held.items() for text in pair]
        return only(Call(RENEW, ("owners", "beats"), tuple(args), _texts, repeatable=True))


def _texts(reply: list[bytes]) -> list[str]:
    return [text.decode() for text in reply]


@pytest.fixture(params=["thread", "process"])
def keep(request: pytest.FixtureRequest, server: Server) -> Iterator[Keep]:
    """A function that starts a heartbeat of the kind in turn; it is closed after the test."""
    started: list[Heartbeat] = []

    def start(on_lost: OnLost | None = None) -> Heartbeat:
        started.append(heartbeat(request.param, HashLease(endpoint(server.url)), on_lost))
        return started[-1]

    yield start
    for beat in started:
        beat.close()


def beats(db: redis.Redis, id: str) -> int:
    return int(db.hget("beats", id) or 0)


def renewed(db: redis.Redis, *ids: str, times: int = 2) -> None:
    """Return when each of *ids* has been renewed *times* more."""
    for id in ids:
        minimum = beats(db, id) + times
        eventually(lambda id=id, minimum=minimum: beats(db, id) >= minimum, within_s=20)  # type: ignore[misc]


def own(db: redis.Redis, receipts: dict[str, str]) -> dict[str, str]:
    """Make *receipts*, by id, the valid ones."""
    for id, receipt in receipts.items():
        db.hset("owners", id, receipt)
    return receipts


def test_held_leases_are_renewed_whatever_their_ids(db: redis.Redis, keep: Keep) -> None:
    keep().hold(own(db, {id: f"receipt of {id}" for id in ODD_IDS}))
    renewed(db, *ODD_IDS)


def test_released_leases_are_not_renewed(db: redis.Redis, keep: Keep) -> None:
    own(db, {"kept": "1", "gone": "1", "later": "1"})
    beat = keep()
    beat.hold({"kept": "1", "gone": "1"})
    renewed(db, "kept", "gone")
    beat.let_go(["gone", "never held"])
    beat.hold({"later": "1"})
    # Whoever has heard of the last has heard of the one before.
    renewed(db, "later")
    so_far = beats(db, "gone")
    renewed(db, "kept", "later")
    assert beats(db, "gone") == so_far


def test_a_lease_held_by_another_worker_is_reported_lost_once(db: redis.Redis, keep: Keep) -> None:
    own(db, {"ours": "1", "theirs": "2"})
    message: list[list[str]] = []
    beat = keep(message.append)
    beat.hold({"ours": "1", "theirs": "1"})
    eventually(lambda: message, within_s=20)
    own(db, {"theirs": "1"})
    renewed(db, "ours")
    assert message == [["theirs"]]
    assert beats(db, "theirs") == 0


def test_a_lost_lease_can_be_held_again(db: redis.Redis, keep: Keep) -> None:
    own(db, {"job": "2"})
    message: list[list[str]] = []
    beat = keep(message.append)
    beat.hold({"job": "1"})
    eventually(lambda: message, within_s=20)
    beat.hold({"job": "2"})
    renewed(db, "job")
    assert message == [["job"]]


def test_losses_need_no_callback(db: redis.Redis, keep: Keep) -> None:
    own(db, {"ours": "1"})
    beat = keep()
    beat.hold({"ours": "1", "theirs": "1"})
    renewed(db, "ours", times=4)


def test_a_closed_heartbeat_leaves_no_thread(db: redis.Redis, keep: Keep) -> None:
    beat = keep(lambda ids: None)
    beat.hold(own(db, {"job": "1"}))
    renewed(db, "job")
    beat.close()
    assert "tambomq-heartbeat" not in {thread.name for thread in threading.enumerate()}


def test_a_lease_is_dropped_only_if_its_receipt_is_still_the_same() -> None:
    held = {"lost": "1", "anew": "2", "other": "1"}
    assert drop(held, {"lost": "1", "anew": "1", "let go": "1"}) == {"lost": "1"}
    assert held == {"anew": "2", "other": "1"}


def test_a_message_cut_short_does_not_count() -> None:
    whole = message({"two\nlines": "1"})
    for cut in range(len(whole)):
        assert list(messages(BytesIO(whole + whole[:cut]))) == [{"two\nlines": "1"}]


def test_held_leases_can_be_changed_while_the_thread_renews(
    server: Server, db: redis.Redis
) -> None:
    own(db, {"job": "1", "other": "1"})
    beat = ThreadHeartbeat(HashLease(endpoint(server.url)))
    try:
        beat.held["job"] = "1"
        renewed(db, "job")
        beat.hold({"other": "1"})
        assert beat.held.pop("job") == "1"
        assert beat.held == {"other": "1"}
    finally:
        beat.close()


def test_renewal_goes_on_when_the_server_is_back(
    private_server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    beat = ThreadHeartbeat(HashLease(endpoint(private_server.url)))
    with redis.Redis.from_url(private_server.url) as db:
        try:
            beat.hold(own(db, {"job": "1"}))
            renewed(db, "job")
            with caplog.at_level(logging.WARNING):
                private_server.kill()
                eventually(lambda: "cannot renew 1 leases of queue 'owners'" in caplog.text)
            private_server.restart()
            renewed(db, "job")
        finally:
            beat.close()


def test_renewal_goes_on_after_what_a_log_handler_raises(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: logging.LogRecord) -> bool:
        failed.append("logged")
        raise RuntimeError("a log filter of the user")

    failed = list[str]()
    for name in ("renewal", "heartbeat"):
        monkeypatch.setattr(logging.getLogger(f"tambomq.runtime.{name}"), "filters", [broken])
    with Proxy(server.port) as proxy:
        lease = HashLease(endpoint(proxy.url))
        thread, process = ThreadHeartbeat(lease), ProcessHeartbeat(lease)
        try:
            thread.hold(own(db, {"job": "1"}))
            process.hold(own(db, {"other": "1"}))
            renewed(db, "job", "other")
            os.kill(process._process.pid, signal.SIGKILL)
            proxy.silent = True
            eventually(lambda: len(failed) >= 2, within_s=20)
            proxy.silent = False
            proxy.hang_up()
            renewed(db, "job", "other")
        finally:
            thread.close()
            process.close()


def test_a_process_that_dies_is_replaced(server: Server, db: redis.Redis) -> None:
    own(db, {"first": "1", "second": "1", "theirs": "2"})
    message: list[list[str]] = []
    beat = ProcessHeartbeat(HashLease(endpoint(server.url)), message.append)
    try:
        beat.hold({"first": "1"})
        renewed(db, "first")
        for _ in range(2):
            # Nothing is taken or released meanwhile.
            os.kill(beat._process.pid, signal.SIGKILL)
            renewed(db, "first")
        beat.hold({"second": "1", "theirs": "1"})
        renewed(db, "first", "second")
        eventually(lambda: message == [["theirs"]])
    finally:
        beat.close()


def test_renewals_continue_while_a_dead_process_cannot_be_restarted(
    server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    beat = ProcessHeartbeat(HashLease(endpoint(server.url)))
    try:
        beat.hold(own(db, {"job": "1"}))
        renewed(db, "job")
        monkeypatch.setattr(beat, "_start", _no_memory)
        os.kill(beat._process.pid, signal.SIGKILL)
        renewed(db, "job", times=5)
        monkeypatch.undo()
        eventually(lambda: beat._process.poll() is None, within_s=20)
        renewed(db, "job")
    finally:
        beat.close()


def _no_memory() -> None:
    raise OSError("Cannot allocate memory")


def test_a_connection_that_goes_silent_is_given_up_for_another(
    db: redis.Redis, proxy: Proxy
) -> None:
    beat = ThreadHeartbeat(HashLease(endpoint(proxy.url)))
    try:
        beat.hold(own(db, {"job": "1"}))
        for _ in range(2):
            renewed(db, "job")
            proxy.stall()
        renewed(db, "job")
    finally:
        beat.close()


def test_a_renewal_waits_for_half_the_time_to_the_next() -> None:
    server = Endpoint().with_timeout(10 / 2)
    assert (server.connect_timeout_s, server.reply_timeout_s) == (5, 5)
    server = Endpoint().with_timeout(1 / 2)
    assert (server.connect_timeout_s, server.reply_timeout_s) == (0.5, 0.5)
    # To the kernel 0 means for ever.
    assert Endpoint().with_timeout(0).reply_timeout_s > 0
    assert Endpoint(reply_timeout_s=1, connect_timeout_s=1).with_timeout(60) == Endpoint(
        reply_timeout_s=1, connect_timeout_s=1
    )


@pytest.mark.parametrize("end", ["", "os._exit(0)"])
def test_the_process_ends_with_its_worker(server: Server, end: str) -> None:
    worker = f"""
import os
from tambomq.store.endpoint import endpoint
from tambomq.runtime.heartbeat import ProcessHeartbeat
from tests.runtime.test_heartbeat import HashLease
beat = ProcessHeartbeat(HashLease(endpoint({server.url!r})), len)
beat.hold({{"job": "1"}})
{end}
"""
    # Both write to the same stderr: it is at its end when both are.
    ended = subprocess.run(
        [sys.executable, "-c", worker], stderr=subprocess.PIPE, timeout=120, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_no_heartbeat_starts_neither_thread_nor_process() -> None:
    before = threading.active_count()
    beat = heartbeat(None, HashLease(Endpoint()))
    beat.hold({"job": "1"})
    beat.let_go(["job"])
    assert threading.active_count() == before
    beat.close()


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(SettingsError, match="'pigeon'"):
        heartbeat("pigeon", HashLease(Endpoint()))


def test_a_process_cannot_ask_a_credential_provider() -> None:
    lease = HashLease(Endpoint(credentials=lambda: ("", "secret")))
    with pytest.raises(SettingsError, match="credential provider"):
        heartbeat("process", lease)
