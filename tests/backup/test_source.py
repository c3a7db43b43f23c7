from __future__ import annotations

import os
from pathlib import Path

import pytest

from tambomq.backup.source import embedded_source, external_source, refuse_foreign
from tambomq.embedded.server import Embedded
from tambomq.errors import BackupError, StoreUnavailable
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.serve.processes import ask
from tests.servers.cluster import Cluster

GET = Call("GET", ("name",), (), bytes, repeatable=True)


def read(data_dir: Path) -> bytes:
    with embedded_source(data_dir) as source:
        store = Store(source)
        try:
            return store.run(GET)
        finally:
            store.close()


@pytest.mark.parametrize("name", ["data", "long name " * 12])
def test_server_is_found_whether_it_runs_or_not(tmp_path: Path, name: str) -> None:
    """Paths of sockets are short: a directory with a long name has a socket all the same."""
    data_dir = tmp_path / name
    with Embedded(data_dir, port=0, auth=True) as server:
        ask(server.login_url, "SET", "name", "value")
        assert read(data_dir) == b"value"
    assert read(data_dir) == b"value"
    with Embedded(data_dir, port=0) as server:
        assert ask(server.url, "GET", "name") == b"value"


def test_server_that_is_started_for_a_backup_has_no_port(tmp_path: Path) -> None:
    with Embedded(tmp_path, private=True) as server:
        assert server.port == 0
        assert (tmp_path / "valkey.sock").exists()


def test_directory_without_data_has_nothing_to_back_up(tmp_path: Path) -> None:
    with pytest.raises(BackupError, match="there is no data"), embedded_source(tmp_path / "none"):
        pass
    assert not (tmp_path / "none").exists()


def test_directory_of_another_user_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(BackupError, match="run this as that user"):
        refuse_foreign(tmp_path)


def test_cluster_is_refused(cluster: Cluster) -> None:
    with pytest.raises(BackupError, match="is a cluster"):
        external_source(cluster.nodes[0].url)


def test_server_that_is_not_there_is_unavailable() -> None:
    with pytest.raises(StoreUnavailable):
        external_source("redis://127.0.0.1:1")
