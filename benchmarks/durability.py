"""What durability costs: sends per second at each level, with 1, 16 and 1,000 in flight.

The player has servers of its own: a primary with an append-only file, as the embedded server has
it (``appendfsync everysec``), and a replica on the same machine. The harness's server is not used.
"""

from __future__ import annotations

import sys
from typing import Final

from benchmarks.model import Bout, Contender, Limit, Player, Subject

LEVELS: Final = ("memory", "disk", "replicas:1")
IN_FLIGHT: Final = (1, 16, 1000)
SENDS: Final = {"rsmq": "RSMQ send", "chasqui": "ChasquiMQ add", "gomq": "GOMQ publish"}
BODY_BYTES: Final = 100

PLAYER: Final = Player("tambomq", (sys.executable, "-m", "benchmarks.players.durable_sends"))


def subject(rounds: int, *, quick: bool) -> Subject:
    """What is measured, with at most three turns of each; *quick* is shorter ones, and one each."""
    turns, seconds = (1, 1.0) if quick else (min(rounds, 3), 5.0)
    bouts: list[Bout] = []
    rows: list[Limit] = []
    for protocol, title in SENDS.items():
        for in_flight in IN_FLIGHT:
            contenders = [
                Contender(
                    f"{title}, {in_flight:,} in flight, {level}",
                    PLAYER,
                    protocol,
                    {"level": level, "in_flight": in_flight, "seconds": seconds},
                )
                for level in LEVELS
            ]
            bouts.append(Bout(contenders, turns))
            rows += [Limit(each.name, each, "rate", "/s") for each in contenders]
    return Subject("durability", (PLAYER,), bouts, rows)
