"""The OpenAPI 3.1 description, made from the table of routes and the types of their values."""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

import msgspec

import tambomq
from tambomq.console.http.problems import ProblemDetail
from tambomq.console.http.requests import LoginRequest, NoBody, SessionInfo
from tambomq.console.http.routes import (
    LIVE,
    LOGIN,
    LOGOUT,
    OPENAPI,
    PREFIX,
    ROUTES,
    SESSION,
    ApiRoute,
)

_REF: Final = "#/components/schemas/{name}"
_IN_PATH: Final = re.compile(r"\{(\w+)\}")
_PROBLEM: Final = "application/problem+json"
_JSON: Final = "application/json"

_ABOUT: Final = (
    "Everything that the console shows and does. Where a token is needed, programs send it as "
    "`Authorization: Bearer …`. Others send the value `csrf` of `/session` as `X-Tambo-CSRF` "
    "with each POST. Times are milliseconds since 1970 (`…_ms`), durations seconds (`…_s`)."
)


@cache
def description() -> bytes:
    """Return the description as JSON."""
    return msgspec.json.format(msgspec.json.encode(openapi()), indent=2)


def openapi() -> dict[str, Any]:
    """Return the description."""
    bodies = [route.body for route in ROUTES if route.body is not NoBody]
    replies = [route.reply for route in ROUTES]
    wanted = dict.fromkeys([ProblemDetail, SessionInfo, LoginRequest, *bodies, *replies])
    _, schemas = msgspec.json.schema_components(wanted, ref_template=_REF)
    paths: dict[str, Any] = {}
    for route in ROUTES:
        paths.setdefault(PREFIX + route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {"title": "TamboMQ console", "version": tambomq.__version__, "description": _ABOUT},
        "paths": paths | _own_paths(),
        "components": {"schemas": schemas, "securitySchemes": _SECURITY},
        "security": [{}, {"token": []}, {"session": []}],
    }


_SECURITY: Final = {
    "token": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": "tambo_session_8090"},
}


def _operation(route: ApiRoute[Any, Any, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.id,
        "summary": route.about,
        "description": f"For the role {route.role}.",
        "parameters": _parameters(route),
        "responses": _responses(route.reply.__name__),
    }
    if route.body is not NoBody:
        content = {_JSON: {"schema": {"$ref": _REF.format(name=route.body.__name__)}}}
        needed = any(each.required for each in msgspec.structs.fields(route.body))
        operation["requestBody"] = {"content": content, "required": needed}
    return operation


def _parameters(route: ApiRoute[Any, Any, Any]) -> list[dict[str, Any]]:
    in_path = set(_IN_PATH.findall(route.path))
    _, schemas = msgspec.json.schema_components([route.query], ref_template=_REF)
    schema = schemas[route.query.__name__]
    parameters = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in schema.get("required", ()),
            "schema": each,
        }
        for name, each in schema["properties"].items()
    ]
    return parameters + (_csrf() if route.method == "POST" else [])


def _csrf() -> list[dict[str, Any]]:
    about = "The value `csrf` of the session; programs that send a token need none."
    header = {"name": "X-Tambo-CSRF", "in": "header", "required": False, "description": about}
    return [header | {"schema": {"type": "string"}}]


def _responses(reply: str) -> dict[str, Any]:
    return {
        "200": {
            "description": "Done.",
            "content": {_JSON: {"schema": {"$ref": _REF.format(name=reply)}}},
        },
        "default": {
            "description": "What is wrong, and what to do.",
            "content": {_PROBLEM: {"schema": {"$ref": _REF.format(name=ProblemDetail.__name__)}}},
        },
    }


def _own_paths() -> dict[str, Any]:
    session = _responses(SessionInfo.__name__)
    login = {_JSON: {"schema": {"$ref": _REF.format(name=LoginRequest.__name__)}}}
    return {
        PREFIX + SESSION: {
            "get": _own("session", "Return the caller, and what it may do.", session)
        },
        PREFIX + LOGIN: {
            "post": _own(
                "log_in", "Open a session with a token; the reply sets its cookie.", session
            )
            | {"requestBody": {"content": login, "required": True}}
        },
        PREFIX + LOGOUT: {
            "post": _own("log_out", "End the session.", session) | {"parameters": _csrf()}
        },
        PREFIX + LIVE: {
            "get": _own(
                "live",
                "Send an event `overview` at each refresh, and `operation` at each change of one.",
                {**session, "200": _content("text/event-stream", {"type": "string"})},
            )
        },
        PREFIX + OPENAPI: {
            "get": _own(
                "openapi",
                "Return this description.",
                {**session, "200": _content(_JSON, {"type": "object"})},
            )
        },
    }


def _own(id: str, about: str, responses: dict[str, Any]) -> dict[str, Any]:
    return {"operationId": id, "summary": about, "responses": responses}


def _content(kind: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": "Done.", "content": {kind: {"schema": schema}}}
