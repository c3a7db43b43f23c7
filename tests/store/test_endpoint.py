"""Server URLs and logins."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tambomq.errors import SettingsError, StoreUnavailable
from tambomq.store.endpoint import Endpoint, Tls, endpoint
from tambomq.store.primary.sentinels import ANSWER_WITHIN_S, Sentinels

SECRET = "hunter2"


def watched(sentinels: Sentinels, **options: Any) -> Endpoint:
    """The endpoint of the primary that *sentinels* name."""
    return Endpoint((), sentinels=sentinels, connect_timeout_s=ANSWER_WITHIN_S, **options)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", Endpoint()),
        ("redis://127.0.0.1:6379", Endpoint()),
        ("redis://h", Endpoint(nodes=(("h", 6379),))),
        ("redis://h:7000/3", Endpoint(nodes=(("h", 7000),), db=3)),
        ("redis://h?db=3", Endpoint(nodes=(("h", 6379),), db=3)),
        ("redis://:7000", Endpoint(nodes=(("127.0.0.1", 7000),))),
        ("redis:///2", Endpoint(db=2)),
        ("redis://[::1]", Endpoint(nodes=(("::1", 6379),))),
        ("redis://[::1]:7000", Endpoint(nodes=(("::1", 7000),))),
        ("redis://a:1,b:2,c", Endpoint(nodes=(("a", 1), ("b", 2), ("c", 6379)))),
        ("redis://:pw@h", Endpoint(nodes=(("h", 6379),), password="pw")),
        ("redis://me:p%40%2Fw@h", Endpoint(nodes=(("h", 6379),), user="me", password="p@/w")),
        ("redis://me:pw@a,b/1", Endpoint((("a", 6379), ("b", 6379)), None, 1, "me", "pw")),
        ("rediss://h", Endpoint(nodes=(("h", 6379),), tls=Tls())),
        (
            "rediss://h?ca=/ca.pem&cert=/c.pem&key=/k.pem",
            Endpoint(nodes=(("h", 6379),), tls=Tls("/ca.pem", "/c.pem", "/k.pem")),
        ),
        ("rediss://h?verify=no", Endpoint(nodes=(("h", 6379),), tls=Tls(verify=False))),
        (
            "redis+sentinel://me:pw@a,b:7/prime/3?sentinel_user=us&sentinel_password=p%40w",
            Endpoint(
                *((), None, 3, "me", "pw"),
                sentinels=Sentinels((("a", 26379), ("b", 7)), "prime", "us", "p@w"),
                connect_timeout_s=ANSWER_WITHIN_S,
            ),
        ),
        ("redis+sentinel:///a%2Fb", watched(Sentinels((("127.0.0.1", 26379),), "a/b"))),
        ("redis+sentinel://[::1]/m/2?db=1", watched(Sentinels((("::1", 26379),), "m"), db=2)),
        (
            "rediss+sentinel://a/m?ca=/ca.pem&verify=no&sentinel_ca=/other.pem",
            watched(
                Sentinels((("a", 26379),), "m", tls=Tls("/other.pem", verify=False)),
                tls=Tls("/ca.pem", verify=False),
            ),
        ),
        (
            "rediss+sentinel://a/m?ca=/ca.pem&sentinel_tls=no",
            watched(Sentinels((("a", 26379),), "m"), tls=Tls("/ca.pem")),
        ),
        (
            "redis+sentinel://a/m?sentinel_tls=yes&sentinel_ca=/ca.pem&sentinel_verify=no",
            watched(Sentinels((("a", 26379),), "m", tls=Tls("/ca.pem", verify=False))),
        ),
        ("unix:///run/r.sock", Endpoint(path="/run/r.sock")),
        (
            "unix://me:pw@/run/r%20s.sock?db=4",
            Endpoint(path="/run/r s.sock", db=4, user="me", password="pw"),
        ),
    ],
)
def test_a_url_says_where_and_how(url: str, expected: Endpoint) -> None:
    assert endpoint(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        (f"http://me:{SECRET}@h", "h: a server URL begins with redis://, rediss://, unix://, "),
        (f"redis://:{SECRET}@h:port", "port in a server URL is a number, not 'port'"),
        (f"redis://:{SECRET}@h:70000", "between 1 and 65535, not 70000"),
        (f"redis://:{SECRET}@h:0", "between 1 and 65535, not 0"),
        (f"redis://:{SECRET}@h/-1", "db in a server URL is a number, not '-1'"),
        (f"redis://:{SECRET}@h,", "a host between its commas"),
        (f"redis://:{SECRET}@h?colour=red", "redis://h:6379/0: unknown option colour"),
        (f"redis://:{SECRET}@h?ca=/ca.pem", "unknown option ca"),
        (f"rediss://:{SECRET}@h?verify=maybe", "verify in a server URL is yes or no, not 'maybe'"),
        (f"redis://:{SECRET}@[::1", "is not a URL"),
        (f"redis://:{SECRET}/x@h", "write / as %2F"),
        (f"redis://:{SECRET}#x@h", "# as %23"),
        (f"redis://:{SECRET}?x@h", "? as %3F"),
        (
            f"redis+sentinel://:{SECRET}@h:26379?sentinel_password={SECRET}",
            "the name of the primary: redis+sentinel://host:26379/mymaster",
        ),
        (f"redis+sentinel://:{SECRET}@h/m/x", "db in a server URL is a number, not 'x'"),
        (f"redis+sentinel://h/m?sentinel_pass={SECRET}", "h:26379/m/0: unknown option sentinel_p"),
        (f"redis+sentinel://:{SECRET}@h/m?sentinel_tls=maybe", "sentinel_tls in a server URL is"),
        (f"redis+sentinel://:{SECRET}@h/m?sentinel_ca=/ca", "unknown option sentinel_ca"),
        (f"redis://:{SECRET}@h?sentinel_user=me", "unknown option sentinel_user"),
        (f"http://h?password={SECRET}", "http://h: a server URL begins with"),
        (f"unix://:{SECRET}@run/r.sock", "three slashes"),
        ("unix://", "three slashes"),
    ],
)
def test_a_wrong_url_is_refused_with_its_reason_and_without_its_password(
    url: str, why: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        endpoint(url)
    assert why in str(refused.value)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (f"redis://me:{SECRET}@h:7000/2", "redis://h:7000/2"),
        (f"rediss://me:{SECRET}@a,[::1]", "rediss://a:6379,[::1]:6379/0"),
        (f"unix://me:{SECRET}@/run/r.sock", "unix:///run/r.sock"),
        (
            f"rediss+sentinel://me:{SECRET}@a,b/my%20one?sentinel_password={SECRET}",
            "rediss+sentinel://a:26379,b:26379/my%20one/0",
        ),
    ],
)
def test_an_endpoint_is_shown_without_its_password(url: str, shown: str) -> None:
    assert str(endpoint(url)) == shown
    assert SECRET not in repr(endpoint(url))


@given(st.text(max_size=60))
def test_any_text_is_an_endpoint_or_a_settings_error(text: str) -> None:
    for scheme in ("", "redis://", "rediss://", "unix://", "redis+sentinel://"):
        try:
            endpoint(scheme + text)
        except SettingsError:
            continue


@given(st.from_regex(r"[a-z]{1,10}(\.[a-z]{1,5})?", fullmatch=True), st.integers(1, 65535))
def test_a_shown_endpoint_can_be_parsed_again(host: str, port: int) -> None:
    for rest in (f"://{host}:{port}/7", f"+sentinel://{host}:{port}/{host}/7"):
        found = endpoint(f"redis{rest}")
        assert endpoint(str(found)) == found


def test_arguments_override_the_url() -> None:
    def credentials() -> tuple[str, str]:
        return "me", "pw"

    tls = Tls(ca="/ca.pem")
    found = endpoint("rediss://h", tls=tls, credentials=credentials)
    assert (found.tls, found.login()) == (tls, ("me", "pw"))
    assert endpoint(found) == found


def test_tls_is_never_silently_left_out() -> None:
    for url in ("redis://h", "unix:///run/r.sock"):
        with pytest.raises(SettingsError, match="rediss://"):
            endpoint(url, tls=Tls())


def test_tls_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no-such-ca"):
        Tls(ca=str(tmp_path / "no-such-ca")).context()


@pytest.mark.parametrize(
    ("url", "handshake_commands"),
    [
        ("redis://h", []),
        ("redis://:pw@h", [("AUTH", "pw")]),
        ("redis://me:pw@h/3", [("AUTH", "me", "pw"), ("SELECT", 3)]),
        ("redis://me@h", [("AUTH", "me", "")]),
    ],
)
def test_the_handshake_logs_in_and_selects_the_database(
    url: str, handshake_commands: list[tuple[object, ...]]
) -> None:
    found = endpoint(url)
    assert found.handshake_commands(found.login(), ("192.0.2.1", 6379)) == [
        *handshake_commands,
        ("CLIENT", "SETNAME", "tambomq"),
    ]


def test_the_role_is_asked_for_where_it_may_change() -> None:
    for url in ("redis://a,b", "redis+sentinel://a/m"):
        found = endpoint(url)
        assert found.handshake_commands(found.login(), ("192.0.2.1", 6379))[-1] == ("HELLO",)


def test_a_sentinel_has_a_login_and_tls_of_its_own() -> None:
    found = endpoint("rediss+sentinel://me:pw@a,b/m/3?sentinel_user=us&sentinel_password=other")
    assert found.sentinels is not None
    one = found.with_timeout(0.7).of_sentinel(found.sentinels, ("b", 26379))
    assert (one.nodes, one.db, one.tls) == ((("b", 26379),), 0, Tls())
    assert (one.login(), one.connect_timeout_s) == (("us", "other"), 0.7)


async def test_credentials_may_be_awaited() -> None:
    async def later() -> tuple[str, str]:
        return "me", "pw"

    assert await endpoint("redis://h", credentials=later).login_async() == ("me", "pw")


def test_a_blocking_client_waits_for_credentials_to_be_awaited() -> None:
    async def later() -> tuple[str, str]:
        return "me", "pw"

    def provider() -> Awaitable[tuple[str, str]]:
        return later()

    assert endpoint("redis://h", credentials=provider).login() == ("me", "pw")


async def test_a_credential_provider_that_fails_is_a_server_that_cannot_be_reached() -> None:
    def fails() -> tuple[str, str]:
        raise KeyError("token")

    async def fails_later() -> tuple[str, str]:
        raise KeyError("token")

    expected = "the credential provider failed: KeyError: 'token'"
    for provider in (fails, fails_later):
        asking = endpoint("redis://h", credentials=provider)
        with pytest.raises(StoreUnavailable, match=expected) as caught:
            await asking.login_async()
        assert isinstance(caught.value.__cause__, KeyError)
    with pytest.raises(StoreUnavailable, match=expected):
        endpoint("redis://h", credentials=fails).login()


async def test_a_blocking_client_inside_a_loop_cannot_wait_for_them() -> None:
    async def later() -> tuple[str, str]:
        return "me", "pw"

    with pytest.raises(SettingsError, match="async client"):
        endpoint("redis://h", credentials=later).login()
