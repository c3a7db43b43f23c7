"""Whether the process may be used, and whether each of its doors really serves."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tambomq.errors import TamboError
from tambomq.log import mask_url
from tambomq.serve.door import Door

T = TypeVar("T")

CHECK_WITHIN_S: Final = 2.0
"""A door that cannot say so in this time does not serve."""
LOOK_EVERY_S: Final = 1.0
"""Whoever asks more often is told again what was found last."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a door serves, and why not."""

    ok: bool
    why: str = ""


class Coalesced(Generic[T]):
    """A value that is costly to find: found once for all who ask at a time, kept for *for_s*."""

    def __init__(self, find: Callable[[], Awaitable[T]], for_s: float) -> None:
        self._find, self._for_s = find, for_s
        self._finding: asyncio.Future[T] | None = None
        self._found_at = float("-inf")

    async def get(self) -> T:
        """Return the value; one that could not be found raises, and is looked for again."""
        finding = self._finding
        if finding is None or (finding.done() and not self._is_fresh(finding)):
            finding = self._finding = asyncio.ensure_future(self._find())
            finding.add_done_callback(self._found)
        # One who leaves must not take the answer from the others.
        return await asyncio.shield(finding)

    def forget(self) -> None:
        """Let the next who asks find it anew."""
        self._finding = None

    def _found(self, finding: asyncio.Future[T]) -> None:
        self._found_at = time.monotonic()
        if not finding.cancelled():
            # Those who asked may all have left: nobody else would ever look at it.
            finding.exception()

    def _is_fresh(self, finding: asyncio.Future[T]) -> bool:
        if finding.cancelled() or finding.exception():
            return False
        return time.monotonic() - self._found_at < self._for_s


class Health:
    """What is known of the doors of a process, which tells when each opens and closes."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._open: dict[str, Door] = {}
        self._ready = False
        self._verdicts = Coalesced(self._look, LOOK_EVERY_S)

    @property
    def ready(self) -> bool:
        """Whether all doors are open and nobody asked the process to stop."""
        return self._ready

    @property
    def open_doors(self) -> Sequence[Door]:
        """Those that can be asked."""
        return list(self._open.values())

    def expect(self, doors: Sequence[Door]) -> None:
        """Remember what will be opened."""
        self._states = dict.fromkeys((door.name for door in doors), "is not open yet")

    def opened(self, door: Door) -> None:
        """Check *door* from now on."""
        self._open[door.name] = door
        self._verdicts.forget()

    def serving(self) -> None:
        """All doors are open."""
        self._ready = True

    def stopping(self) -> None:
        """The process was asked to stop, or cannot go on: send nobody here any more."""
        self._ready = False

    def closing(self, door: Door) -> None:
        """Check *door* no more."""
        self._open.pop(door.name, None)
        self._states[door.name] = "is closed"
        self._verdicts.forget()

    async def look(self) -> dict[str, Verdict]:
        """Return of each door whether it serves, as it was at most `LOOK_EVERY_S` ago."""
        return await self._verdicts.get()

    async def _look(self) -> dict[str, Verdict]:
        doors = self.open_doors
        found = await asyncio.gather(*map(_verdict, doors))
        named = {door.name: verdict for door, verdict in zip(doors, found, strict=True)}
        closed = {name: Verdict(ok=False, why=why) for name, why in self._states.items()}
        return {name: named.get(name, verdict) for name, verdict in closed.items()}


async def _verdict(door: Door) -> Verdict:
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            await door.check()
    except TimeoutError:
        return Verdict(ok=False, why=f"no answer within {CHECK_WITHIN_S:g} s")
    except TamboError as error:
        return Verdict(ok=False, why=mask_url(str(error)))
    except Exception as error:  # noqa: BLE001  (whatever it is, the door does not serve)
        _log.exception("the check of %s failed", door.name)
        return Verdict(ok=False, why=mask_url(f"{type(error).__name__}: {error}"))
    return Verdict(ok=True)
