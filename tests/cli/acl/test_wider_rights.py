"""The least rights of operators and pipelines: enough for all that they do, and not for more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from pyspark.sql import SparkSession

import tambomq
from tambomq.cli.acl.rights import PROTOCOLS_OF, Protocol, Role, rights_of
from tambomq.cli.main import tambo
from tests import sparking
from tests.cli.acl import operator_work, pipeline_work
from tests.cli.acl.test_rights import DATABASE, OF_ADMIN, QUEUE, admin_of, is_redis8, log_in
from tests.cli.transcript import call
from tests.servers import Server
from tests.servers.kinds import FIRST, binary, kinds

SOURCES = Path(tambomq.__file__).parent
CALLED = re.compile(r"call\(\s*'([A-Z]+)'")
OPERATORS = {"rsmq": operator_work.rsmq_operator, "chasqui": operator_work.chasqui_operator}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    sparking.longer(items, Path(__file__).parent)


@pytest.fixture(params=kinds())
def own(request: pytest.FixtureRequest) -> Iterator[Server]:
    """A server of its own: rights and counts are those of the whole server."""
    with Server(binary(request.param)) as server:
        yield server


@pytest.fixture
def plain() -> Iterator[Server]:
    """A server of its own, of the kind that tests run on."""
    with Server(binary(FIRST)) as server:
        yield server


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make commands keep their records in a directory of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def in_scripts(protocol: str) -> set[str]:
    """Return the commands that scripts of the protocol call, and those of all protocols."""
    folders = [SOURCES / name for name in (protocol, "journal", "bulk")]
    texts = (path.read_text() for folder in folders for path in folder.rglob("*.lua"))
    return {name.lower() for text in texts for name in CALLED.findall(text)}


def check(server: Server, role: Role, protocol: Protocol) -> None:
    """Nothing was refused, nothing else was called, and each right is used or in a script."""
    rights = set(rights_of(role, (protocol,)).commands)
    with admin_of(server) as admin:
        assert admin.acl_log() == []
        called = {key.removeprefix("cmdstat_") for key in admin.info("commandstats")}
    assert called - OF_ADMIN - {"auth"} <= rights | {"info"}
    if not is_redis8(server):
        unused = {name.partition("|")[0] for name in rights - called}
        assert unused - in_scripts(protocol) == set()


@pytest.mark.parametrize("protocol", PROTOCOLS_OF["operator"])
def test_an_operator_does_all_its_work_with_its_rights(own: Server, protocol: Protocol) -> None:
    url = f"{own.url}/{DATABASE}"
    if protocol == "chasqui":
        operator_work.fill(url, QUEUE)
    rights = rights_of("operator", (protocol,), (QUEUE,))
    url = log_in(own, "till", rights.rule("till"))
    with admin_of(own) as admin:
        admin.script_flush()
        admin.config_resetstat()
    OPERATORS[protocol](url, QUEUE)
    check(own, "operator", protocol)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", PROTOCOLS_OF["pipeline"])
def test_a_pipeline_does_all_its_work_with_its_rights(
    plain: Server, protocol: Protocol, spark: SparkSession, tmp_path: Path
) -> None:
    pipeline_work.fill(f"{plain.url}/{DATABASE}", protocol, QUEUE)
    rights = rights_of("pipeline", (protocol,), (f"{QUEUE}*",))
    url = log_in(plain, "lake", rights.rule("lake"))
    with admin_of(plain) as admin:
        admin.script_flush()
        admin.config_resetstat()
    pipeline_work.pipeline(spark, url, protocol, QUEUE, tmp_path)
    check(plain, "pipeline", protocol)


@pytest.mark.parametrize("role", ["operator", "pipeline"])
def test_operators_and_pipelines_cannot_administer_or_touch_other_keys(
    plain: Server, role: Role
) -> None:
    url = log_in(plain, "till", rights_of(role, queues=(QUEUE,)).rule("till"))
    with admin_of(plain) as admin:
        admin.set("other", "kept")
        admin.hset("rsmq:secrets:Q", "vt", 30)
    with redis.Redis.from_url(url) as user:
        for words in (
            ("CONFIG", "GET", "requirepass"),
            ("FLUSHALL",),
            ("ACL", "LIST"),
            ("KEYS", "*"),
            ("SHUTDOWN",),
            ("GET", "other"),
            ("HGET", "rsmq:secrets:Q", "vt"),
            ("DEL", "QUEUE_other"),
            ("XLEN", "{tambo:rsmq:secrets}:journal"),
        ):
            with pytest.raises(redis.exceptions.NoPermissionError):
                user.execute_command(*words)


def test_a_protocol_that_does_not_ask_redis_has_no_clients_there() -> None:
    done = call(tambo, "tambo", "acl", "show", "producer", "--protocol", "gomq", url="")
    assert done.code != 0
    assert "rsmq or chasqui for a producer, not 'gomq'" in done.err
