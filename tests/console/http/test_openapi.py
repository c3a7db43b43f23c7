from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tambomq.console.http.openapi import description, openapi
from tambomq.console.http.routes import OWN_ROUTES, PREFIX, ROUTES
from tests.console.http.conftest import Open


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(description())
    return found


def test_every_route_is_described_and_no_other(document: dict[str, Any]) -> None:
    described = {
        (path, method.upper()) for path, item in document["paths"].items() for method in item
    }
    routed = {(PREFIX + route.path, route.method) for route in ROUTES}
    assert described == routed | {(PREFIX + path, method) for path, method in OWN_ROUTES.items()}


def test_operations_have_names_of_their_own(document: dict[str, Any]) -> None:
    ids = [each["operationId"] for item in document["paths"].values() for each in item.values()]
    assert len(ids) == len(set(ids))


def test_every_reference_leads_to_a_schema(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    names = {each.split('"')[0] for each in text.split("#/components/schemas/")[1:]}
    assert names <= document["components"]["schemas"].keys()


def test_parameters_of_the_path_are_said_to_be_there(document: dict[str, Any]) -> None:
    undo = document["paths"]["/api/v1/operations/{id}/undo"]["post"]["parameters"]
    assert {
        each["name"]: (each["in"], each["required"]) for each in undo if each["in"] == "path"
    } == {"id": ("path", True)}


def test_the_description_is_the_same_each_time() -> None:
    assert msgspec.json.encode(openapi()) == msgspec.json.encode(openapi())


async def test_it_is_served(browse: Open) -> None:
    reply = await (await browse()).get("/api/v1/openapi.json")
    assert reply.json()["openapi"] == "3.1.0"
