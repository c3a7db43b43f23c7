"""The queues of KqueueMsgQ, which live in a ``tambo serve``: asked for at its HTTP port.

If none answers, or it demands a token, they are left out: `top` is about Redis first.
"""

from __future__ import annotations

import asyncio
import http.client
from typing import Final
from urllib.parse import urlsplit

import msgspec

from tambomq.console.model import Overview, QueueRow

HTTP_URL: Final = "http://127.0.0.1:8090"
PATH: Final = "/api/v1/overview"
_WITHIN_S: Final = 1.0
_MAX_BYTES: Final = 16 << 20
_OK: Final = 200


async def with_served(overview: Overview, http_url: str) -> Overview:
    """Return *overview* with the KqueueMsgQ queues that *http_url* knows, also in its totals."""
    if any(row.protocol == "kqueue" for row in overview.queues):
        return overview
    found = await asyncio.to_thread(served_rows, http_url)
    totals = msgspec.structs.replace(
        overview.totals,
        in_per_s=overview.totals.in_per_s + sum(row.in_per_s for row in found),
        out_per_s=overview.totals.out_per_s + sum(row.done_per_s for row in found),
    )
    return msgspec.structs.replace(overview, queues=[*overview.queues, *found], totals=totals)


def served_rows(http_url: str) -> list[QueueRow]:
    """Return the KqueueMsgQ queues of the process at *http_url*; none if it does not answer."""
    try:
        url = urlsplit(http_url)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        connection = kind(url.hostname or "", url.port, timeout=_WITHIN_S)
        try:
            connection.request("GET", url.path.rstrip("/") + PATH)
            reply = connection.getresponse()
            body = reply.read(_MAX_BYTES)
        finally:
            connection.close()
        if reply.status != _OK:
            return []
        overview = msgspec.json.decode(body, type=Overview)
    except (OSError, http.client.HTTPException, ValueError, msgspec.MsgspecError):
        return []
    return [row for row in overview.queues if row.protocol == "kqueue"]
