"""The health of the process: whether it is ready, and whether each component serves."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tambomq.errors import TamboError
from tambomq.log import mask_url
from tambomq.runtime.coalesced import Coalesced
from tambomq.serve.component import Component

CHECK_WITHIN_S: Final = 2.0
"""A component whose check takes longer is reported as failing."""
MAX_AGE_S: Final = 1.0
"""Results are cached for this long: probes and scrapes do not add up."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ComponentStatus:
    """Whether a component serves, and if not, why.

    One that serves only in part is *degraded*: it is ok, and *why* says what is missing.
    """

    ok: bool
    why: str = ""
    degraded: bool = False


class ProcessHealth:
    """The state of all components. The process reports when each starts and stops."""

    def __init__(self) -> None:
        self._not_started: dict[str, str] = {}
        self._started: dict[str, Component] = {}
        self._ready = False
        self._statuses = Coalesced(self._look, MAX_AGE_S)

    @property
    def ready(self) -> bool:
        """Whether all components are started and the process was not asked to stop."""
        return self._ready

    @property
    def started_components(self) -> Sequence[Component]:
        """The components that can be checked and asked for metrics."""
        return list(self._started.values())

    def expect(self, components: Sequence[Component]) -> None:
        """Report *components* as not started yet."""
        self._not_started = dict.fromkeys((each.name for each in components), "is not started yet")

    def started(self, component: Component) -> None:
        """Check *component* from now on."""
        self._started[component.name] = component
        self._statuses.invalidate()

    def serving(self) -> None:
        """All components are started."""
        self._ready = True

    def stopping(self) -> None:
        """The process was asked to stop, or cannot go on: report that it is not ready."""
        self._ready = False

    def stopped(self, component: Component) -> None:
        """No longer check *component*; report it as stopped."""
        self._started.pop(component.name, None)
        self._not_started[component.name] = "is stopped"
        self._statuses.invalidate()

    async def look(self) -> dict[str, ComponentStatus]:
        """Return the status of each component, at most `MAX_AGE_S` old."""
        return await self._statuses.get()

    async def _look(self) -> dict[str, ComponentStatus]:
        components = self.started_components
        found = await asyncio.gather(*map(_status, components))
        statuses = {each.name: status for each, status in zip(components, found, strict=True)}
        return {
            name: statuses.get(name, ComponentStatus(ok=False, why=why))
            for name, why in self._not_started.items()
        }


async def _status(component: Component) -> ComponentStatus:
    try:
        async with asyncio.timeout(CHECK_WITHIN_S):
            why = await component.check()
    except TimeoutError:
        return ComponentStatus(ok=False, why=f"no answer within {CHECK_WITHIN_S:g} s")
    except TamboError as error:
        return ComponentStatus(ok=False, why=mask_url(str(error)))
    except Exception as error:  # noqa: BLE001  (whatever it is, the component does not serve)
        _log.exception(
            "the check of %s failed", component.name, extra={"component": component.name}
        )
        return ComponentStatus(ok=False, why=mask_url(f"{type(error).__name__}: {error}"))
    return ComponentStatus(ok=True, why=mask_url(why or ""), degraded=bool(why))
