"""Commands that show all queues go on when one is damaged, and its name forges no line."""

from __future__ import annotations

from functools import partial

import pytest
import redis

from tambomq.cli.main import tambo
from tests.cli.transcript import call
from tests.pipeline.dying_letters import add_dead_letters
from tests.servers import Server

FORGED = "x\nall is well\x1b[2J"


@pytest.mark.parametrize("command", [("rsmq", "queue", "list"), ("chasqui", "queues")])
def test_the_name_of_a_damaged_queue_is_one_line(
    server: Server, db: redis.Redis, command: tuple[str, ...]
) -> None:
    db.sadd("rsmq:QUEUES", FORGED)
    db.set(f"{{chasqui:{FORGED}}}:stream", "x")
    ran = call(tambo, "tambo", *command, url=server.url)
    lines = ran.out.splitlines()
    assert not any(line.startswith("all is well") for line in lines)
    assert any(line.startswith("x\\nall is well\\x1b[2J: ") for line in lines)
    assert "\x1b" not in ran.out


@pytest.mark.parametrize("command", [("show",), ("redrives",)])
def test_dead_letters_of_other_queues_are_shown(
    server: Server, db: redis.Redis, command: tuple[str, ...]
) -> None:
    dlq = partial(call, tambo, "tambo", "pipeline", "dlq", url=server.url)
    add_dead_letters(db, 2)
    db.set("{chasqui:damaged}:dlq", "x")
    db.set("{chasqui:damaged}:redrives", "x")
    ran = dlq(*command)
    assert "tambo: chasqui:damaged is left out: " in ran.err
    assert ("chasqui:orders" in ran.out) is (command == ("show",))
    # A command for that queue reports the damage.
    assert dlq(*command, "chasqui:damaged").code == 1
