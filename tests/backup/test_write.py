from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import redis

from tambomq.backup.restore import restore_backup
from tambomq.backup.source import embedded_source
from tambomq.backup.write import target_path, write_backup
from tambomq.embedded.server import Embedded
from tambomq.errors import BackupError
from tambomq.rsmq import Rsmq
from tambomq.store.endpoint import endpoint
from tests.backup.filled import (
    MESSAGES,
    backed_up,
    bodies,
    fill,
    filled,
    message_ids,
    names_in,
    opened,
)
from tests.servers import Server, eventually

KILLED = """
import os, signal, sys
from pathlib import Path
from tests.backup.filled import backed_up
from tambomq.backup import write

if sys.argv[3] == "copying":
    from tambomq.store.endpoint import Endpoint
    def pieces(source):
        yield b"REDIS0011"
        os.kill(os.getpid(), signal.SIGKILL)
    write.stream_snapshot = pieces
else:
    write.loaded_contents = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)
backed_up(Path(sys.argv[1]), Path(sys.argv[2]))
"""
SMALL_FILES = """
import resource, sys
from pathlib import Path
from tests.backup.filled import backed_up
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
from tambomq.errors import BackupError
try:
    backed_up(Path(sys.argv[1]), Path(sys.argv[2]))
except BackupError as error:
    print(error)
"""


def run(script: str, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, args)], capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled(tmp_path_factory.mktemp("data"))


def test_backup_says_what_is_in_it(data: Path, tmp_path: Path) -> None:
    done = backed_up(data, tmp_path / "a.rdb")
    contents = done.manifest.contents
    assert contents is not None
    assert done.manifest.server.startswith("valkey ")
    assert (contents.protocols["rsmq"].queues, contents.protocols["rsmq"].messages) == (1, MESSAGES)
    assert contents.protocols["chasqui"].messages == 2
    assert done.path.stat().st_mode & 0o777 == 0o600
    assert names_in(tmp_path) == ["a.rdb"]


def test_unverified_backup_can_be_restored(data: Path, tmp_path: Path) -> None:
    assert backed_up(data, tmp_path / "a.rdb", verify=False).manifest.contents is None
    restore_backup(tmp_path / "a.rdb", tmp_path / "new")
    assert len(bodies(tmp_path / "new")) == MESSAGES


def test_everything_confirmed_before_it_began_is_in_it_and_nothing_by_half(tmp_path: Path) -> None:
    """Senders go on during the backup; what it has of them is whole messages."""
    sent: list[str] = []
    stopped = threading.Event()

    def send(url: str) -> None:
        with Rsmq(url) as rsmq:
            while not stopped.is_set():
                sent.append(rsmq.send_message("orders", f"order {len(sent)}"))

    with Embedded(tmp_path / "data", port=0) as server:
        with Rsmq(server.url) as rsmq:
            rsmq.create_queue("orders")
        sender = threading.Thread(target=send, args=(server.url,))
        sender.start()
        try:
            eventually(lambda: len(sent) >= 200, within_s=30)
            before = set(sent)
            backed_up(tmp_path / "data", tmp_path / "a.rdb")
            during = len(sent)
            eventually(lambda: len(sent) > during, within_s=30)
        finally:
            stopped.set()
            sender.join()
    restore_backup(tmp_path / "a.rdb", tmp_path / "new")
    with opened(tmp_path / "new") as client:
        ids = message_ids(client)
        assert before <= set(ids)
        assert all(client.hmget("rsmq:orders:Q", ids))
        assert int(client.hget("rsmq:orders:Q", "totalsent") or 0) == len(ids)


def test_existing_file_is_replaced_with_force_only(data: Path, tmp_path: Path) -> None:
    target = tmp_path / "a.rdb"
    target.write_text("precious")
    with pytest.raises(BackupError, match="exists: choose another name"):
        backed_up(data, target)
    assert target.read_text() == "precious"
    with embedded_source(data) as source:
        write_backup(source, target, version="1", force=True)
    assert target.read_bytes().startswith(b"REDIS")


def test_server_of_your_own_is_backed_up(private_server: Server, tmp_path: Path) -> None:
    with redis.Redis.from_url(private_server.url) as client:
        client.config_set("repl-diskless-sync-delay", 0)
    fill(private_server.url)
    done = write_backup(endpoint(private_server.url), tmp_path / "a.rdb", version="1")
    assert done.manifest.contents is not None
    assert done.manifest.contents.protocols["rsmq"].messages == MESSAGES


def test_user_without_the_right_to_copy_gets_the_reason(tmp_path: Path) -> None:
    refused = pytest.raises(BackupError, match="needs the right to SYNC")
    with Embedded(tmp_path / "data", port=0) as server, refused:
        write_backup(endpoint(server.url), tmp_path / "a.rdb", version="1")
    assert not (tmp_path / "a.rdb").exists()


@pytest.mark.parametrize("moment", ["copying", "verifying"])
def test_killed_backup_leaves_no_file_and_the_next_one_works(
    data: Path, tmp_path: Path, moment: str
) -> None:
    target = tmp_path / "a.rdb"
    assert run(KILLED, data, target, moment).returncode == -signal.SIGKILL
    assert not target.exists()
    backed_up(data, target)
    assert names_in(tmp_path) == ["a.rdb"]


def test_full_disk_is_an_error_and_leaves_nothing(data: Path, tmp_path: Path) -> None:
    done = run(SMALL_FILES, data, tmp_path / "a.rdb")
    assert "cannot write" in done.stdout, done
    assert "File too large" in done.stdout
    assert names_in(tmp_path) == []


def test_name_in_a_directory_is_the_time(tmp_path: Path) -> None:
    path = target_path(tmp_path)
    assert path.parent == tmp_path
    assert path.match("tambo-2*T*Z.rdb")
    assert target_path(tmp_path / "a.rdb") == tmp_path / "a.rdb"


def test_manifest_is_readable_at_the_end_of_the_file(data: Path, tmp_path: Path) -> None:
    done = backed_up(data, tmp_path / "a.rdb")
    text = done.path.read_bytes()[done.manifest.rdb_bytes : -24]
    assert json.loads(text)["tambo"] == "1.2.3"


@pytest.mark.slow
def test_large_data_is_backed_up_and_restored(tmp_path: Path) -> None:
    count, size = 3000, 100_000
    with opened(tmp_path / "data") as client:
        pipeline = client.pipeline(transaction=False)
        for number in range(count):
            pipeline.set(f"key {number}", os.urandom(size))
            if number % 100 == 0:
                pipeline.execute()
        pipeline.execute()
        done = backed_up(tmp_path / "data", tmp_path / "a.rdb")
    assert done.bytes > count * size
    restored = restore_backup(tmp_path / "a.rdb", tmp_path / "new")
    assert restored.contents.keys == count
