"""Asks a server for everything that ``tambo doctor`` judges. Writes one key that expires."""

from __future__ import annotations

import time
from typing import Any, Final

from tambomq.alarms.ops import read_alarms
from tambomq.chasqui.ops.leader import clock_ahead_ms
from tambomq.cli.doctor.commands import needed, permitted
from tambomq.cli.doctor.facts import RefusalReason, ServerReport
from tambomq.clock import now_ms
from tambomq.errors import StoreError, StoreRefused, TamboError
from tambomq.log import mask_url
from tambomq.rsmq.keys import NAMESPACE
from tambomq.store.call import Call
from tambomq.store.features import Features, features
from tambomq.store.probe import takes_writes
from tambomq.store.sync import Store

_SETTINGS: Final = ("save", "appendfsync", "min-replicas-to-write", "lazyfree-lazy-user-del")
_CLOCK_LOOKS: Final = 5
"""The answer that came soonest says most about the server's clock."""
_LOCAL: Final = ("127.0.0.1", "localhost", "::1")


def ask_server(store: Store, *, rsmq_ns: str = NAMESPACE) -> ServerReport:
    """Return the facts about the server of *store*, or why it cannot be asked."""
    endpoint = store.endpoint
    is_local = endpoint.path is not None or all(host in _LOCAL for host, _ in endpoint.nodes)
    url = str(endpoint)
    try:
        # Not PING: a server that cannot save refuses it like a write.
        store.run(_time())
        began = time.perf_counter()
        store.run(_time())
        round_trip_ms = (time.perf_counter() - began) * 1000
        found: Features = store.follow(features())
        ahead_s = _ahead_s(store)
    except StoreError as error:
        return ServerReport(url=url, is_local=is_local, unreachable=_refusal(error))
    info, user, alarms = store.outcomes(
        (
            Call("INFO", (), (), _fields, repeatable=True),
            Call("ACL WHOAMI", (), (), _decoded, repeatable=True),
            read_alarms(),
        )
    )
    forbidden, script_refused = _forbidden(store, rsmq_ns)
    return ServerReport(
        url=url,
        is_local=is_local,
        round_trip_ms=round_trip_ms,
        info={} if isinstance(info, TamboError) else info,
        config=_config(store),
        native=tuple(name for name in ("xackdel", "idmp", "claim") if getattr(found, name)),
        ahead_s=ahead_s,
        write_refused=_write_refused(store),
        script_refused=script_refused,
        alarms=() if isinstance(alarms, TamboError) else alarms,
        user=endpoint.user or "default" if isinstance(user, TamboError) else user,
        forbidden=forbidden,
        asked=() if script_refused else tuple(needed()),
    )


def _forbidden(store: Store, ns: str) -> tuple[dict[str, tuple[str, ...]], RefusalReason | None]:
    commands = needed(ns)
    outcomes = store.outcomes([permitted(words) for words in commands.values()])
    found: dict[str, tuple[str, ...]] = {}
    for (protocol, words), outcome in zip(commands.items(), outcomes, strict=True):
        if isinstance(outcome, TamboError):
            return {}, _refusal(outcome)
        refused = (each[0] for each, allowed in zip(words, outcome, strict=True) if not allowed)
        found[protocol] = tuple(dict.fromkeys(refused))
    return {protocol: names for protocol, names in found.items() if names}, None


def _write_refused(store: Store) -> RefusalReason | None:
    try:
        store.follow(takes_writes())
    except StoreError as error:
        return _refusal(error)
    return None


def _config(store: Store) -> dict[str, str]:
    """Return the settings that INFO does not have; an ACL may forbid to ask for them."""
    calls = [_pairs(name) for name in _SETTINGS]
    found: dict[str, str] = {}
    for outcome in store.outcomes(calls):
        found |= {} if isinstance(outcome, TamboError) else outcome
    return found


def _ahead_s(store: Store) -> float:
    """Return a lower bound of how far our clock is from the server's."""
    aheads = []
    for _ in range(_CLOCK_LOOKS):
        asked_ms = now_ms()
        server_ms = store.run(_time())
        aheads.append(clock_ahead_ms(asked_ms, server_ms, now_ms()))
    return max(aheads, key=abs) / 1000


def _refusal(error: TamboError) -> RefusalReason:
    # A refused login has no kind of its own.
    kind = getattr(error, "kind", "") or ("WRONGPASS" if isinstance(error, StoreRefused) else "")
    return RefusalReason(kind, mask_url(str(error)))


def _time() -> Call[int]:
    return Call("TIME", (), (), _milliseconds, repeatable=True)


def _pairs(name: str) -> Call[dict[str, str]]:
    return Call("CONFIG GET", (), (name,), _settings, repeatable=True)


def _fields(reply: Any) -> dict[str, str]:
    lines = _decoded(reply).split("\r\n")
    return dict(line.split(":", 1) for line in lines if ":" in line)


def _settings(reply: list[Any]) -> dict[str, str]:
    words = [_decoded(word) for word in reply]
    return dict(zip(words[::2], words[1::2], strict=True))


def _decoded(reply: Any) -> str:
    return reply.decode("utf-8", "replace") if isinstance(reply, bytes) else str(reply)


def _milliseconds(reply: list[bytes]) -> int:
    return int(reply[0]) * 1000 + int(reply[1]) // 1000
