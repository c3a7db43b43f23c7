"""The declarations of all settings, with their defaults. No other file has a default.

A section is a frozen dataclass of `setting` fields with a line in `Settings`: its keys, variables,
flags and its place in ``tambo.example.toml`` follow. Classes that can be used without settings,
such as servers, have the same defaults; a test compares them.
"""

# ruff: noqa: RUF009  (`setting` makes a field)
from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tambomq.machine import default_data_dir, half_of_memory
from tambomq.settings.durable_level import DurableLevel
from tambomq.settings.types import (
    Count,
    Directory,
    EnumText,
    File,
    Flag,
    Host,
    Names,
    Port,
    Seconds,
    Secret,
    Size,
    Url,
    ValueType,
)

__all__ = [
    "AccessSettings",
    "AlarmsSettings",
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
_HOST = "Host to listen on; beyond loopback only with {}, or --insecure."
_PORT = "Port to listen on; 0 takes any free one."
_CERT = "Certificate chain in PEM. With it and its key, only TLS connections are accepted."
_KEY = "Private key of that certificate."
_CLIENT_CA = "Accept only clients with a certificate signed by this authority."


def setting(
    form: ValueType, default: Any, about: str, *, example: str = "", alias: str = ""
) -> Any:
    """Declare a field.

    *example* stands in the example file where the default has no TOML form; *alias* is a second
    flag for it.
    """
    metadata = {"form": form, "about": about, "example": example, "alias": alias}
    if callable(default):
        return field(default_factory=default, metadata=metadata)
    # Secrets are left out of the repr of their section.
    return field(default=default, metadata=metadata, repr=not isinstance(form, Secret))


def switch(about: str, *, on: bool, alias: str = "") -> Any:
    """Declare a field that is *on* or off by default."""
    return setting(Flag(), on, about, alias=alias)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The Redis or Valkey server that holds the data."""

    redis_url: str | None = setting(
        Url("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel"),
        None,
        "Use this server, or the primary of these sentinels, instead of the embedded one.",
        example='"redis://127.0.0.1:6379"',
    )
    redis_port: int = setting(
        Port(), 6379, "Port of the embedded server, on loopback; 0 takes any free one."
    )
    redis_maxmemory: int = setting(
        Size(0, 1 << 50),
        half_of_memory,
        "Memory limit of the embedded server's data; when full it refuses writes. 0 is no limit.",
        example='"4GiB"',
    )
    redis_auth: bool = switch(
        "Require the password in the data directory from clients of the embedded server.", on=False
    )
    data_dir: Path = setting(
        Directory(),
        default_data_dir,
        "Directory of the embedded server's data.",
        example='"~/.local/share/tambomq"',
    )
    insecure: bool = switch(
        "Allow listening beyond loopback without TLS and authentication.", on=False
    )


@dataclass(frozen=True, slots=True)
class RsmqSettings:
    """RSMQ, whose clients talk to the Redis server directly."""

    enabled: bool = switch("Report the health and metrics of its queues.", on=True)


@dataclass(frozen=True, slots=True)
class ChasquiSettings:
    """ChasquiMQ: releases delayed jobs and creates recurring ones."""

    enabled: bool = switch("Lead queues, and report their metrics.", on=True)
    queue: tuple[str, ...] = setting(
        Names(), (), "A queue to lead; none means all that are found.", example='["emails"]'
    )


@dataclass(frozen=True, slots=True)
class GomqSettings:
    """GOMQ, over gRPC."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(Host(), "127.0.0.1", _HOST.format("token and TLS"))
    port: int = setting(Port(), 10001, _PORT)
    transport: Literal["auto", "grpc", "envoy"] = setting(
        EnumText("auto", "grpc", "envoy"),
        "auto",
        "Transport of gRPC; auto is envoy, which is faster, if that extra is installed.",
    )
    peer_timeout_s: float = setting(
        Seconds(), 30.0, "Disconnect a peer that has not observed for this long."
    )
    max_message_bytes: int = setting(Size(64 * _KIB, _I32), 4 * _MIB, "Maximum size of a request.")
    max_peers: int = setting(Count(1, 10_000), 1000, "Maximum number of peers of a consumer.")
    max_keys: int = setting(
        Count(1, 1000), 1000, "Maximum number of keys that a consumer is subscribed to."
    )
    max_connection_peers: int = setting(
        Count(1, 1_000_000), 1000, "Maximum number of peers that call through one connection."
    )
    max_backlog: int = setting(
        Count(1, 1_000_000_000),
        1_000_000,
        "Maximum number of messages in a main queue, or of one peer; then Publish is refused.",
    )
    max_backlog_bytes: int = setting(
        Size(0, 1 << 50), 0, "Maximum memory of a main queue; 0 for no limit."
    )
    message_ttl_s: float = setting(
        Seconds(315_360_000, zero=True),
        0.0,
        "Dead-letter a message that waits in a main queue for this long; 0 for no limit.",
    )
    overflow: Literal["refuse", "dead-letter"] = setting(
        EnumText("refuse", "dead-letter"),
        "refuse",
        "What becomes of messages of a full key; dead letters go to <key>-dead.",
    )
    durable: str = setting(
        DurableLevel(),
        "memory",
        "When a publish that asks for no level is confirmed: in memory, on disk, on N replicas.",
    )
    durable_timeout_s: float = setting(
        Seconds(3600.0), 5.0, "Refuse to confirm a publish that is not durable after this long."
    )
    token: str | None = setting(
        Secret(),
        None,
        "Bearer token that callers must send. Other users can see flags: set it in the file.",
        example='"a-long-random-text"',
    )
    tls_cert: Path | None = setting(File(), None, _CERT, example='"/etc/tambo/gomq.pem"')
    tls_key: Path | None = setting(File(), None, _KEY, example='"/etc/tambo/gomq.key"')
    tls_client_ca: Path | None = setting(File(), None, _CLIENT_CA, example='"/etc/tambo/ca.pem"')


@dataclass(frozen=True, slots=True)
class KqueueSettings:
    """KqueueMsgQ, over TCP."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(Host(), "127.0.0.1", _HOST.format("TLS and client certificates"))
    port: int = setting(Port(), 8000, _PORT)
    slow_consumer: Literal["disconnect", "drop", "block"] = setting(
        EnumText("disconnect", "drop", "block"),
        "disconnect",
        "Policy for a consumer whose buffer is full; block stops producers.",
    )
    max_connections: int = setting(
        Count(1, 1_000_000), 10_000, "Maximum number of clients at once."
    )
    max_name_bytes: int = setting(Size(1, _U32), 64 * _KIB, "Maximum length of a queue name.")
    max_message_bytes: int = setting(Size(1, _U32), 16 * _MIB, "Maximum length of a message.")
    max_buffer_bytes: int = setting(
        Size(_KIB, 1 << 40), 8 * _MIB, "Maximum size of the buffer of one consumer."
    )
    handshake_s: float = setting(
        Seconds(), 10.0, "Timeout for a client to send its role, producer or consumer."
    )
    frame_s: float = setting(Seconds(), 30.0, "Timeout from the first byte of a frame to its last.")
    max_memory_bytes: int = setting(
        Size(_MIB, 1 << 40),
        256 * _MIB,
        "Memory limit of all clients: incomplete frames, subscriptions, pending messages.",
    )
    ok_replies: bool = switch(
        "Reply OK to everything a client sends.", on=False, alias="--ok-replies"
    )
    journal_durable: str = setting(
        DurableLevel(),
        "memory",
        "What the recorder of journals waits for after each batch: memory, disk, replicas:N.",
    )
    tls_cert: Path | None = setting(File(), None, _CERT, example='"/etc/tambo/kqueue.pem"')
    tls_key: Path | None = setting(File(), None, _KEY, example='"/etc/tambo/kqueue.key"')
    tls_client_ca: Path | None = setting(File(), None, _CLIENT_CA, example='"/etc/tambo/ca.pem"')


@dataclass(frozen=True, slots=True)
class JournalSettings:
    """Journals: records of the messages of queues, kept until their readers have committed them."""

    patterns: tuple[str, ...] = setting(
        Names(),
        (),
        "Queues whose messages are recorded, such as kqueue:* or gomq:orders.",
        example='["kqueue:*", "gomq:orders"]',
        alias="--journal",
    )
    max_entries: int = setting(
        Count(2, 1_000_000_000), 1_000_000, "Maximum number of unread entries of a journal."
    )
    max_bytes: int = setting(
        Size(_KIB, 1 << 40), 256 * _MIB, "Maximum size of the unread entries of a journal."
    )


@dataclass(frozen=True, slots=True)
class AlarmsSettings:
    """Alarms: levels of memory, disk and queue length at which producers are stopped."""

    enabled: bool = switch("Measure, and raise alarms.", on=True)
    stop_producers: Literal["auto", "on", "off"] = setting(
        EnumText("auto", "on", "off"),
        "auto",
        "Refuse messages while an alarm is raised; auto does so on the embedded server alone.",
    )
    every_s: float = setting(Seconds(60), 1.0, "Time between two measurements.")
    memory_high_percent: int = setting(
        Count(0, 100), 90, "Raise an alarm at this share of maxmemory; 0 is never."
    )
    memory_low_percent: int = setting(Count(0, 100), 80, "Clear it below this share.")
    disk_free_min: int = setting(
        Size(0, 1 << 50),
        256 * _MIB,
        "Raise an alarm if less is free on the disk of the embedded server; of a small disk, less "
        "than a quarter. 0 is never.",
    )
    disk_free_clear: int = setting(
        Size(0, 1 << 50),
        512 * _MIB,
        "Clear it when this much is free again; of a small disk, half.",
    )
    directory: tuple[str, ...] = setting(
        Names(),
        (),
        "Another directory whose disk is watched, such as that of the lake.",
        example='["/srv/lake"]',
    )
    queue_length: int = setting(
        Count(0, 1_000_000_000),
        0,
        "Raise an alarm for a queue with this many messages, and stop its producers; 0 is never.",
    )
    queue_length_clear: int = setting(
        Count(0, 1_000_000_000), 0, "Clear it below this many; 0 is nine tenths of queue_length."
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The console, and /healthz, /readyz, /metrics, /stats, /endpoints, over HTTP."""

    enabled: bool = switch("Serve it.", on=True)
    host: str = setting(Host(), "127.0.0.1", _HOST.format("token and TLS"))
    port: int = setting(Port(), 8090, _PORT)
    console: bool = switch(
        "Serve the console too; beyond loopback it needs a token, even with --insecure.", on=True
    )
    read_only: bool = switch("Let nobody change anything with the console.", on=False)
    token: str | None = setting(
        Secret(),
        None,
        "Token with which an operator logs in to the console. Other users can see flags: set it "
        "in the file.",
        example='"a-long-random-text"',
    )
    viewer_token: str | None = setting(
        Secret(),
        None,
        "Token with which a viewer logs in, who can change nothing.",
        example='"another-random-text"',
    )
    allowed_host: tuple[str, ...] = setting(
        Names(),
        (),
        "A host name under which browsers may open the console, such as that of a proxy.",
        example='["queues.example.com"]',
    )
    tls_cert: Path | None = setting(File(), None, _CERT, example='"/etc/tambo/http.pem"')
    tls_key: Path | None = setting(File(), None, _KEY, example='"/etc/tambo/http.key"')
    tls_client_ca: Path | None = setting(File(), None, _CLIENT_CA, example='"/etc/tambo/ca.pem"')


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Users and their rights, for GOMQ, KqueueMsgQ and HTTP; without either, there are none."""

    file: Path | None = setting(
        File(),
        None,
        "File of users, which `tambo access` writes; with it every call needs a user.",
        example='"/etc/tambo/users.toml"',
    )
    redis: bool = switch("Keep the users in Redis instead of a file.", on=False)


@dataclass(frozen=True, slots=True)
class LogSettings:
    """Logging to stderr."""

    level: str = setting(
        EnumText("debug", "info", "warning", "error"), "info", "Minimum level that is logged."
    )
    format: str = setting(
        EnumText("text", "json"), "text", "Text lines, or one JSON object per line."
    )


@dataclass(frozen=True, slots=True)
class Settings:
    """All settings of a process."""

    server: ServerSettings = field(default_factory=ServerSettings)
    rsmq: RsmqSettings = field(default_factory=RsmqSettings)
    chasqui: ChasquiSettings = field(default_factory=ChasquiSettings)
    gomq: GomqSettings = field(default_factory=GomqSettings)
    kqueue: KqueueSettings = field(default_factory=KqueueSettings)
    journal: JournalSettings = field(default_factory=JournalSettings)
    alarms: AlarmsSettings = field(default_factory=AlarmsSettings)
    http: HttpSettings = field(default_factory=HttpSettings)
    access: AccessSettings = field(default_factory=AccessSettings)
    log: LogSettings = field(default_factory=LogSettings)
