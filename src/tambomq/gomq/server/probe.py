"""Whether a GOMQ server of ours answers, asked through its own port as a client would."""

from __future__ import annotations

import asyncio
import ssl
from typing import Final

import grpc
from grpc_health.v1 import health_pb2

from tambomq.errors import BrokerUnavailable

PROBE_S: Final = 2.0
_CHECK: Final = "/grpc.health.v1.Health/Check"
# Bound to all addresses, it answers on this one.
_LOOPBACK: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "localhost"}  # noqa: S104  (asked for)


async def probe(host: str, port: int, *, tls: bool) -> None:
    """Return if the server at *host* answers. Raises `BrokerUnavailable`."""
    host = _LOOPBACK.get(host, host)
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if tls:
        await _greet(host, port, address)
    else:
        await _ask(address)


async def _ask(address: str) -> None:
    async with grpc.aio.insecure_channel(address) as channel:
        check = channel.unary_unary(
            _CHECK,
            health_pb2.HealthCheckRequest.SerializeToString,
            health_pb2.HealthCheckResponse.FromString,
        )
        try:
            reply = await check(health_pb2.HealthCheckRequest(), timeout=PROBE_S)
        except grpc.RpcError as error:
            raise BrokerUnavailable(address, getattr(error, "details", str)()) from error
    if reply.status != health_pb2.HealthCheckResponse.SERVING:
        raise BrokerUnavailable(address, "it cannot reach its store")


async def _greet(host: str, port: int, address: str) -> None:
    """Shake hands. Whether it would let us in is not asked: we have no certificate to show."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except (OSError, TimeoutError) as error:
        raise BrokerUnavailable(address, str(error) or "no answer in time") from error
    writer.transport.abort()
