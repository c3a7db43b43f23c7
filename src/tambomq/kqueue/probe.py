"""Whether a KqueueMsgQ server of ours answers."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from tambomq.errors import BrokerUnavailable
from tambomq.kqueue.connection import Role
from tambomq.kqueue.frames import OK

PROBE_S: Final = 2.0


async def probe(host: str, port: int, *, tls: bool = False) -> bool:
    """Return whether the server at *host* lets a stranger in; its answer is then ``OK``.

    Not being let in, for want of a certificate or of room, is a sign of life too. Raises
    `BrokerUnavailable` without one.
    """
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(PROBE_S):
            answer = await _ask(host, port, _anybody() if tls else None)
    except ssl.SSLError:
        return False
    except TimeoutError:
        raise BrokerUnavailable(address, f"no answer within {PROBE_S:g} s") from None
    except ConnectionResetError:
        return False
    except OSError as error:
        raise BrokerUnavailable(address, error) from error
    if answer not in (OK, b""):
        raise BrokerUnavailable(address, f"it answers {answer!r} to a probe")
    return answer == OK


async def _ask(host: str, port: int, context: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(Role.PROBE.value)
        return await reader.readexactly(len(OK))
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.transport.abort()


def _anybody() -> ssl.SSLContext:
    """What is asked is whether it answers, not who it is."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
