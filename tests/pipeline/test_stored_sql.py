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

from tambomq.bulk.redrives import Redrive
from tambomq.chasqui.ops.add import Policy
from tambomq.cli.main import tambo
from tambomq.cli.pipeline import redrive as pipeline_redrive
from tambomq.errors import RemoteProtocolError, SettingsError
from tambomq.pipeline import sql_guard
from tambomq.pipeline.address import Address
from tambomq.pipeline.dlq import redrive
from tambomq.pipeline.dlq import selection as selections
from tambomq.pipeline.dlq.chasqui import ChasquiDlq
from tambomq.pipeline.dlq.issued import KEEP_S, IssuedRedrives, default_path
from tambomq.pipeline.dlq.redrive import RedriveOptions
from tambomq.pipeline.dlq.rsmq import RsmqDlq
from tambomq.rsmq.keys import Keys
from tambomq.store.sync import Store
from tests.cli.transcript import call
from tests.pipeline.dying_letters import add_dead_letters, dead
from tests.servers import Server

EVIL = "reflect('java.lang.System', 'load', 'evil.so') IS NULL"
QUEUE = Address("chasqui", "orders")


@pytest.fixture
def store(server: Server) -> Iterator[Store]:
    opened = Store(server.url)
    yield opened
    opened.close()


@pytest.fixture
def dead_letters(store: Store, server: Server) -> ChasquiDlq:
    return ChasquiDlq(store, server.url, "orders", Policy())


def stored_redrive(**words: Any) -> Redrive:
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
    dead_letters: ChasquiDlq, db: redis.Redis, words: dict[str, str], said: str
) -> None:
    add_dead_letters(db, 1)
    dead_letters.begin(stored_redrive(**words))
    for issued in (None, IssuedRedrives()):
        with pytest.raises(SettingsError) as fault:
            redrive.plan(dead_letters, not_started, RedriveOptions(id="r1"), issued)
        assert said in str(fault.value)
        assert "repeat these options with --id r1" in str(fault.value)
    assert len(dead(db)) == 1


def test_a_redrive_is_resumed_with_the_same_arguments(
    dead_letters: ChasquiDlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters.begin(stored_redrive(rewrite="value"))
    monkeypatch.setattr(selections, "chosen", lambda *_: [])
    condition = "name = 'email'"
    for order in (
        RedriveOptions(id="r1"),
        RedriveOptions(id="r1", condition=condition),
        RedriveOptions(id="r1", rewrite="value"),
    ):
        with pytest.raises(SettingsError, match="which others can change"):
            redrive.plan(dead_letters, lambda: None, order)
    both = RedriveOptions(id="r1", condition=condition, rewrite="value")
    assert redrive.plan(dead_letters, lambda: None, both).is_known


def test_a_redrive_is_resumed_by_its_user_with_the_same_sql_only(
    dead_letters: ChasquiDlq, db: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    issued, mine = IssuedRedrives(), stored_redrive()
    issued.note(QUEUE, mine)
    dead_letters.begin(mine)
    monkeypatch.setattr(selections, "chosen", lambda *_: [])
    assert redrive.plan(dead_letters, lambda: None, RedriveOptions(id="r1"), issued).is_known
    (record,) = db.scan_iter("*redrive*r1")
    db.hset(record, "where", EVIL)
    with pytest.raises(SettingsError, match="which others can change"):
        redrive.plan(dead_letters, not_started, RedriveOptions(id="r1"), issued)


def test_a_redrive_without_sql_goes_on_for_anybody(
    dead_letters: ChasquiDlq, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead_letters.begin(stored_redrive(where=""))
    monkeypatch.setattr(selections, "chosen", lambda *_: [])
    assert redrive.plan(dead_letters, lambda: None, RedriveOptions(id="r1")).is_known


@pytest.mark.parametrize("until", ["1) OR (1=1", "1-0) OR (1=1", "", "x-1", "-1"])
def test_the_stored_end_of_a_redrive_is_not_run_as_sql(
    store: Store, dead_letters: ChasquiDlq, until: str
) -> None:
    for each in (dead_letters, RsmqDlq(store, Keys(), "orders")):
        with pytest.raises(SettingsError, match="is damaged"):
            each.bound(until)


def test_a_damaged_redrive_record_hides_no_other(dead_letters: ChasquiDlq, db: redis.Redis) -> None:
    dead_letters.begin(stored_redrive())
    dead_letters.begin(stored_redrive(id="r2"))
    (record,) = db.scan_iter("*redrive*r1")
    db.hset(record, mapping={"selected": "many", b"\xff": b"\xff"})
    assert [each.id for each in dead_letters.known()] == ["r2"]
    with pytest.raises(RemoteProtocolError, match="'r1' cannot be read"):
        dead_letters.begin(stored_redrive())


# ── what a user has begun ────────────────────────────────────────────────────


def test_the_record_of_started_redrives_is_readable_by_its_user_only(tmp_path: Path) -> None:
    issued = IssuedRedrives(tmp_path / "state" / "redrives")
    issued.note(QUEUE, stored_redrive())
    (file,) = issued.path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(issued.path.stat().st_mode) == 0o700
    assert issued.knows(QUEUE, stored_redrive())
    # How far it has come is no part of what was said.
    assert issued.knows(QUEUE, stored_redrive(moved=7, state="stopped"))
    for other in (stored_redrive(where="x"), stored_redrive(rewrite="x"), stored_redrive(id="r2")):
        assert not issued.knows(QUEUE, other)
    assert not issued.knows(Address("chasqui", "others"), stored_redrive())


def test_a_directory_that_others_may_write_into_proves_nothing(tmp_path: Path) -> None:
    issued = IssuedRedrives(tmp_path / "redrives")
    issued.note(QUEUE, stored_redrive())
    issued.path.chmod(0o777)
    assert not issued.knows(QUEUE, stored_redrive())


def test_the_record_of_a_started_redrive_is_deleted_after_a_month(tmp_path: Path) -> None:
    issued = IssuedRedrives(tmp_path / "redrives")
    issued.note(QUEUE, stored_redrive())
    (file,) = issued.path.iterdir()
    then = time.time() - KEEP_S - 60
    os.utime(file, (then, then))
    issued.note(QUEUE, stored_redrive(id="r2"))
    assert not issued.knows(QUEUE, stored_redrive())
    assert issued.knows(QUEUE, stored_redrive(id="r2"))


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
    dead_letters: ChasquiDlq,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    said: str,
) -> None:
    monkeypatch.setattr(ChasquiDlq, "frame", lambda *_: pytest.fail("it was analysed"))
    with pytest.raises(SettingsError, match=f"^--where: {said}"):
        redrive.plan(dead_letters, lambda: spark, RedriveOptions(condition=text))
    if ")" not in text.partition("(")[0]:
        with pytest.raises(SettingsError, match=f"^--set: {said}"):
            redrive.plan(
                dead_letters, lambda: spark, RedriveOptions(rewrite=text.removesuffix(" -- ok"))
            )


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
    dead_letters: ChasquiDlq,
    server: Server,
    db: redis.Redis,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dlq = partial(call, tambo, "tambo", "pipeline", "dlq", url=server.url)
    add_dead_letters(db, 5)
    letters = [selections.Selection(each.id) for each in dead_letters.letters()]
    monkeypatch.setattr(pipeline_redrive, "open_spark", lambda *_: None)
    monkeypatch.setattr(selections, "chosen", lambda *_: letters)
    mine = ("redrive", "chasqui:orders", "--id", "mine")
    assert dlq(*mine, "--where", "name = 'email'", "--limit", "2").code == 0
    assert len(dead(db)) == 3
    assert dlq(*mine).code == 0
    assert dead(db) == []
    dead_letters.begin(stored_redrive(id="theirs", where=EVIL))
    monkeypatch.setattr(selections, "chosen", lambda *_: pytest.fail("it was run"))
    theirs = dlq("redrive", "chasqui:orders", "--id", "theirs", "--dry-run")
    assert theirs.code == 2
    assert "which others can change: --where" in theirs.err
    assert theirs.err.count("\n") == 1
