"""Every setting, its default and what it is for. No other file knows a default.

A section is a frozen dataclass of `setting` fields with a line in `Settings`: its keys, variables,
flags and its place in ``tambo.example.toml`` follow. Classes that can be used without settings,
such as servers, have the same defaults; a test compares them.
"""

# ruff: noqa: RUF009  (`setting` makes a field)
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tambomq.forms import (
    Count,
    Directory,
    File,
    Flag,
    Form,
    Host,
    Names,
    OneOf,
    Port,
    Seconds,
    Secret,
    Size,
    Url,
)
from tambomq.machine import default_data_dir, half_of_memory

__all__ = [
    "ChasquiSettings",
    "GomqSettings",
    "HttpSettings",
    "JournalSettings",
    "KqueueSettings",
    "LogSettings",
    "RsmqSettings",
    "ServerSettings",
    "Settings",
    "default_data_dir",
]

_KIB, _MIB, _U32, _I32 = 1 << 10, 1 << 20, (1 << 32) - 1, (1 << 31) - 1
_WHERE = "Where it listens; beyond loopback only with {}, or --insecure."
_PORT = "Where it listens; 0 takes any free port."
_CERT = "A certificate chain in PEM; with it and its key, only TLS is spoken."
_KEY = "The key of that certificate."
_CLIENT_CA = "Let only clients in whose certificate this authority has signed."


def setting(form: Form, default: Any, about: str, *, example: str = "", alias: str = "") -> Any:
    """Declare a field.

    *example* stands in the example file where the default has no TOML form; *alias* is a second
    flag for it.
    """
    metadata = {"form": form, "about": about, "example": example, "alias": alias}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    # What is not to be shown is not in the repr of its section either.
    return field(default=default, metadata=metadata, repr=not isinstance(form, Secret))


def switch(about: str, *, on: bool, alias: str = "") -> Any:
    """Declare a field that is *on* or off by default."""
    return setting(Flag(), on, about, alias=alias)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The Redis or Valkey server that holds the data."""

    redis_url: str | None = setting(
        Url("redis", "rediss", "unix"),
        None,
        "Use this server instead of the embedded one.",
        example='"redis://127.0.0.1:6379"',
    )
    redis_port: int = setting(
        Port(), 6379, "Where the embedded server listens, on loopback; 0 takes any free port."
    )
    redis_maxmemory: int = setting(
        Size(0, 1 << 50),
        half_of_memory,
        "What the embedded server's data may take; a full one refuses more. 0 is no limit.",
        example='"4GiB"',
    )
    redis_auth: bool = switch(
        "Let nobody into the embedded server without the password in the data directory.", on=False
    )
    data_dir: Path = setting(
        Directory(),
        default_data_dir,
        "Where the embedded server keeps its data.",
        example='"~/.local/share/tambomq"',
    )
    insecure: bool = switch(
        "Listen beyond loopback also where everybody who can reach it can use it.", on=False
    )


@dataclass(frozen=True, slots=True)
class RsmqSettings:
    """RSMQ, which clients speak with the Redis server itself."""

    enabled: bool = switch("Watch it: health and numbers of its queues.", on=True)


@dataclass(frozen=True, slots=True)
class ChasquiSettings:
    """ChasquiMQ: whose delayed jobs are released and whose recurring jobs are made here."""

    enabled: bool = switch("Lead queues, and watch them.", on=True)
    queue: tuple[str, ...] = setting(
        Names(), (), "A queue to lead; none means all that are found.", example='["emails"]'
    )


@dataclass(frozen=True, slots=True)
class GomqSettings:
    """GOMQ, over gRPC."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(Host(), "127.0.0.1", _WHERE.format("token and TLS"))
    port: int = setting(Port(), 10001, _PORT)
    transport: Literal["auto", "grpc", "envoy"] = setting(
        OneOf("auto", "grpc", "envoy"),
        "auto",
        "What speaks gRPC; auto is envoy, which is faster, where that extra is installed.",
    )
    peer_timeout_s: float = setting(
        Seconds(), 30.0, "A peer that has not observed for so long is disconnected."
    )
    max_message_bytes: int = setting(
        Size(64 * _KIB, _I32), 4 * _MIB, "The largest request that is taken."
    )
    max_peers: int = setting(Count(1, 10_000), 1000, "So many peers a consumer may have.")
    max_keys: int = setting(Count(1, 1000), 1000, "So many keys a consumer may be subscribed to.")
    max_connection_peers: int = setting(
        Count(1, 1_000_000), 1000, "So many peers may call through one connection."
    )
    max_backlog: int = setting(
        Count(1, 1_000_000_000),
        1_000_000,
        "So many messages may wait in a main queue, or for one peer; then Publish is refused.",
    )
    token: str | None = setting(
        Secret(),
        None,
        "Let only callers in who send this bearer token. A flag is seen by others: use the file.",
        example='"a-long-random-text"',
    )
    tls_cert: Path | None = setting(File(), None, _CERT, example='"/etc/tambo/gomq.pem"')
    tls_key: Path | None = setting(File(), None, _KEY, example='"/etc/tambo/gomq.key"')
    tls_client_ca: Path | None = setting(File(), None, _CLIENT_CA, example='"/etc/tambo/ca.pem"')


@dataclass(frozen=True, slots=True)
class KqueueSettings:
    """KqueueMsgQ, over TCP."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(Host(), "127.0.0.1", _WHERE.format("TLS and client certificates"))
    port: int = setting(Port(), 8000, _PORT)
    slow_consumer: Literal["disconnect", "drop", "block"] = setting(
        OneOf("disconnect", "drop", "block"),
        "disconnect",
        "What happens to a consumer whose buffer is full; block stops producers.",
    )
    max_connections: int = setting(Count(1, 1_000_000), 10_000, "So many clients at once.")
    max_name_bytes: int = setting(Size(1, _U32), 64 * _KIB, "The longest queue name.")
    max_message_bytes: int = setting(Size(1, _U32), 16 * _MIB, "The longest message.")
    max_buffer_bytes: int = setting(
        Size(_KIB, 1 << 40), 8 * _MIB, "So much may wait for one consumer."
    )
    handshake_s: float = setting(
        Seconds(), 10.0, "A client has so long to say whether it produces or consumes."
    )
    frame_s: float = setting(
        Seconds(), 30.0, "A frame has so long from its first byte to its last."
    )
    max_memory_bytes: int = setting(
        Size(_MIB, 1 << 40),
        256 * _MIB,
        "What all clients together may hold: unfinished frames, subscriptions, waiting messages.",
    )
    ok_replies: bool = switch(
        "Answer OK to whatever a client sends.", on=False, alias="--ok-replies"
    )
    tls_cert: Path | None = setting(File(), None, _CERT, example='"/etc/tambo/kqueue.pem"')
    tls_key: Path | None = setting(File(), None, _KEY, example='"/etc/tambo/kqueue.key"')
    tls_client_ca: Path | None = setting(File(), None, _CLIENT_CA, example='"/etc/tambo/ca.pem"')


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Journals: what passed through queues, with its bodies, until its readers have it."""

    patterns: tuple[str, ...] = setting(
        Names(),
        (),
        "Queues whose messages are recorded, such as kqueue:* or gomq:orders.",
        example='["kqueue:*", "gomq:orders"]',
        alias="--journal",
    )
    max_entries: int = setting(
        Count(2, 1_000_000_000), 1_000_000, "So many entries a journal holds that are not read."
    )
    max_bytes: int = setting(
        Size(_KIB, 1 << 40), 256 * _MIB, "So much a journal holds that is not read."
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """Health and numbers, over HTTP: /healthz, /readyz, /metrics, /stats, /endpoints."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(
        Host(), "127.0.0.1", "Where it listens; beyond loopback only with --insecure."
    )
    port: int = setting(Port(), 8090, _PORT)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is told on stderr."""

    level: str = setting(
        OneOf("debug", "info", "warning", "error"), "info", "The least that is told."
    )
    format: str = setting(OneOf("text", "json"), "text", "For people, or one JSON object a line.")


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a process is told at its start."""

    server: ServerSettings = field(default_factory=ServerSettings)
    rsmq: RsmqSettings = field(default_factory=RsmqSettings)
    chasqui: ChasquiSettings = field(default_factory=ChasquiSettings)
    gomq: GomqSettings = field(default_factory=GomqSettings)
    kqueue: KqueueSettings = field(default_factory=KqueueSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    log: LogSettings = field(default_factory=LogSettings)
