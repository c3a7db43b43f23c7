from __future__ import annotations

import pytest

from tambomq.console.http.login.origin import HostRule, check_origin
from tambomq.console.http.problems import Problem


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8090", "127.0.0.1:8090", "127.9.9.9", "[::1]:8090", "localhost."],
)
def test_loopback_names_are_allowed(host: str) -> None:
    HostRule("127.0.0.1", ()).check(host)


@pytest.mark.parametrize(
    "host",
    [
        *("", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8090"),
        *("10.0.0.1", "evil@localhost", "localhost/", "[::1", "localhost:x", "a b", "0.0.0.0"),
    ],
)
def test_other_names_are_refused(host: str) -> None:
    with pytest.raises(Problem) as caught:
        HostRule("127.0.0.1", ()).check(host)
    assert (caught.value.status, caught.value.kind) == (403, "host")
    assert "--http-allowed-host" in caught.value.title


@pytest.mark.parametrize("host", ["queues.example.com", "Queues.Example.com:443"])
def test_a_name_can_be_allowed(host: str) -> None:
    HostRule("127.0.0.1", ("queues.example.com",)).check(host)


def test_the_host_on_which_it_listens_is_allowed() -> None:
    HostRule("queues.lan", ()).check("queues.lan:8090")
    HostRule("fd00::1", ()).check("[fd00::1]:8090")


def test_addresses_are_allowed_if_it_listens_on_all() -> None:
    rule = HostRule("0.0.0.0", ())
    rule.check("10.1.2.3:8090")
    with pytest.raises(Problem):
        rule.check("evil.example:8090")


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ({}, "http"),
        ({"origin": "http://127.0.0.1:8090"}, "http"),
        ({"origin": "http://127.0.0.1:8090", "sec-fetch-site": "same-origin"}, "http"),
        ({"sec-fetch-site": "none"}, "http"),
        ({"host": "q.example", "origin": "https://q.example"}, "https"),
        ({"host": "q.example:443", "origin": "https://q.example"}, "https"),
        ({"host": "q.example", "origin": "https://q.example"}, "http"),
    ],
)
def test_pages_of_the_console_and_programs_may_call(headers: dict[str, str], scheme: str) -> None:
    check_origin({"host": "127.0.0.1:8090", **headers}, scheme)


@pytest.mark.parametrize(
    ("headers", "scheme"),
    [
        ({"origin": "http://evil.example"}, "http"),
        ({"origin": "null"}, "http"),
        ({"origin": ""}, "http"),
        ({"origin": "http://127.0.0.1:3000"}, "http"),
        ({"origin": "http://127.0.0.1"}, "http"),
        ({"origin": "http://127.0.0.1:8090/path"}, "http"),
        ({"origin": "file://127.0.0.1:8090"}, "http"),
        ({"sec-fetch-site": "cross-site"}, "http"),
        ({"sec-fetch-site": "same-site"}, "http"),
        ({"origin": "http://127.0.0.1:8090", "sec-fetch-site": "cross-site"}, "http"),
        ({"host": "q.example", "origin": "http://q.example"}, "https"),
    ],
)
def test_pages_of_others_may_not(headers: dict[str, str], scheme: str) -> None:
    with pytest.raises(Problem) as caught:
        check_origin({"host": "127.0.0.1:8090", **headers}, scheme)
    assert (caught.value.status, caught.value.kind) == (403, "origin")
