"""Users of the console who are recognised by their client certificates."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tambomq.rsmq import Rsmq
from tests.access.users import Users
from tests.serve.processes import serving
from tests.servers import eventually
from tests.servers.tls import Certificate, certificate

ACTION = "/api/v1/queue/purge?queue=rsmq:orders"


class Caller:
    """A program with a certificate."""

    def __init__(self, address: str, server: Certificate, own: Certificate | None) -> None:
        self._at = urlsplit(address)
        self._context = ssl.create_default_context(cafile=str(server.cert))
        if own:
            self._context.load_cert_chain(own.cert, own.key)

    def ask(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Return the status and the JSON of a reply."""
        host, port = str(self._at.hostname), self._at.port
        asked = http.client.HTTPSConnection(host, port, timeout=60, context=self._context)
        try:
            body = json.dumps({"dry_run": True}) if method == "POST" else None
            sent = {"Content-Type": "application/json", **(headers or {})}
            asked.request(method, path, body, sent)
            reply = asked.getresponse()
            return reply.status, json.loads(reply.read() or "null")
        finally:
            asked.close()


@pytest.fixture
def made(tmp_path: Path) -> dict[str, Certificate]:
    found = {}
    for name in ("server", "shop", "stranger"):
        (folder := tmp_path / name).mkdir()
        found[name] = certificate(folder, name)
    return found


@pytest.fixture
def users(tmp_path: Path) -> Users:
    users = Users(tmp_path / "users.toml")
    users.add("till", ("look", "manage"), ("rsmq:orders",), tls=("CN:shop",))
    return users


@pytest.fixture
def address(tmp_path: Path, made: dict[str, Certificate], users: Users) -> Iterator[str]:
    authorities = tmp_path / "clients.pem"
    authorities.write_text("".join(each.cert.read_text() for each in made.values()))
    server = made["server"]
    flags = [f"--http-tls-cert={server.cert}", f"--http-tls-key={server.key}"]
    flags += [f"--http-tls-client-ca={authorities}", f"--access-file={users.path}"]
    with serving(tmp_path / "serve", *flags, "--no-kqueue", "--no-gomq") as serve:
        with Rsmq(serve.url) as rsmq:
            rsmq.create_queue("orders")
            rsmq.create_queue("secrets")
        yield serve.address("http")


def test_a_certificate_identifies_a_user_with_its_queues(
    address: str, made: dict[str, Certificate], users: Users
) -> None:
    shop = Caller(address, made["server"], made["shop"])
    code, session = shop.ask("/api/v1/session")
    assert (code, session["user"], session["role"]) == (200, "till", "operator")
    assert not session["needs_login"]
    assert not session["can_log_out"]
    code, found = shop.ask("/api/v1/overview")
    assert code == 200
    assert "orders" in json.dumps(found)
    assert "secrets" not in json.dumps(found)
    # A browser sends the certificate also for pages of others: they cannot read this secret.
    assert shop.ask(ACTION, "POST")[0] == 403
    assert shop.ask(ACTION, "POST", {"X-Tambo-CSRF": session["csrf"]})[0] == 200
    wrong = {"Authorization": "Bearer tambo_wrong_token"}
    assert shop.ask("/api/v1/overview", headers=wrong)[0] == 401
    stranger = Caller(address, made["server"], made["stranger"])
    assert stranger.ask("/api/v1/overview")[0] == 401
    with pytest.raises((ssl.SSLError, ConnectionError)):
        Caller(address, made["server"], None).ask("/api/v1/overview")
    users.remove("till")
    eventually(lambda: shop.ask("/api/v1/overview")[0] == 401, within_s=60)
