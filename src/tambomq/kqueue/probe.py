"""Health probe of a TamboMQ KqueueMsgQ server."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

from tambomq.errors import BrokerUnavailable
from tambomq.kqueue.connection import Role
from tambomq.kqueue.frames import OK

PROBE_S: Final = 2.0


async def probe(host: str, port: int, *, tls: bool = False) -> bool:
    """Return whether the server at *host* accepts the probe and answers ``OK``.

    False if it refuses the connection, for lack of a client certificate or of free
    connections: it is alive then. Raises `BrokerUnavailable` if it does not answer.
    """
    address = f"{host}:{port}"
    try:
        async with asyncio.timeout(PROBE_S):
            answer = await _send_probe(host, port, _unverified_context() if tls else None)
    except ssl.SSLError:
        return False
    except TimeoutError:
        raise BrokerUnavailable(address, f"no answer within {PROBE_S:g} s") from None
    except ConnectionResetError:
        return False
    except OSError as error:
        raise BrokerUnavailable(address, error) from error
    if answer not in (OK, b""):
        raise BrokerUnavailable(address, f"unexpected answer to a probe: {answer!r}")
    return answer == OK


async def _send_probe(host: str, port: int, context: ssl.SSLContext | None) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        writer.write(Role.PROBE.value)
        return await reader.readexactly(len(OK))
    except asyncio.IncompleteReadError as error:
        return error.partial
    finally:
        writer.transport.abort()


def _unverified_context() -> ssl.SSLContext:
    """Skip the verification: the probe tests whether the server answers, not its identity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context
