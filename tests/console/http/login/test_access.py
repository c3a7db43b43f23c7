from __future__ import annotations

from pathlib import Path

import pytest

from tambomq.access.directory import AccessOptions, UserDirectory
from tambomq.console.http.login.access import MAX_SESSIONS, AccessControl, is_same
from tambomq.console.http.options import ConsoleOptions
from tests.access.users import Users


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def access(clock: Clock) -> AccessControl:
    options = ConsoleOptions(operator_token="op-token", viewer_token="view-token", session_s=60)
    return AccessControl(options, clock)


def test_each_token_gives_its_role(access: AccessControl) -> None:
    assert access.role_of("op-token") == "operator"
    assert access.role_of("view-token") == "viewer"
    assert access.role_of("op-toke") is None
    assert access.role_of("") is None


def test_one_token_for_both_roles_gives_the_higher(clock: Clock) -> None:
    options = ConsoleOptions(operator_token="same", viewer_token="same")
    assert AccessControl(options, clock).role_of("same") == "operator"


def test_without_tokens_callers_are_operators(clock: Clock) -> None:
    anonymous = AccessControl(ConsoleOptions(), clock).anonymous
    assert anonymous is not None
    assert anonymous.may("operator")
    assert anonymous.csrf


def test_with_a_token_callers_have_to_log_in(access: AccessControl) -> None:
    assert access.anonymous is None


def test_a_viewer_may_less_than_an_operator(access: AccessControl) -> None:
    _, viewer = access.log_in("viewer")
    assert viewer.may("viewer")
    assert not viewer.may("operator")


def test_a_session_ends_after_its_time(access: AccessControl, clock: Clock) -> None:
    cookie, identity = access.log_in("operator")
    clock.now_s += 59
    assert access.session(cookie) is identity
    clock.now_s += 1
    assert access.session(cookie) is None


def test_a_session_ends_with_the_log_out(access: AccessControl) -> None:
    cookie, _ = access.log_in("operator")
    access.log_out(cookie)
    assert access.session(cookie) is None


def test_an_invented_cookie_is_no_session(access: AccessControl) -> None:
    access.log_in("operator")
    assert access.session("invented") is None


def test_sessions_have_secrets_of_their_own(access: AccessControl) -> None:
    first, second = access.log_in("viewer"), access.log_in("viewer")
    assert first[0] != second[0]
    assert first[1].csrf != second[1].csrf


def test_the_oldest_session_makes_way(access: AccessControl) -> None:
    oldest, _ = access.log_in("viewer")
    latest = [access.log_in("viewer")[0] for _ in range(MAX_SESSIONS)]
    assert access.session(oldest) is None
    assert access.session(latest[0]) is not None


def test_a_program_needs_no_secret_beside_its_token(access: AccessControl) -> None:
    program = access.program("view-token")
    assert program is not None
    assert (program.role, program.csrf) == ("viewer", "")
    assert access.program("wrong") is None


def test_secrets_of_any_text_can_be_compared() -> None:
    assert is_same("ü\ud800", "ü\ud800")
    assert not is_same("a", "")


def test_tokens_are_not_in_the_repr_of_options() -> None:
    assert "s3cret" not in repr(ConsoleOptions(operator_token="s3cret", viewer_token="s3cret"))


async def test_a_certificate_is_that_of_a_user_while_the_user_is_there(
    clock: Clock, tmp_path: Path
) -> None:
    users = Users(tmp_path / "users.toml")
    users.add("till", ("look",), tls=("CN:shop",))
    access = AccessControl(ConsoleOptions(has_users=True), clock)
    assert access.certified(("CN:shop",)) is None
    access.users = directory = UserDirectory("console", AccessOptions(str(users.path)))
    await directory.refresh()
    found = access.certified(("DNS:other", "CN:shop"))
    assert found is not None
    assert (found.user, found.role, found.by_certificate) == ("till", "viewer", True)
    assert found.csrf
    again = access.certified(("CN:shop",))
    assert again is not None
    assert again.csrf == found.csrf
    assert access.certified(("CN:stranger",)) is None
    users.remove("till")
    await directory.refresh()
    assert access.certified(("CN:shop",)) is None
