from __future__ import annotations

import pytest
from starlette.requests import Request

from tambomq.console.http.problems import Problem
from tambomq.console.http.static import StaticFiles, packaged, static_response

FILES = StaticFiles(
    {
        "index.html": b'<script src="/static/js/main.js"></script>',
        "js/main.js": b"import './other.js'",
        "js/other.js": b"1",
        "strange.bin": b"\x00",
    }
)


def request(path: str, **headers: str) -> Request:
    sent = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {"type": "http", "method": "GET", "headers": sent, "path_params": {"path": path}}
    return Request(scope)


def test_the_shell_names_files_with_the_hash_of_all() -> None:
    assert f'"/static/{FILES.version}/js/main.js"'.encode() in FILES.shell


def test_any_change_changes_the_hash() -> None:
    assert StaticFiles({"a.js": b"1"}).version != StaticFiles({"a.js": b"2"}).version
    assert StaticFiles({"a.js": b"1"}).version != StaticFiles({"b.js": b"1"}).version
    assert StaticFiles({"a.js": b"1"}).version == StaticFiles({"a.js": b"1"}).version


def test_a_file_with_the_hash_is_kept_for_good() -> None:
    answer = static_response(FILES, request(f"{FILES.version}/js/other.js"))
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"] == "text/javascript; charset=utf-8"
    assert answer.body == b"1"


def test_a_file_without_the_hash_is_asked_for_again() -> None:
    answer = static_response(FILES, request("js/other.js"))
    assert answer.headers["cache-control"] == "no-cache"
    again = static_response(FILES, request("js/other.js", if_none_match=answer.headers["etag"]))
    assert (again.status_code, again.body) == (304, b"")


def test_a_file_of_an_unknown_kind_is_only_bytes() -> None:
    answer = static_response(FILES, request("strange.bin"))
    assert answer.headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize(
    "path", ["", "nothing.js", "../app.py", "js/../js/main.js", "js", "000000000000/js/main.js"]
)
def test_nothing_else_is_served(path: str) -> None:
    with pytest.raises(Problem) as caught:
        static_response(FILES, request(path))
    assert caught.value.status == 404


def test_the_package_has_a_shell() -> None:
    assert packaged().shell.startswith(b"<!doctype html>")
