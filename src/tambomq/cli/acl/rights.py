"""The least rights that a user needs in Redis: commands, keys and channels, by role.

Each command is one that the role's clients run, also inside of their scripts: a test runs all
that a role does and compares. AUTH and HELLO are missing, because no ACL can forbid them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, Literal

import msgspec

from tambomq.chasqui import keys as chasqui_keys
from tambomq.errors import InvalidFormat, InvalidValue
from tambomq.gomq import keys as gomq_keys
from tambomq.journal import keys as journal_keys
from tambomq.rsmq.keys import DEAD_SUFFIX, NAMESPACE, Keys
from tambomq.store.keys import barrier

Role = Literal["producer", "consumer", "operator", "pipeline"]
Protocol = Literal["rsmq", "chasqui", "gomq", "kqueue"]

ROLES: Final[tuple[Role, ...]] = ("producer", "consumer", "operator", "pipeline")
PROTOCOLS: Final[tuple[Protocol, ...]] = ("rsmq", "chasqui", "gomq", "kqueue")
_OF_CLIENTS: Final[tuple[Protocol, ...]] = ("rsmq", "chasqui")
# Only a pipeline touches the keys of GOMQ, and the journals of KqueueMsgQ.
PROTOCOLS_OF: Final[dict[Role, tuple[Protocol, ...]]] = {
    "producer": _OF_CLIENTS,
    "consumer": _OF_CLIENTS,
    "operator": _OF_CLIENTS,
    "pipeline": PROTOCOLS,
}

_CONNECTION: Final = "client|setname select eval evalsha time"
_COMMANDS: Final[dict[tuple[Protocol, Role], str]] = {
    ("rsmq", "producer"): (
        "exists hexists hgetall hincrby hmget hset publish sadd zadd zcard zcount zmscore "
        "zrangebylex zrem"
    ),
    ("rsmq", "consumer"): (
        "hdel hexists hget hgetall hincrby hmget hrandfield hscan hset hstrlen pexpire pttl "
        "publish sadd subscribe unsubscribe zadd zcard zcount zmscore zrange zrangebyscore zrem "
        "zscore"
    ),
    ("chasqui", "producer"): (
        "command|docs command|info del exists get hdel hget hlen hmget hset pexpire set sismember "
        "xadd xinfo|consumers xinfo|groups xlen xrange xread xrevrange xtrim zadd zcard zrange "
        "zrangebyscore zrem zremrangebyrank zremrangebyscore zscore"
    ),
    ("chasqui", "consumer"): (
        "client|id client|unblock command|docs command|info del exists expire get hdel hexists "
        "hget hlen hset pexpire sadd set sismember srem subscribe unlink unsubscribe xack xadd "
        "xclaim xdel xgroup|create xgroup|delconsumer xinfo|consumers xinfo|groups xlen xpending "
        "xrange xreadgroup xtrim zadd zcard zrange zrangebyscore zrem zremrangebyrank zscore"
    ),
    ("rsmq", "operator"): (
        "exists hdel hexists hget hgetall hincrby hlen hmget hrandfield hscan hset hstrlen "
        "pexpire pttl publish sadd set smembers srem unlink xadd "
        "xinfo|stream xlen xrange zadd zcard zcount zmscore zrange zrangebylex zrangebyscore zrank "
        "zrem zscan zscore"
    ),
    ("chasqui", "operator"): (
        "command|docs command|info del exists expire get getrange hdel hexists hget hgetall hlen "
        "hmget hset pexpire publish scan set sismember smembers strlen "
        "unlink xack xadd xdel xinfo|consumers xinfo|groups xinfo|stream xlen xpending xrange "
        "xrevrange xtrim zadd zcard zrange zrangebyscore zrem zremrangebyrank zremrangebyscore "
        "zscan zscore"
    ),
    ("rsmq", "pipeline"): (
        "cluster|slots del exists expire hdel hexists hget hgetall hincrby hlen hmget hscan hset "
        "hsetnx hstrlen llen lpop lrange ltrim persist pexpire pttl rpush sadd scan sismember "
        "smembers srem sscan type unlink xadd xdel xinfo|stream xlen xrange xrevrange xtrim zadd "
        "zcard zcount zmscore zrange zrangebylex zrangebyscore zrem zscan zscore"
    ),
    ("chasqui", "pipeline"): (
        "cluster|slots del exists expire get hdel hexists hget hgetall hincrby hlen hmget hset "
        "hsetnx llen lpop lrange ltrim persist pexpire pttl rpush sadd scan set smembers srem "
        "type unlink xack xadd xclaim xdel xgroup|create xgroup|delconsumer xinfo|groups "
        "xinfo|stream xlen xpending xrange xreadgroup xrevrange xtrim zadd zcard zcount zmscore "
        "zrange zrem zremrangebyrank zremrangebyscore zscan zscore"
    ),
    ("gomq", "pipeline"): (
        "cluster|slots del exists expire get hdel hexists hget hgetall hincrby hlen hmget "
        "hrandfield hset hsetnx incr llen lpop lpush lrange ltrim persist pexpire publish rename "
        "rpush sadd scan scard set sismember smembers spop srem sscan strlen sunionstore "
        "unlink xadd xinfo|stream xlen xrange xrevrange xtrim zadd zcount zrem zremrangebyscore "
        "zrevrangebyscore zscore"
    ),
    ("kqueue", "pipeline"): (
        "cluster|slots exists expire hget hgetall hmget hset scan xadd xinfo|stream xlen xrange "
        "xrevrange xtrim"
    ),
}
# Valkey and older releases of Redis refuse an ACL that names a command they do not know.
_ONLY_REDIS8: Final[dict[tuple[Protocol, Role], str]] = {("chasqui", "consumer"): "xackdel"}

# With CONFIG GET, durable sends would be faster on some servers, but it shows passwords.
_DURABLE: Final = "del info set wait waitaof"

_NOT_ALLOWED: Final[dict[tuple[Protocol, Role], str]] = {
    ("rsmq", "producer"): "to receive, peek, delete or purge, and to list, change or delete queues",
    ("rsmq", "consumer"): "to purge, and to list, change or delete queues",
    ("chasqui", "producer"): "to run jobs, cancel running ones, replay, pause, drain or clean",
    ("chasqui", "consumer"): "to list, pause, drain or replay with our commands",
    ("rsmq", "operator"): "to be administrator: CONFIG, backups, users",
    ("chasqui", "operator"): "to run workers, promoters and schedulers, or to be administrator",
    ("rsmq", "pipeline"): "to create, change or delete queues",
    ("chasqui", "pipeline"): "to run workers, promoters and schedulers",
    ("gomq", "pipeline"): "to serve GOMQ",
    ("kqueue", "pipeline"): "anything but its journals",
}

_RSMQ_PATTERN: Final = re.compile(r"[A-Za-z0-9_.*?-]{1,160}", re.ASCII)
_UNQUOTABLE: Final = re.compile(r"[\s\"']|[^\x20-\x7e\x80-\U0010ffff]")
_GLOB_BUT_WILDCARDS: Final = re.compile(r"([\\\[\]^])")
_GLOB: Final = re.compile(r"([\\*?\[\]^])")
_USER: Final = re.compile(r"[A-Za-z0-9_.@:-]{1,160}", re.ASCII)


class Rights(msgspec.Struct, frozen=True):
    """What a user may do, as Redis and Valkey understand it."""

    commands: list[str]
    """Names, those of subcommands as ``xinfo|groups``."""
    keys: list[str]
    """Globs."""
    channels: list[str]
    """Globs."""

    def rule(self, user: str) -> str:
        """Return the command that gives *user* these rights and no others; passwords stay."""
        keys, channels = (f"~{key}" for key in self.keys), (f"&{each}" for each in self.channels)
        commands = (f"+{name}" for name in self.commands)
        start = ("ACL SETUSER", check_user(user), "on clearselectors resetkeys resetchannels -@all")
        return " ".join((*start, *keys, *channels, *commands))


def rights_of(
    role: Role,
    protocols: Iterable[Protocol] = (),
    queues: Sequence[str] = ("*",),
    *,
    ns: str = NAMESPACE,
    redis8: bool = False,
    durable: bool = False,
) -> Rights:
    """Return the least rights of *role* for queues that match the patterns *queues*.

    *protocols*: all that the role has, unless given. *redis8*: also commands that only Redis 8.2
    and later know, which our clients use there. *durable*: also sends to disk or replicas, of
    clients only.
    """
    if durable and role not in _DURABLE_ROLES:
        raise InvalidValue("durable", role, f"for a {' or '.join(_DURABLE_ROLES)}")
    commands, keys, channels = set(_CONNECTION.split()), list[str](), list[str]()
    commands.update(_DURABLE.split() if durable else ())
    for protocol in dict.fromkeys(protocols or PROTOCOLS_OF[role]):
        if protocol not in PROTOCOLS_OF[role]:
            known = " or ".join(PROTOCOLS_OF[role])
            raise InvalidValue("protocol", protocol, f"{known} for a {role}")
        commands.update(_COMMANDS[protocol, role].split())
        if redis8:
            commands.update(_ONLY_REDIS8.get((protocol, role), "").split())
        for queue in queues:
            names = _names(protocol, role, queue, ns)
            keys += names[0]
            if durable and protocol == "rsmq":
                keys.append(barrier(Keys(_quotable("namespace", ns)).messages(queue)))
            channels += names[1]
            if role in _LOOKS_AT_JOURNALS:
                keys.append(_journals(protocol, queue, ns))
    return Rights(sorted(commands), _without_covered(keys), _without_covered(channels))


def not_allowed(role: Role, protocol: Protocol) -> str:
    """Return what *role* may not do, in words."""
    return _NOT_ALLOWED[protocol, role]


def check_user(name: str) -> str:
    """Return *name* if it may name a user in a line that is pasted; raise if not."""
    if _USER.fullmatch(name) is None:
        raise InvalidFormat("user name", name, "1 to 160 of A-Z a-z 0-9 _ . @ : -")
    return name


Names = tuple[list[str], list[str]]
"""Keys and channels."""


_DURABLE_ROLES: Final[tuple[Role, ...]] = ("producer", "operator")
_LOOKS_AT_JOURNALS: Final[tuple[Role, ...]] = ("operator", "pipeline")


def _journals(protocol: Protocol, queue: str, ns: str) -> str:
    """Return a glob of all keys of the journals, and of nothing else."""
    within = f"{ns}:" if protocol == "rsmq" and ns != NAMESPACE else ""
    name = _GLOB.sub(r"\\\1", within) + _GLOB_BUT_WILDCARDS.sub(r"\\\1", queue)
    return journal_keys.any_of(protocol).replace("*", name, 1).removesuffix("journal") + "*"


def _names(protocol: Protocol, role: Role, queue: str, ns: str) -> Names:
    if protocol == "rsmq":
        return _rsmq(role, queue, ns)
    if protocol == "chasqui":
        return _chasqui(role, queue)
    _quotable("queue pattern", queue)
    return (_gomq(queue), [gomq_keys.CHANNEL + "*"]) if protocol == "gomq" else ([], [])


def _gomq(queue: str) -> list[str]:
    """Return globs of a key's own keys, and of those that consumers and peers share."""
    key = _GLOB_BUT_WILDCARDS.sub(r"\\\1", queue)
    own = (gomq_keys.queue, gomq_keys.consumers, gomq_keys.tally, gomq_keys.leaving)
    names = [each(key) for each in (*own, gomq_keys.unsubscribed, gomq_keys.leases)]
    names += [gomq_keys.lists(key) + "*", gomq_keys.fence(key, "*"), gomq_keys.origins(key, "*")]
    named = (gomq_keys.LEASE, gomq_keys.MOVE, gomq_keys.TRANSIT)
    names += [f"{each}*:{key}" for each in named] + [f"{gomq_keys.LEFT}*_{key}"]
    shared = (gomq_keys.SUBSCRIPTIONS, gomq_keys.PEERS, gomq_keys.LASTACTION, gomq_keys.HANDED)
    names += [f"{each}*" for each in (*shared, gomq_keys.LEAVERS)]
    fixed = (gomq_keys.SUBSCRIBED_KEYS, gomq_keys.UNSETTLED, gomq_keys.ASIDE, gomq_keys.HELD)
    return [*names, *fixed]


def _rsmq(role: Role, queue: str, ns: str) -> Names:
    if _RSMQ_PATTERN.fullmatch(queue) is None:
        raise InvalidFormat("queue pattern", queue, "1 to 160 of A-Z a-z 0-9 _ - . * ?")
    keys = Keys(_GLOB.sub(r"\\\1", _quotable("namespace", ns)))
    dead = queue + DEAD_SUFFIX
    if role in _LOOKS_AT_JOURNALS:
        channels = [keys.realtime_channel(queue)] if role == "operator" else []
        return [keys.queues, *keys.patterns(queue), *keys.patterns(dead)], channels
    names = [keys.queues, keys.messages(queue), keys.data(queue), f"{keys.messages(queue)}:bounds*"]
    names += [keys.messages(dead), keys.data(dead)]
    channels = [keys.realtime_channel(queue)]
    if role == "consumer":
        names.append(keys.receipts(queue))
        channels.append(keys.realtime_channel(dead))
    return names, channels


def _chasqui(role: Role, queue: str) -> Names:
    pattern = _GLOB_BUT_WILDCARDS.sub(r"\\\1", _quotable("queue pattern", queue))
    channels = [chasqui_keys.Keys(pattern).cancels] if role == "consumer" else []
    return [chasqui_keys.ANY_QUEUE.replace("*", pattern, 1)], channels


def _quotable(what: str, text: str) -> str:
    if not text or _UNQUOTABLE.search(text):
        raise InvalidFormat(what, text, "without spaces, quotes and control characters in an ACL")
    return text


def _without_covered(patterns: Iterable[str]) -> list[str]:
    """Return *patterns* without those that another one, a prefix and ``*``, includes."""
    each = list(dict.fromkeys(patterns))
    prefixes = [p[:-1] for p in each if p.endswith("*") and not _GLOB.search(p[:-1])]
    return [
        pattern
        for pattern in each
        if not any(pattern.startswith(p) and pattern != f"{p}*" for p in prefixes)
    ]
