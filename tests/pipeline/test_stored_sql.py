"""SQL that is found in Redis is run only if its reader wrote it, and reaches only its row."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from pyspark.sql import SparkSession

from tambomq.chasqui.ops import Policy
from tambomq.cli import pipeline_redrive
from tambomq.cli.main import tambo
from tambomq.errors import RemoteProtocolError, SettingsError
from tambomq.pipeline import picks, redrive, sql_guard
from tambomq.pipeline.address import Address
from tambomq.pipeline.grave_chasqui import ChasquiGrave
from tambomq.pipeline.grave_rsmq import RsmqGrave
from tambomq.pipeline.issued import KEEP_S, Issued, default_path
from tambomq.pipeline.redrive import Order
from tambomq.rsmq.keys import Keys
from tambomq.store.redrives import Redrive
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.pipeline.dying_letters import bury, dead
from tests.servers import Server

EVIL = "reflect('java.lang.System', 'load', 'evil.so') IS NULL"
QUEUE = Address("chasqui", "orders")


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def grave(store: Store, server: Server) -> ChasquiGrave:
    return ChasquiGrave(store, server.url, "orders", Policy())


def told(**words: Any) -> Redrive:
    fields: dict[str, Any] = {"id": "r1", "where": "name = 'email'", "until": "9999999999999-0"}
    return Redrive(**{**fields, **words})


def not_started() -> Any:
    pytest.fail("Spark was started")


# ── whose words ──────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"where": EVIL}, "--where \"reflect('java.lang.System', 'load', 'evil.so') IS NULL\""),
        ({"where": "", "rewrite": "upper(value)"}, "--set 'payload = upper(value)'"),
    ],
)
def test_sql_of_others_is_shown_and_not_run(
    grave: ChasquiGrave, db: redis.Redis, words: dict[str, str], said: str
) -> None:
    bury(db, 1)
    grave.begin(told(**words))
    for issued in (None, Issued()):
        with pytest.raises(SettingsError) as fault:
            redrive.plan(grave, not_started, Order(id="r1"), issued)
        assert said in str(fault.value)
        assert "give the same options beside --id r1" in str(fault.value)
    assert len(dead(db)) == 1


def test_who_gives_the_same_words_goes_on(
    grave: ChasquiGrave, monkeypatch: pytest.MonkeyPatch
) -> None:
    grave.begin(told(rewrite="value"))
    monkeypatch.setattr(picks, "chosen", lambda *_: [])
    where = "name = 'email'"
    for order in (Order(id="r1"), Order(id="r1", where=where), Order(id="r1", rewrite="value")):
        with pytest.raises(SettingsError, match="others may have written"):
            redrive.plan(grave, lambda: None, order)
    both = Order(id="r1", where=where, rewrite="value")
    assert redrive.plan(grave, lambda: None, both).is_known


def test_who_has_begun_it_goes_on_and_not_with_other_words(
    grave: ChasquiGrave, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued, mine = Issued(), told()
    issued.note(QUEUE, mine)
    grave.begin(mine)
    monkeypatch.setattr(picks, "chosen", lambda *_: [])
    assert redrive.plan(grave, lambda: None, Order(id="r1"), issued).is_known
    (record,) = db.scan_iter("*redrive*r1")
    db.hset(record, "where", EVIL)
    with pytest.raises(SettingsError, match="others may have written"):
        redrive.plan(grave, not_started, Order(id="r1"), issued)


def test_a_redrive_without_sql_goes_on_for_anybody(
    grave: ChasquiGrave, monkeypatch: pytest.MonkeyPatch
) -> None:
    grave.begin(told(where=""))
    monkeypatch.setattr(picks, "chosen", lambda *_: [])
    assert redrive.plan(grave, lambda: None, Order(id="r1")).is_known


@pytest.mark.parametrize("until", ["1) OR (1=1", "1-0) OR (1=1", "", "x-1", "-1"])
def test_where_a_redrive_ends_is_no_sql(store: Store, grave: ChasquiGrave, until: str) -> None:
    for each in (grave, RsmqGrave(store, Keys(), "orders")):
        with pytest.raises(SettingsError, match="is damaged"):
            each.bound(until)


def test_a_redrive_that_somebody_has_damaged_hides_no_other(
    grave: ChasquiGrave, db: redis.Redis
) -> None:
    grave.begin(told())
    grave.begin(told(id="r2"))
    (record,) = db.scan_iter("*redrive*r1")
    db.hset(record, mapping={"selected": "many", b"\xff": b"\xff"})
    assert [each.id for each in grave.known()] == ["r2"]
    with pytest.raises(RemoteProtocolError, match="'r1' cannot be read"):
        grave.begin(told())


# ── what a user has begun ────────────────────────────────────────────────────


def test_what_was_begun_is_for_its_user_alone(tmp_path: Path) -> None:
    issued = Issued(tmp_path / "state" / "redrives")
    issued.note(QUEUE, told())
    (file,) = issued.path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(issued.path.stat().st_mode) == 0o700
    assert issued.knows(QUEUE, told())
    # How far it has come is no part of what was said.
    assert issued.knows(QUEUE, told(moved=7, state="stopped"))
    for other in (told(where="x"), told(rewrite="x"), told(id="r2")):
        assert not issued.knows(QUEUE, other)
    assert not issued.knows(Address("chasqui", "others"), told())


def test_a_directory_that_others_may_write_into_proves_nothing(tmp_path: Path) -> None:
    issued = Issued(tmp_path / "redrives")
    issued.note(QUEUE, told())
    issued.path.chmod(0o777)
    assert not issued.knows(QUEUE, told())


def test_what_was_begun_is_forgotten_after_a_month(tmp_path: Path) -> None:
    issued = Issued(tmp_path / "redrives")
    issued.note(QUEUE, told())
    (file,) = issued.path.iterdir()
    then = time.time() - KEEP_S - 60
    os.utime(file, (then, then))
    issued.note(QUEUE, told(id="r2"))
    assert not issued.knows(QUEUE, told())
    assert issued.knows(QUEUE, told(id="r2"))


def test_the_record_is_in_the_directory_of_states(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert default_path() == tmp_path / "state" / "tambomq" / "redrives"
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert default_path() == tmp_path / ".local" / "state" / "tambomq" / "redrives"


# ── what SQL may reach ───────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (EVIL, "reflect may not be used here"),
        ("`ReFlect`/* it is */ ('a', 'b') = ''", "reflect may not"),
        ("JAVA_METHOD('a', 'b') = ''", "java_method may not"),
        ("try_reflect('a', 'b') = ''", "try_reflect may not"),
        ("system.builtin.reflect('a', 'b') = ''", r"system\.builtin\.reflect may not"),
        ("IDENTIFIER('ref' || 'lect')('a', 'b') = ''", r"IDENTIFIER\(\) may not"),
        ("id = '' OR exists(array(1), x -> reflect('a', 'b') = x)", "reflect may not"),
        ("CASE WHEN true THEN CAST(reflect('a', 'b') AS BOOLEAN) END", "reflect may not"),
        ("id = '') OR (reflect('a', 'b') = ''", "reflect may not"),
        ("id LIKE ANY ('a', reflect('a', 'b')) -- ok", "reflect may not"),
        ("named_struct('a', reflect('a', 'b')).a = ''", "reflect may not"),
        ("EXISTS (SELECT * FROM text.`/etc/passwd`)", "a subquery may not"),
        ("id IN (SELECT value FROM text.`/etc/passwd`)", "a subquery may not"),
        ("id = (SELECT max(value) FROM text.`/etc/passwd`)", "a subquery may not"),
        ("from_avro(payload, '', map('avroSchemaUrl', 'http://x')) IS NULL", "from_avro may not"),
        ("from_protobuf(payload, 'x', '/etc/passwd') IS NULL", "from_protobuf may not"),
        ("xpath_string(value, 'a') = ''", "xpath_string may not"),
    ],
)
def test_sql_that_reaches_beyond_its_row_is_refused_before_spark_looks_at_it(
    spark: SparkSession,
    grave: ChasquiGrave,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    monkeypatch.setattr(ChasquiGrave, "frame", lambda *_: pytest.fail("it was analysed"))
    with pytest.raises(SettingsError, match=f"^--where: {said}"):
        redrive.plan(grave, lambda: spark, Order(where=text))
    if ")" not in text.partition("(")[0]:
        with pytest.raises(SettingsError, match=f"^--set: {said}"):
            redrive.plan(grave, lambda: spark, Order(rewrite=text.removesuffix(" -- ok")))


@pytest.mark.parametrize(
    "text",
    [
        "reason = 'reflect' AND name RLIKE '^e.*' OR `name` IN ('reflect(x)', 'b')",
        "get_json_object(value, '$.a') = 1 AND died_at > current_timestamp() - INTERVAL 1 HOUR",
        "CASE WHEN attempt > 1 THEN true ELSE size(filter(array(1, 2), x -> x > 1)) = 1 END",
        "length(payload) BETWEEN 1 AND 10 -- reflect('a')",
    ],
)
def test_sql_about_the_row_is_not_refused(spark: SparkSession, text: str) -> None:
    sql_guard.check(spark, f"({text}\n)", "--where")


def test_a_session_that_cannot_be_asked_is_refused() -> None:
    with pytest.raises(SettingsError, match="cannot be checked through Spark Connect"):
        sql_guard.check(object(), "true", "--where")


# ── the command ──────────────────────────────────────────────────────────────


def test_the_command_notes_what_it_begins_and_refuses_what_others_wrote(
    grave: ChasquiGrave, server: Server, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    dlq = partial(call, tambo, "tambo", "pipeline", "dlq", url=server.url)
    bury(db, 5)
    letters = [picks.Pick(each.id) for each in grave.letters()]
    monkeypatch.setattr(pipeline_redrive, "open_spark", lambda *_: None)
    monkeypatch.setattr(picks, "chosen", lambda *_: letters)
    mine = ("redrive", "chasqui:orders", "--id", "mine")
    assert dlq(*mine, "--where", "name = 'email'", "--limit", "2").code == 0
    assert len(dead(db)) == 3
    assert dlq(*mine).code == 0
    assert dead(db) == []
    grave.begin(told(id="theirs", where=EVIL))
    monkeypatch.setattr(picks, "chosen", lambda *_: pytest.fail("it was run"))
    theirs = dlq("redrive", "chasqui:orders", "--id", "theirs", "--dry-run")
    assert theirs.code == 2
    assert "others may have written that: --where" in theirs.err
    assert theirs.err.count("\n") == 1
