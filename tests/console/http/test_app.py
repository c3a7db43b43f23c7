"""The security of pages and API: headers, Host, log-in, roles, CSRF, read-only mode, limits."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tambomq.console.http.app import PAGES
from tambomq.console.http.login.limit import OF_ALL, PER_ADDRESS
from tambomq.console.http.routes import PREFIX, ROUTES, ApiRoute
from tests.console.http.conftest import Browser, Open

OPERATOR, VIEWER = "operator-token", "viewer-token"
TOKENS = {"operator_token": OPERATOR, "viewer_token": VIEWER}
PAUSE = "/queue/pause?queue=chasqui:payments"


@pytest.mark.parametrize("path", PAGES)
async def test_every_page_is_the_shell_with_a_strict_policy(browse: Open, path: str) -> None:
    reply = await (await browse()).get(path, headers={"Accept": "text/html"})
    assert reply.status_code == 200
    assert reply.text.startswith("<!doctype html>")
    policy = dict(
        each.split(" ", 1) for each in reply.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
    assert "unsafe" not in reply.headers["content-security-policy"]


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/overview", "/api/v1/nothing", "/static/nothing.js", "/nothing"]
)
async def test_every_answer_has_the_security_headers(browse: Open, path: str) -> None:
    headers = (await (await browse()).get(path)).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-opener-policy"] == "same-origin"
    assert headers["cross-origin-resource-policy"] == "same-origin"
    assert headers["x-frame-options"] == "DENY"
    assert "access-control-allow-origin" not in headers


async def test_a_program_gets_the_plain_index(browse: Open) -> None:
    assert (await (await browse()).get("/", headers={"Accept": "*/*"})).text == "plain\n"


@pytest.mark.parametrize("path", ["/", "/static/js/main.js", "/api/v1/overview", "/api/v1/session"])
async def test_a_rebound_name_is_refused_everywhere(browse: Open, path: str) -> None:
    browser = await browse()
    reply = await browser.get(path, headers={"Host": "evil.example"})
    assert (reply.status_code, reply.json()["kind"]) == (403, "host")


async def test_a_name_that_is_allowed_is_answered(browse: Open) -> None:
    browser = await browse(allowed_hosts=("queues.example.com",))
    reply = await browser.get("/api/v1/overview", headers={"Host": "queues.example.com"})
    assert reply.status_code == 200


async def test_api_data_is_never_cached(browse: Open) -> None:
    reply = await (await browse()).get("/api/v1/overview")
    assert reply.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [("/api/v1/nothing", 404, "not_found"), ("/api/v1/queue/pause", 405, "method")],
)
async def test_an_unknown_path_or_method_is_refused_as_json(
    browse: Open, path: str, status: int, kind: str
) -> None:
    reply = await (await browse()).get(path)
    assert (reply.status_code, reply.json()["kind"]) == (status, kind)
    assert reply.headers["content-type"] == "application/problem+json"


# ── log-in ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: f"{route.method} {route.path}")
async def test_no_route_answers_before_the_log_in(
    browse: Open, route: ApiRoute[Any, Any, Any]
) -> None:
    browser = await browse(**TOKENS)
    path = "/api/v1" + route.path.replace("{id}", "1")
    reply = await browser.request(route.method, path)
    assert (reply.status_code, reply.json()["kind"]) == (401, "login")
    assert browser.memory.actions.calls == []


@pytest.mark.parametrize("path", ["/live", "/openapi.json"])
async def test_live_and_openapi_need_a_log_in(browse: Open, path: str) -> None:
    assert (await (await browse(**TOKENS)).get(f"/api/v1{path}")).status_code == 401


async def test_the_session_says_that_a_log_in_is_needed(browse: Open) -> None:
    browser = await browse(**TOKENS)
    session = (await browser.get("/api/v1/session")).json()
    assert (session["needs_login"], session["role"], session["csrf"]) == (True, None, "")


async def test_an_operator_logs_in_acts_and_logs_out(browse: Open) -> None:
    browser = await browse(**TOKENS)
    session = (await browser.log_in(OPERATOR)).json()
    assert (session["role"], session["needs_login"]) == ("operator", False)
    assert (await browser.act(PAUSE)).status_code == 200
    assert (await browser.act("/logout")).status_code == 200
    assert (await browser.get("/api/v1/overview")).status_code == 401


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(browse: Open) -> None:
    cookie = (await (await browse(**TOKENS)).log_in(VIEWER)).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "domain" not in cookie
    assert "secure" not in cookie


async def test_with_tls_the_cookie_is_secure_and_bound_to_the_host(browse: Open) -> None:
    browser = await browse("https://127.0.0.1:8090", **TOKENS)
    cookie = (await browser.log_in(VIEWER)).headers["set-cookie"]
    assert cookie.startswith("__Host-tambo_session_")
    assert "secure" in cookie.lower()
    assert (await browser.get("/api/v1/overview")).status_code == 200


async def test_two_consoles_on_one_host_do_not_share_a_cookie(browse: Open) -> None:
    first, second = await browse(**TOKENS), await browse("http://127.0.0.1:8091", **TOKENS)
    names = {next(iter((await each.log_in(VIEWER)).cookies)) for each in (first, second)}
    assert names == {"tambo_session_8090", "tambo_session_8091"}


async def test_a_session_expires(browse: Open) -> None:
    browser = await browse(**TOKENS, session_s=3600.0)
    await browser.log_in(VIEWER)
    browser.memory.clock_s += 3600
    assert (await browser.get("/api/v1/overview")).status_code == 401


async def test_a_wrong_token_is_refused_and_audited(browse: Open) -> None:
    browser = await browse(**TOKENS)
    reply = await browser.log_in("wrong-s3cret")
    assert (reply.status_code, reply.json()["kind"]) == (401, "wrong_token")
    assert "set-cookie" not in reply.headers
    (entry,) = browser.memory.audit.kept
    assert (entry.verb, entry.outcome) == ("log in", "refused")
    assert "s3cret" not in repr(entry)


@pytest.mark.parametrize("as_program", [False, True])
async def test_wrong_tokens_are_limited_and_then_the_right_one_waits_too(
    browse: Open, as_program: bool
) -> None:
    browser = await browse(**TOKENS)

    async def attempt(token: str) -> int:
        if as_program:
            headers = {"Authorization": f"Bearer {token}"}
            return (await browser.get("/api/v1/overview", headers=headers)).status_code
        return (await browser.log_in(token)).status_code

    assert [await attempt("wrong") for _ in range(PER_ADDRESS)] == [401] * PER_ADDRESS
    assert await attempt(OPERATOR) == 429
    browser.memory.clock_s += 60
    assert await attempt(OPERATOR) == 200


async def test_the_limit_of_all_addresses_says_when_to_try_again(browse: Open) -> None:
    browser = await browse(**TOKENS)
    for number in range(OF_ALL):
        browser.memory.console.login_limit.failed(f"10.0.0.{number}")
    reply = await browser.log_in(OPERATOR)
    assert reply.status_code == 429
    assert int(reply.headers["retry-after"]) > 0


async def test_a_program_sends_its_token_and_needs_no_csrf(browse: Open) -> None:
    browser = await browse(**TOKENS)
    headers = {"Authorization": f"Bearer {OPERATOR}"}
    reply = await browser.post(f"/api/v1{PAUSE}", headers=headers)
    assert reply.status_code == 200
    assert browser.memory.audit.kept[-1].user == "operator token"


# ── roles, CSRF, origin, read-only ───────────────────────────────────────────

ACTIONS = [route for route in ROUTES if route.role == "operator"]


async def ask(browser: Browser, route: ApiRoute[Any, Any, Any]) -> httpx.Response:
    path = route.path.replace("{id}", "1")
    return await (browser.get(PREFIX + path) if route.method == "GET" else browser.act(path))


@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: route.path)
async def test_a_viewer_changes_nothing(browse: Open, route: ApiRoute[Any, Any, Any]) -> None:
    browser = await browse(**TOKENS)
    await browser.log_in(VIEWER)
    reply = await ask(browser, route)
    assert (reply.status_code, reply.json()["kind"]) == (403, "role")
    assert browser.memory.actions.calls == []


@pytest.mark.parametrize("route", ACTIONS, ids=lambda route: route.path)
async def test_in_read_only_mode_nothing_is_changed(
    browse: Open, route: ApiRoute[Any, Any, Any]
) -> None:
    browser = await browse(read_only=True)
    reply = await ask(browser, route)
    assert (reply.status_code, reply.json()["kind"]) == (403, "read_only")
    assert browser.memory.actions.calls == []


@pytest.mark.parametrize("given", ["", "wrong"])
@pytest.mark.parametrize("tokens", [{}, TOKENS], ids=["on loopback", "logged in"])
async def test_an_action_without_the_sessions_secret_is_refused(
    browse: Open, given: str, tokens: dict[str, str]
) -> None:
    browser = await browse(**tokens)
    if tokens:
        await browser.log_in(OPERATOR)
    reply = await browser.act(PAUSE, headers={"X-Tambo-CSRF": given})
    assert (reply.status_code, reply.json()["kind"]) == (403, "csrf")
    assert browser.memory.actions.calls == []


async def test_the_secret_of_another_session_does_not_count(browse: Open) -> None:
    browser = await browse(**TOKENS)
    other = (await browser.log_in(OPERATOR)).json()["csrf"]
    await browser.log_in(OPERATOR)
    reply = await browser.act(PAUSE, headers={"X-Tambo-CSRF": other})
    assert reply.json()["kind"] == "csrf"


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Sec-Fetch-Site": "cross-site"}]
)
@pytest.mark.parametrize("path", ["/overview", "/live", "/session"])
async def test_a_page_of_another_origin_reads_nothing(
    browse: Open, headers: dict[str, str], path: str
) -> None:
    reply = await (await browse()).get(f"/api/v1{path}", headers=headers)
    assert (reply.status_code, reply.json()["kind"]) == (403, "origin")


async def test_a_page_of_another_origin_cannot_log_in(browse: Open) -> None:
    browser = await browse(**TOKENS)
    headers = {"Origin": "http://evil.example"}
    reply = await browser.post("/api/v1/login", json={"token": OPERATOR}, headers=headers)
    assert reply.json()["kind"] == "origin"
