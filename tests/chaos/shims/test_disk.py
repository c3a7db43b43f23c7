"""A disk that fails: what a real server and a Python process notice, and how they recover."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.chaos.shims import preload
from tests.chaos.shims.disk import DiskFault
from tests.servers import Server, binaries, eventually

_EVERYSEC = ("--appendonly", "yes", "--appendfsync", "everysec")
_ALWAYS = ("--appendonly", "yes", "--appendfsync", "always")


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[DiskFault]:
    """A disk that is well."""
    if reason := preload.unavailable():
        pytest.skip(reason)
    with DiskFault(tmp_path / "control") as fault:
        yield fault


@pytest.fixture
def valkey(disk: DiskFault) -> Iterator[Server]:
    """A server whose append-only file is on that disk."""
    with Server(binaries.valkey(), *_EVERYSEC, environ=disk.environ) as server:
        disk.move_to(server.dir / "appendonlydir")
        yield server


def _refusal(db: redis.Redis) -> str:
    """What the server says to a write; nothing if it writes."""
    try:
        db.incr("written")
    except redis.RedisError as refused:
        return str(refused)
    return ""


def _has_recovered(db: redis.Redis) -> bool:
    """Whether the server writes again. A failed write it repeats by itself, a failed sync never."""
    if not _refusal(db):
        return True
    if not db.info("persistence")["aof_rewrite_in_progress"]:
        db.bgrewriteaof()
    return False


def test_a_server_refuses_writes_while_its_disk_is_full_and_writes_again_when_there_is_space(
    disk: DiskFault, valkey: Server
) -> None:
    with redis.Redis.from_url(valkey.url) as db:
        db.set("before", 1)
        disk.full()
        eventually(lambda: "No space left on device" in _refusal(db))
        assert db.get("before") == b"1"  # Reads go on.
        disk.well()
        eventually(lambda: _has_recovered(db))
        db.set("after", 1)
        eventually(lambda: db.info("persistence")["aof_pending_bio_fsync"] == 0)
        valkey.kill()
        valkey.restart()
        assert db.mget("before", "after") == [b"1", b"1"]


@pytest.mark.parametrize("break_it", [DiskFault.broken, DiskFault.unsynced])
def test_after_a_failed_sync_a_server_refuses_writes_until_its_file_is_rewritten(
    break_it: Callable[[DiskFault], None], disk: DiskFault, valkey: Server
) -> None:
    with redis.Redis.from_url(valkey.url) as db:
        db.set("unsynced yet", 1)
        break_it(disk)
        eventually(lambda: "Input/output error" in _refusal(db))
        disk.well()
        eventually(lambda: _has_recovered(db))


def test_a_server_takes_back_what_it_wrote_in_part(disk: DiskFault, valkey: Server) -> None:
    with redis.Redis.from_url(valkey.url) as db:
        disk.filling()
        eventually(lambda: "MISCONF" in _refusal(db))
        disk.well()
        eventually(lambda: _has_recovered(db))
        count = int(db.incr("written"))
        eventually(lambda: db.info("persistence")["aof_pending_bio_fsync"] == 0)
        valkey.kill()
        valkey.restart()
        assert int(db.incr("written")) == count + 1


def test_a_server_that_syncs_each_write_ends_when_its_disk_is_full(disk: DiskFault) -> None:
    with Server(binaries.valkey(), *_ALWAYS, environ=disk.environ) as server:
        disk.move_to(server.dir / "appendonlydir")
        with redis.Redis.from_url(server.url, retry=None) as db:
            db.set("confirmed", 1)
            disk.full()
            with pytest.raises(redis.ConnectionError):
                db.set("lost", 1)
            disk.well()
            server.restart()
            assert db.mget("confirmed", "lost") == [b"1", None]


def test_a_slow_disk_makes_a_server_wait_that_syncs_each_write(disk: DiskFault) -> None:
    with Server(binaries.valkey(), *_ALWAYS, environ=disk.environ) as server:
        disk.move_to(server.dir / "appendonlydir")
        with redis.Redis.from_url(server.url, socket_timeout=0.2, retry=None) as db:
            disk.slow(500)
            with pytest.raises(redis.TimeoutError):
                db.set("late", 1)
            disk.well()
            eventually(lambda: _get(server, "late") == b"1")


def _get(server: Server, key: str) -> object:
    with redis.Redis.from_url(server.url) as db:
        return db.get(key)


_WRITES = """
import os, sys
for line in sys.stdin:
    try:
        with open(line.strip(), "wb") as file:
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
        print(0, flush=True)
    except OSError as failed:
        print(failed.errno, flush=True)
"""


def test_a_python_process_notices_the_fault_in_one_directory_only(
    disk: DiskFault, tmp_path: Path
) -> None:
    lake, beside = tmp_path / "lake", tmp_path / "lake-beside"
    (lake / "day").mkdir(parents=True)
    beside.mkdir()
    disk.move_to(lake)
    process = subprocess.Popen(
        [sys.executable, "-c", _WRITES],
        env={**os.environ, **disk.environ},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdin
        assert process.stdout

        def error(path: Path) -> int:
            print(path, file=process.stdin, flush=True)
            return int(process.stdout.readline())  # type: ignore[union-attr]

        for switch, expected in (
            (disk.well, 0),
            (disk.full, errno.ENOSPC),
            (disk.broken, errno.EIO),
            (lambda: disk.slow(1), 0),
        ):
            switch()
            assert (error(lake / "day" / "file"), error(beside / "file")) == (expected, 0)
        process.stdin.close()


def test_the_disk_faults_do_not_affect_this_process(disk: DiskFault, tmp_path: Path) -> None:
    disk.move_to(tmp_path)
    disk.full()
    (tmp_path / "file").write_bytes(b"x")


def test_a_directory_that_does_not_fit_is_refused(disk: DiskFault, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="longer"):
        disk.move_to(tmp_path / ("x" * 4096))
