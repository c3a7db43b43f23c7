"""The nemeses of the chaos suite, by name."""

from __future__ import annotations

from typing import Final

from tests.chaos.nemeses.machine import MACHINE
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.nemeses.network import NETWORK
from tests.chaos.nemeses.processes import PROCESSES
from tests.chaos.nemeses.servers import SERVERS

GROUPS: Final[dict[str, tuple[Nemesis, ...]]] = {
    "Processes": PROCESSES,
    "Network": NETWORK,
    "Redis": SERVERS,
    "Disk and clock": MACHINE,
}
NEMESES: Final[dict[str, Nemesis]] = {
    each.name: each for group in GROUPS.values() for each in group
}
