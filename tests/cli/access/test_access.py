"""``tambo access``: users in a file and in Redis, from adding to removing."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tambomq.access.decisions import UserSet
from tambomq.access.file import UserFile
from tambomq.cli.main import tambo
from tests.access.users import secret_of
from tests.cli.transcript import Done, call
from tests.servers import Server

UNREACHABLE = "redis://127.0.0.1:1"
ADD = ("--right", "send", "--queue", "gomq:orders-*")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of this machine are read."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TAMBO_ACCESS_FILE", raising=False)


@pytest.fixture
def file(tmp_path: Path) -> UserFile:
    return UserFile(tmp_path / "users.toml")


def access(*args: str) -> Done:
    return call(tambo, "tambo", "access", *args, url=UNREACHABLE)


def run(file: UserFile, *args: str) -> Done:
    return access(*args, "--file", str(file.path))


def answer(file: UserFile, *args: str) -> dict[str, object]:
    done = run(file, *args, "--json")
    assert done.code == 0, done
    found: dict[str, object] = json.loads(done.out)
    return found


def owner_of(file: UserFile, token: object) -> str:
    return UserSet(file.read()).by_token(str(token), datetime.now(UTC)).grant.name


def test_a_user_is_added_rotated_listed_and_removed(file: UserFile) -> None:
    added = answer(file, "add", "billing", *ADD, "--expires", "90d")
    assert added["rights"], added["queues"] == (["send"], ["gomq:orders-*"])
    rotated = answer(file, "rotate", "billing", "--overlap", "1h")
    assert added["token"] != rotated["token"]
    assert {owner_of(file, each["token"]) for each in (added, rotated)} == {"billing"}
    listed = run(file, "list")
    assert "billing" in listed.out
    assert str(added["token"]) not in listed.out
    assert len(answer(file, "list")["billing"]["tokens"]) == 2  # type: ignore[index]  # JSON
    assert run(file, "remove", "billing").out == "removed billing\n"
    assert run(file, "list").code == 3


def test_a_third_token_ends_the_oldest_one(file: UserFile) -> None:
    first = answer(file, "add", "a", *ADD)["token"]
    second = answer(file, "rotate", "a")["token"]
    third = answer(file, "rotate", "a")["token"]
    assert owner_of(file, second) == owner_of(file, third) == "a"
    with pytest.raises(Exception, match="not valid"):
        owner_of(file, first)


def test_without_an_overlap_the_old_token_ends_at_once(file: UserFile) -> None:
    first = answer(file, "add", "a", *ADD)["token"]
    second = answer(file, "rotate", "a", "--overlap", "0")["token"]
    assert owner_of(file, second) == "a"
    with pytest.raises(Exception, match="not valid"):
        owner_of(file, first)


def test_a_token_is_printed_once_and_kept_nowhere(file: UserFile) -> None:
    done = run(file, "add", "a", *ADD)
    token = done.out.split()[-1]
    assert owner_of(file, token) == "a"
    assert secret_of(token) not in file.path.read_text()


@pytest.mark.parametrize(
    ("args", "code", "complaint"),
    [
        (("add", "a", "--right", "send"), 2, "--queue"),
        (("add", "a", "--right", "fly", "--queue", "*"), 2, "'fly' is not one of"),
        (("add", "a", "--right", "send", "--queue", "gmoq:x"), 1, "before the colon stands"),
        (("add", "a b", *ADD), 1, "1 to 64 of"),
        (("add", "a", *ADD, "--no-token"), 2, "needs a --tls-identity"),
        (("add", "a", *ADD, "--tls-identity", "billing"), 1, "CN:, DNS: or URI:"),
        (("add", "a", *ADD, "--expires", "soon"), 2, "is not a duration"),
        (("rotate", "none"), 2, "`tambo access list` shows them all"),
        (("remove", "none"), 2, "`tambo access list` shows them all"),
        (("list", "--redis-url", UNREACHABLE), 2, "give --file or --redis-url"),
    ],
)
def test_invalid_user_commands_are_refused_with_the_reason(
    file: UserFile, args: tuple[str, ...], code: int, complaint: str
) -> None:
    run(file, "add", "other", *ADD)
    done = run(file, *args)
    assert done.code == code, done
    assert complaint in done.err
    assert list(file.read()) == ["other"]


def test_without_a_store_of_users_the_command_says_how_to_name_one() -> None:
    done = access("list")
    assert done.code == 2
    assert "--file" in done.err
    assert "--redis-url" in done.err


def test_the_settings_name_the_store_of_users(file: UserFile, tmp_path: Path) -> None:
    (tmp_path / "tambo.toml").write_text(f'[access]\nfile = "{file.path}"\n')
    assert access("add", "a", *ADD).code == 0
    assert list(file.read()) == ["a"]


def test_users_in_redis_are_managed_alike(server: Server) -> None:
    target = ("--redis-url", server.url)
    assert access("list", *target).code == 3
    assert access("add", "a", *ADD, *target).code == 0
    assert "there is a user a" in access("add", "a", *ADD, *target).err
    assert "stands twice" in access_of_two_users(target).err
    assert access("rotate", "a", *target).code == 0
    listed = json.loads(access("list", *target, "--json").out)
    assert {name: len(user["tokens"]) for name, user in listed.items()} == {"a": 2, "b": 0}
    for name in ("a", "b"):
        assert access("remove", name, *target).code == 0
    assert access("list", *target).code == 3


def access_of_two_users(target: tuple[str, str]) -> Done:
    """Give two users one certificate."""
    identity = ("--tls-identity", "CN:b", "--no-token")
    assert access("add", "b", *ADD, *identity, *target).code == 0
    return access("add", "c", *ADD, *identity, *target)
