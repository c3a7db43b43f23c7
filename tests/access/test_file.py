"""The file of users: who may read it, what may stand in it, and how it is replaced."""

from __future__ import annotations

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tambomq.access.edits import NewToken, RedisUsers, added
from tambomq.access.file import UserFile
from tambomq.errors import SettingsError
from tambomq.store.sync import Store
from tests.access.users import NOW, Users, secret_of, user
from tests.servers import Server


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o601, 0o666])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = Users(tmp_path / "users.toml").path
    path.chmod(mode)
    with pytest.raises(SettingsError, match=f"its mode is {mode:04o}.*chmod 600"):
        UserFile(path).read()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    path = Users(tmp_path / "users.toml").path
    os.chown(path, 12345, -1)
    path.chmod(0o600)
    with pytest.raises(SettingsError, match="belongs to the user 12345"):
        UserFile(path).read()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[users.a", "is not TOML"),
        pytest.param(f"a = {'1' * 5000}", "is not TOML", id="a long number"),
        pytest.param(f"a = {'[' * 5000}", "is not TOML", id="a deep array"),
        ("[user.a]\nrights = []\n", "unknown field `user`"),
        ("[users.a]\nrights = ['send']\n", "missing required field `queues`"),
        ("[users.a]\nrights = []\nqueues = ['*']\n", "at least one of send"),
        ("[users.a]\nrights = ['send']\nqueues = []\n", "length >= 1"),
        ("[users.a]\nrights = ['send']\nqueues = ['gmoq:x']\n", "before the colon"),
        ("[users.a]\nrights = ['send']\nqueues = ['gomq:']\n", "a name or pattern"),
        ("[users.a]\nrights = ['send']\nqueues = ['*']\ntls = ['a']\n", "CN:, DNS: or URI:"),
        ("[users.' a']\nrights = ['send']\nqueues = ['*']\n", "1 to 64 of"),
        ("[users.a]\nrights = ['send']\nqueues = ['*']\ntoken = 'x'\n", "unknown field `token`"),
    ],
)
def test_the_error_for_an_invalid_users_file_names_the_file(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = Users(tmp_path / "users.toml").path
    path.write_text(text)
    with pytest.raises(SettingsError, match=complaint) as caught:
        UserFile(path).read()
    assert str(path) in str(caught.value)


def test_a_users_file_that_is_not_utf8_or_is_a_directory_is_refused(tmp_path: Path) -> None:
    path = Users(tmp_path / "users.toml").path
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(SettingsError, match="UTF-8"):
        UserFile(path).read()
    with pytest.raises(SettingsError):
        UserFile(tmp_path).read()


def test_a_stored_user_is_read_back_unchanged(tmp_path: Path) -> None:
    file, token = UserFile(tmp_path / "users.toml"), NewToken(NOW, NOW.replace(year=2027))
    wanted = user(["send", "look"], ["gomq:a-*", "päck\"'\\"], tls=["CN:a b", "URI:spiffe://x"])
    made = file.change("a.b@c-d", added("a.b@c-d", wanted, token))
    assert file.read() == {"a.b@c-d": made}
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600
    assert secret_of(token.text) not in file.path.read_text()
    assert [each.name for each in tmp_path.iterdir()] == ["users.toml"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = Users(tmp_path / "real.toml")
    (tmp_path / "link.toml").symlink_to(real.path)
    UserFile(tmp_path / "link.toml").change("a", lambda _: user(["send"]))
    assert (tmp_path / "link.toml").is_symlink()
    assert "a" in UserFile(real.path).read()


def test_a_change_that_is_refused_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.toml")
    users.add("a", ["send"], tls=["CN:a"])
    before = users.path.read_bytes()
    with pytest.raises(SettingsError, match="stands twice"):
        users.add("b", ["send"], tls=["CN:a"])
    with pytest.raises(SettingsError, match="there is a user a"):
        UserFile(users.path).change("a", added("a", user(["look"]), None))
    assert users.path.read_bytes() == before


def test_changes_at_the_same_time_are_all_kept(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.toml")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: users.add(f"u{number}", ["send"]), range(24)))
    assert len(UserFile(users.path).read()) == 24


@pytest.mark.parametrize("kept", ["file", "redis"])
def test_what_could_not_be_read_again_is_not_stored(
    tmp_path: Path, server: Server, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    with closing(Store(server.url)) as sync:
        users = (
            UserFile(Users(tmp_path / "users.toml").path) if kept == "file" else RedisUsers(sync)
        )
        users.change("a", added("a", user(["send"]), None))
        with pytest.raises(SettingsError, match="length <= 1000"):
            users.change("b", added("b", user(["send"], ["x" * 1001]), None))
        monkeypatch.setattr("tambomq.access.wire.MAX_USERS", 1)
        with pytest.raises(SettingsError, match="at most 1"):
            users.change("b", added("b", user(["send"]), None))
        assert list(users.read()) == ["a"]
