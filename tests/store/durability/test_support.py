"""Servers that cannot confirm a level: said before anything is sent."""

from __future__ import annotations

import pytest
import redis

from tambomq.errors import DurabilityUnsupported, NotDurable, StoreRefused
from tambomq.store.durability.sync import stores
from tambomq.store.sync import Store
from tests.servers import Server, binaries
from tests.servers.kinds import binary, kinds
from tests.store.durability.conftest import OpenDurable
from tests.store.twins import incr


def test_a_server_without_a_file_cannot_confirm_a_disk(
    server: Server, open_durable: OpenDurable, db: redis.Redis
) -> None:
    with pytest.raises(DurabilityUnsupported, match="set appendonly to yes there"):
        open_durable(server.url, "disk").run(incr())
    assert db.get("count") is None


@pytest.mark.parametrize("kind", kinds("redis7"))
def test_a_server_before_7_2_cannot_confirm_a_disk(kind: str, open_durable: OpenDurable) -> None:
    with Server(binary(kind), "--appendonly", "yes") as server:
        with pytest.raises(DurabilityUnsupported, match=r"no WAITAOF.*replicas:N or memory"):
            open_durable(server.url, "disk").run(incr())
        with pytest.raises(NotDurable, match="0 of 1 replicas"):
            open_durable(server.url, "replicas:1", timeout_s=0.1).run(incr())


def test_a_forbidden_wait_is_an_error_before_anything_is_sent(
    server: Server, open_durable: OpenDurable, db: redis.Redis
) -> None:
    db.acl_setuser(
        "sender", enabled=True, passwords=["+secret"], keys=["*"], commands=["+@all", "-wait"]
    )
    url = f"redis://sender:secret@127.0.0.1:{server.port}"
    try:
        with pytest.raises(StoreRefused, match="wait"):
            open_durable(url, "replicas:1").run(incr())
        assert db.get("count") is None
    finally:
        db.acl_deluser("sender")


def test_a_file_that_is_turned_off_later_confirms_nothing(open_durable: OpenDurable) -> None:
    with Server(binaries.valkey(), "--appendonly", "yes", "--appendfsync", "always") as server:
        store = open_durable(server.url, "disk")
        store.run(incr())
        with redis.Redis.from_url(server.url) as admin:
            admin.config_set("appendonly", "no")
        with pytest.raises(NotDurable, match="appendonly is disabled"):
            store.run(incr())
        with pytest.raises(DurabilityUnsupported):
            store.run(incr())


def test_without_the_right_to_read_the_configuration_the_wait_fits_all_servers(
    private_server: Server,
) -> None:
    with redis.Redis.from_url(private_server.url) as admin:
        admin.acl_setuser(
            "sender", enabled=True, passwords=["+s"], keys=["*"], commands=["+@all", "-config"]
        )
    store = stores(Store(f"redis://sender:s@127.0.0.1:{private_server.port}"), "disk").default
    assert store.run(incr()) == 1
    store.close()
