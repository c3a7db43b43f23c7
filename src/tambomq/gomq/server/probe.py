"""A health check of a GOMQ server through its own port, as a client would make it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from tambomq.errors import BrokerUnavailable
from tambomq.text import format_address

PROBE_TIMEOUT_S: Final = 2.0
_CHECK: Final = "/grpc.health.v1.Health/Check"
# A server that is bound to all addresses answers on these.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "localhost"}  # noqa: S104  (asked for)


async def probe(host: str, port: int, *, tls: bool) -> None:
    """Check that the server at *host* answers. Raises `BrokerUnavailable`."""
    host = _LOOPBACK.get(host, host)
    address = format_address(host, port)
    if tls:
        await _handshake(host, port, address)
    else:
        await _check_health(address)


async def _check_health(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            _CHECK,
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        try:
            reply = await check(health_pb2.HealthCheckRequest(), timeout=PROBE_TIMEOUT_S)
        except grpc.RpcError as error:
            raise BrokerUnavailable(address, getattr(error, "details", str)()) from error
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise BrokerUnavailable(address, "it cannot reach Redis")


async def _handshake(host: str, port: int, address: str) -> None:
    """Make a TLS handshake; no call, since we may lack a client certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise BrokerUnavailable(address, str(error) or "no answer in time") from error
    writer.transport.abort()
