"""``tambo serve --redis-auth``: our commands are let in by themselves, others are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.serve.processes import ask, serving, tambo


@pytest.mark.slow
def test_with_a_password_everything_is_served_and_our_commands_find_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    with serving(tmp_path / "one", "--redis-auth") as serve:
        assert "NOAUTH" in str(ask(serve.url, "GET", "key"))
        code, text = serve.get("/healthz")
        assert (code, {component["ok"] for component in json.loads(text).values()}) == (200, {True})
        # What is shown can be typed: no password has been put in, and none masked.
        assert "***" not in serve.stdout
        made = tambo(
            "rsmq", "queue", "create", "-n", "mail", "--redis-url", serve.url, cwd=tmp_path
        )
        assert (made.returncode, made.stderr) == (0, "")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "of-somebody-else"))
        refused = tambo("rsmq", "queue", "list", "--redis-url", serve.url, cwd=tmp_path)
        assert refused.returncode == 1
        assert "NOAUTH" in refused.stderr
