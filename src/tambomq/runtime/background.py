"""Background work of a server, which must not end while the server runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final

from tambomq.clock import backoff_delays

_LONGEST_PAUSE_S: Final = 5.0

_log: Final = logging.getLogger(__name__)


async def keep_running(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Await *work* until it returns; if it raises, log that and start it again after a pause.

    Loops handle the errors they expect. Without this, one that nobody expected would end the work
    for good, and nothing would show it.
    """
    pauses = backoff_delays(first_s=0.1, longest_s=_LONGEST_PAUSE_S)
    while True:
        try:
            return await work()
        except Exception:  # noqa: BLE001  (logged, and started again)
            _log.exception("%s failed; starting it again", getattr(work, "__qualname__", work))
        await asyncio.sleep(next(pauses))
