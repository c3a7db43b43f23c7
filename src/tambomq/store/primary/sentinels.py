"""The sentinels of a server URL, what to ask them, and what is known of the primary. No sockets."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from itertools import starmap
from typing import TYPE_CHECKING, Any, Final, cast

from tambomq.clock import LONGEST_DELAY_S, RetryBudget
from tambomq.errors import StoreError, StoreRefused, StoreUnavailable
from tambomq.store.call import Call, Outcome
from tambomq.store.roundtrip import Address
from tambomq.text import format_address

if TYPE_CHECKING:
    from tambomq.store.endpoint import Endpoint, Tls

PORT: Final = 26379
CHECK_EVERY_S: Final = 0.5
"""How often a sentinel is asked while the server is used, or is owed a reply by it."""
UNANSWERED_S: Final = 5.0
"""When to ask again after no sentinel answered: until then the last known primary is used."""
ANSWER_WITHIN_S: Final = 1.0
"""Timeout for a sentinel, and for connecting to a server: a dead one must not hide the next."""
NOWHERE: Final[Address] = ("", 0)
"""The address of the primary before any sentinel was asked."""


@dataclass(frozen=True, slots=True)
class Sentinels:
    """Sentinels, the *name* of the primary they watch, and the login and TLS of their own."""

    nodes: tuple[Address, ...]
    name: str
    user: str = ""
    password: str = field(default="", repr=False)
    tls: Tls | None = None

    def __str__(self) -> str:
        """Return their addresses."""
        return ",".join(starmap(format_address, self.nodes))


def retry_budget(endpoint: Endpoint, patience_s: float, *, is_cluster: bool) -> RetryBudget:
    """Return the retries of one call. Where another server may take over, pauses are short."""
    is_replaceable = is_cluster or endpoint.sentinels is not None or len(endpoint.nodes) > 1
    return RetryBudget(patience_s, CHECK_EVERY_S if is_replaceable else LONGEST_DELAY_S)


def primary_of(name: str) -> Call[Address | None]:
    """Return the address of the primary; `None` if the sentinel does not know the *name*."""
    return Call("SENTINEL GET-MASTER-ADDR-BY-NAME", (), (name,), _address, repeatable=True)


class SentinelChoice:
    """The primary as the sentinels name it, and the order in which they are asked."""

    def __init__(self, sentinels: Sentinels) -> None:
        """Begin without a primary; the sentinels are asked in the order of the URL."""
        self.sentinels = sentinels
        self.preferred: Address = NOWHERE
        """The address of the primary."""
        self.in_order: tuple[Address, ...] = sentinels.nodes
        """All sentinels, the one that named a primary last first."""
        self._valid_until = 0.0

    def is_outdated(self, after_s: float = 0.0) -> bool:
        """Whether a sentinel had to be asked again *after_s* seconds ago or earlier."""
        return time.monotonic() >= self._valid_until + after_s

    def accept(self, sentinel: Address, primary: Address) -> bool:
        """Learn from *sentinel* where the *primary* is; return whether that is a change."""
        if self.in_order[0] != sentinel:
            others = (each for each in self.in_order if each != sentinel)
            self.in_order = (sentinel, *others)
        self._valid_until = time.monotonic() + CHECK_EVERY_S
        changed, self.preferred = primary != self.preferred, primary
        return changed

    def takes_no_writes(self, _: Address) -> None:
        """Ask again before the next call: the primary refused a write."""
        self._valid_until = 0.0

    def unanswered(self) -> None:
        """Go on with what is known: no sentinel names a primary."""
        self._valid_until = time.monotonic() + UNANSWERED_S


class PrimarySearch:
    """One search: asks sentinels until one names a server that turns out to be the primary."""

    def __init__(self, knowledge: SentinelChoice) -> None:
        """Record in *knowledge* what is found."""
        self._knowledge = knowledge
        self._named: dict[Address, Address] = {}
        """By server, the sentinel that named it first."""
        self._reasons: list[str] = []
        self._strangers = 0
        """How many sentinels do not know the name."""

    def on_answer(self, sentinel: Address, answer: Outcome) -> Address | None:
        """Return the server to try next, if *sentinel* named one that was not tried before."""
        if isinstance(answer, StoreError):
            self._reasons.append(f"sentinel {format_address(*sentinel)}: {answer}")
        elif answer is None:
            self._strangers += 1
        elif (server := cast("Address", answer)) not in self._named:
            self._named[server] = sentinel
            return server
        return None

    def is_primary(self, server: Address, again: Outcome, *, is_replica: bool) -> bool:
        """Whether *server*, now connected, is the primary: it says so, and still is named.

        *again* is what the sentinel that named it answers now. A former primary that was started
        again also says that it is one, until a sentinel has made it a replica.
        """
        if is_replica:
            self.failed(server, "it is a replica")
        elif isinstance(again, tuple) and again != server:
            self.failed(server, "it was replaced while connecting")
        else:
            self._knowledge.accept(self._named[server], server)
            return True
        return False

    def failed(self, server: Address, why: object) -> None:
        """Record why *server* cannot be used."""
        self._reasons.append(f"{format_address(*server)}: {why}")

    def error(self) -> StoreError:
        """Return the error to raise when no primary was found."""
        sentinels = self._knowledge.sentinels
        if self._strangers == len(sentinels.nodes):
            # Asking again will not help: the name is wrong.
            return StoreRefused(f"the sentinels {sentinels} know no primary {sentinels.name!r}")
        if self._strangers:
            self._reasons.append("other sentinels do not know that name")
        why = "; ".join(dict.fromkeys(self._reasons))
        return StoreUnavailable(f"cannot find the primary {sentinels.name!r}: {why}")


def _address(reply: list[Any] | None) -> Address | None:
    return (reply[0].decode(), int(reply[1])) if reply else None
