"""Users that are read again when they change, with a clock that the tests move."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from tambomq.access.decisions import Grant
from tambomq.access.directory import AccessOptions, UserDirectory
from tambomq.access.edits import NewToken, RedisUsers, added, removed, rotated
from tambomq.access.file import UserFile
from tambomq.access.keys import USERS
from tambomq.access.model import User
from tambomq.errors import AccessDenied, NotAuthenticated, SettingsError
from tambomq.store.aio import AsyncStore
from tambomq.store.call import Call
from tambomq.store.sync import Store
from tests.access.users import NOW, Clock, Users, secret_of, user
from tests.servers import Server, eventually_async


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.toml")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def directory(users: Users, clock: Clock) -> UserDirectory:
    return UserDirectory("test", AccessOptions(str(users.path)), now=clock)


async def test_a_change_of_the_file_is_used_without_a_restart(
    users: Users, directory: UserDirectory
) -> None:
    await directory.refresh()
    token = users.add("a", ["send"], ["gomq:a"])
    with pytest.raises(NotAuthenticated):
        directory.log_in(token)
    await directory.start()
    try:
        session = directory.log_in(token)
        session.require("send", "gomq", "a")
        users.remove("a")
        await eventually_async(lambda: not session.allows("send", "gomq", "a"), within_s=60)
    finally:
        await directory.stop()
    with pytest.raises(NotAuthenticated):
        session.require("send", "gomq", "a")
    with pytest.raises(NotAuthenticated):
        directory.log_in(token)


async def test_a_session_loses_a_right_that_its_user_loses(
    users: Users, directory: UserDirectory
) -> None:
    token = users.add("a", ["send"], ["gomq:a"])
    await directory.refresh()
    session = directory.log_in(token)
    file = UserFile(users.path)
    kept = file.read()["a"].tokens
    file.change("a", lambda _: user(["look"]))
    file.change("a", lambda found: type(found)(rights=["look"], queues=["*"], tokens=kept))  # type: ignore[misc]  # it is there
    await directory.refresh()
    with pytest.raises(AccessDenied, match="a does not have the right to send for gomq:a"):
        session.require("send", "gomq", "a")
    session.require("look", "gomq", "a")


def test_a_denial_shows_the_beginning_of_a_long_name(
    directory: UserDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    session = directory.fixed(Grant("a", ["send"], ["b"]))
    with pytest.raises(AccessDenied, match=f"gomq:{'k' * 200}…$") as denied:
        session.require("send", "gomq", "k" * 3_000_000)
    session.count(denied.value, "127.0.0.1:1")
    assert len(caplog.text) < 1000


async def test_a_cached_token_expires_all_the_same(
    users: Users, directory: UserDirectory, clock: Clock
) -> None:
    token = NewToken(NOW, NOW + timedelta(hours=1))
    UserFile(users.path).change("a", added("a", user(["send"]), token))
    await directory.refresh()
    session = directory.log_in(token.text)
    assert directory.log_in(token.text) is session
    clock.now += timedelta(hours=1)
    with pytest.raises(NotAuthenticated, match="has expired"):
        directory.log_in(token.text)
    assert not session.allows("send", "gomq", "a")


async def test_during_a_rotation_both_tokens_are_valid_and_then_one(
    users: Users, directory: UserDirectory, clock: Clock
) -> None:
    file, old, new = UserFile(users.path), NewToken(NOW), NewToken(NOW + timedelta(minutes=1))
    file.change("a", added("a", user(["send"]), old))
    file.change("a", rotated("a", new, NOW + timedelta(hours=1)))
    await directory.refresh()
    for each in (old, new):
        assert directory.log_in(each.text).user == "a"
    clock.now += timedelta(hours=1)
    assert directory.log_in(new.text).user == "a"
    with pytest.raises(NotAuthenticated):
        directory.log_in(old.text)


async def test_invalid_users_leave_those_that_were_read_before(
    users: Users, directory: UserDirectory, caplog: pytest.LogCaptureFixture
) -> None:
    token = users.add("a", ["send"])
    await directory.start()
    try:
        users.path.write_text("[users.a]\nrights = ['fly']\nqueues = ['*']\n")
        with caplog.at_level(logging.ERROR):
            await eventually_async(lambda: "Invalid enum value 'fly'" in caplog.text, within_s=60)
        assert directory.log_in(token).user == "a"
        token = users_again(users)
        await eventually_async(lambda: is_known(directory, token), within_s=60)
    finally:
        await directory.stop()


def users_again(users: Users) -> str:
    users.path.write_text("")
    return users.add("b", ["send"])


def is_known(directory: UserDirectory, token: str) -> bool:
    try:
        directory.log_in(token)
    except NotAuthenticated:
        return False
    return True


async def test_at_the_start_a_file_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="tambo access add"):
        await UserDirectory("test", AccessOptions(str(tmp_path / "none.toml"))).start()


async def test_a_start_that_failed_fails_again_as_long_as_the_users_are_as_they_were(
    users: Users, directory: UserDirectory
) -> None:
    users.add("a", ["send"])
    users.path.chmod(0o644)
    for _ in range(2):
        with pytest.raises(SettingsError, match="0644"):
            await directory.start()
    users.path.chmod(0o600)
    users.path.write_text("[users.a]\nrights = ['send']\nqueues = ['*']\ntls = ['CN:a', 'CN:a']\n")
    for _ in range(2):
        with pytest.raises(SettingsError, match="stands twice"):
            await directory.start()


@pytest.mark.parametrize("problem", [SettingsError("cannot be read"), ValueError("unexpected")])
async def test_a_file_that_could_not_be_read_once_is_read_again(
    users: Users,
    directory: UserDirectory,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    problem: Exception,
) -> None:
    token, problems, read = users.add("a", ["send"]), [problem], UserFile.read

    def fail_once(file: UserFile) -> dict[str, User]:
        if problems:
            raise problems.pop()
        return read(file)

    await directory.start()
    try:
        users.remove("a")
        monkeypatch.setattr(UserFile, "read", fail_once)
        await eventually_async(lambda: not is_known(directory, token), within_s=60)
    finally:
        await directory.stop()
    assert str(problem) in caplog.text


@pytest.fixture
async def store(server: Server) -> AsyncIterator[AsyncStore]:
    opened = AsyncStore(server.url)
    yield opened
    await opened.close()


async def test_users_in_redis_are_read_again_when_they_change(
    server: Server, store: AsyncStore
) -> None:
    directory, token = UserDirectory("test", AccessOptions(redis=True), store), NewToken(NOW)
    await directory.start()
    try:
        with closing(Store(server.url)) as sync:
            kept = RedisUsers(sync)
            await asyncio.to_thread(kept.change, "a", added("a", user(["send"], ["a"]), token))
            await eventually_async(lambda: is_known(directory, token.text), within_s=60)
            assert directory.log_in(token.text).allows("send", "gomq", "a")
            await asyncio.to_thread(kept.change, "a", removed("a"))
            await eventually_async(lambda: not is_known(directory, token.text), within_s=60)
    finally:
        await directory.stop()


async def test_a_start_with_invalid_users_in_redis_fails_each_time(
    store: AsyncStore, db: redis.Redis
) -> None:
    db.hset(USERS, "a", b"{}")
    directory = UserDirectory("test", AccessOptions(redis=True), store)
    for _ in range(2):
        with pytest.raises(SettingsError, match="the users in Redis: user 'a'"):
            await directory.start()


def test_two_changes_of_a_user_in_redis_do_not_undo_each_other(server: Server) -> None:
    with closing(Store(server.url)) as sync:
        kept, tokens = RedisUsers(sync), [NewToken(NOW), NewToken(NOW), NewToken(NOW)]
        kept.change("a", added("a", user(["send"]), tokens[0]))
        rotate = rotated("a", tokens[2], NOW + timedelta(hours=1))
        inner: list[User | None] = []

        def overtaken(found: User | None) -> User | None:
            if not inner:
                inner.append(kept.change("a", rotated("a", tokens[1], NOW + timedelta(hours=1))))
            return rotate(found)

        after = kept.change("a", overtaken)
        assert after is not None
        assert inner[0] is not None
        # The second change has seen the first one, and keeps its token.
        assert inner[0].tokens[-1].id == after.tokens[0].id


def test_redis_keeps_no_token(server: Server) -> None:
    token = NewToken(NOW)
    with closing(Store(server.url)) as sync:
        RedisUsers(sync).change("a", added("a", user(["send"]), token))
        raw = sync.run(Call("HGET", (USERS,), ("a",), bytes))
    assert secret_of(token.text).encode() not in raw
