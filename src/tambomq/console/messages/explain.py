"""Why a message is not running: decided from a `Situation`, in words. No Redis, no clock.

A message passes gates in order. The first one that is shut holds it now, further ones hold it next.
"""

from __future__ import annotations

from typing import Final, Literal

from tambomq.console.messages.gates import Shut, gates, limiter_gate, takes
from tambomq.console.messages.model import Explanation, Gate
from tambomq.console.messages.phrases import ago, count, duration, ordinal
from tambomq.console.messages.situation import Holder, Situation

_MOSTLY_FAILS: Final = 0.5
_NO_CONSUMERS: Final = (
    "RSMQ does not know its consumers: whether one is alive shows in the receives."
)


def explain(it: Situation) -> Explanation:
    """Return why a message is not running, and every gate with its verdict."""
    match it.state:
        case "done":
            return Explanation(headline=_done(it))
        case "dead":
            return _dead(it)
        case "in_flight":
            return _in_flight(it)
    found = list(gates(it))
    headline, detail = _waits(it, next((name for name, _, is_shut in found if is_shut), ""))
    return Explanation(headline=headline, detail=detail, gates=_with_verdicts(found))


def _with_verdicts(shut: list[Shut]) -> list[Gate]:
    found = []
    verdict: Literal["holds", "next"] = "holds"
    for name, now, is_shut in shut:
        found.append(Gate(name=name, now=now, verdict=verdict if is_shut else "open"))
        if is_shut:
            verdict = "next"
    return found


def _waits(it: Situation, gate: str) -> tuple[str, str]:
    """Return headline and detail of a message that waits at *gate*; '' if all are open."""
    if gate == "":
        return _ready(it)
    if gate == "Due time":
        return _not_due(it), _after_due(it)
    if gate == "Line":
        return _in_line(it), _NO_CONSUMERS if it.protocol == "rsmq" else ""
    left = ago(it.limited_until_ms or it.now_ms, it.now_ms)
    late = ago(it.due_ms or it.now_ms, it.now_ms)
    sentences = {
        "Promoter": (
            f"It was due {late}, and no process puts due jobs in line.",
            "A worker of the queue does, and so does `tambo serve`: start one.",
        ),
        "Pause": ("It waits because the queue is paused.", "It runs once the queue is resumed."),
        "Workers": ("It waits because no worker is alive.", "Start a worker of this queue."),
        "Limiter": (f"It waits for the rate limiter, which lets more start {left}.", ""),
    }
    return sentences.get(gate) or _gomq_waits(it, gate)


def _not_due(it: Situation) -> str:
    left = ago(it.due_ms or it.now_ms, it.now_ms)
    if it.runs:
        return f"It waits for its {ordinal(it.runs + 1)} run, due {left}."
    if it.protocol == "rsmq":
        return f"It was sent with a delay and becomes visible {left}."
    return f"It is delayed: its first run is due {left}."


def _after_due(it: Situation) -> str:
    parts = []
    if it.runs and it.error:
        budget = f" of {it.max_runs}" if it.max_runs else ""
        parts.append(f"Run {it.runs}{budget} failed: {it.error}.")
    if it.failing is not None and it.failing >= _MOSTLY_FAILS:
        parts.append(f"Of the queue's recent runs {it.failing:.0%} failed, so this one may too.")
    return " ".join(parts)


def _in_line(it: Situation) -> str:
    ahead = it.line.ahead if it.state != "delayed" else it.line.waiting
    more = "" if it.line.is_exact else "more than "
    others = f"{more}{ahead or 0:,} {'other' if ahead == 1 else 'others'}"
    return f"It waits in line behind {others}{takes(ahead or 0, it.line.per_s)}."


def _ready(it: Situation) -> tuple[str, str]:
    if it.protocol == "rsmq":
        never = "" if it.runs else " No consumer has received it yet."
        return "It is visible and the next to be received.", f"{_NO_CONSUMERS}{never}"
    if it.protocol == "gomq":
        peer = it.holder.name if it.holder else "its peers"
        return f"It waits for {peer} to observe.", ""
    if it.state == "delayed":
        return "It is due and joins the line in a moment.", ""
    return "It is the next in line: a worker takes it in a moment.", ""


def _gomq_waits(it: Situation, gate: str) -> tuple[str, str]:
    sentences = {
        "Consumers": "It waits in the main queue because no consumer is subscribed to the key.",
        "Peers": "It waits in the main queue because no peer of a consumer is connected.",
        "Backlog": "It waits a moment, so that other peers can subscribe and share the backlog.",
        "Full peer": f"It waits because {it.full_peer} does not observe what it has.",
        "Departed peers": "It waits until messages of departed peers are put back before it.",
    }
    if gate == "Peer" and it.holder is not None and it.holder.silent_s is not None:
        silent = duration(it.holder.silent_s)
        return (
            f"The peer {it.holder.name} has not observed for {silent}.",
            "It is disconnected when the server finds it silent; then the message goes to others.",
        )
    return sentences.get(gate, "It waits."), ""


def _in_flight(it: Situation) -> Explanation:
    holder = it.holder or Holder()
    name = holder.name or "A consumer"
    if holder.lease:
        return _leased(it, holder)
    if it.protocol == "gomq":
        seen = "" if holder.silent_s is None else f" It observed {duration(holder.silent_s)} ago."
        return Explanation(
            headline=f"{name} has received it and not acknowledged the batch.{seen}",
            gates=[Gate(name="Acknowledgement", now=f"Waits for {name}", verdict="holds")],
        )
    if it.protocol == "rsmq":
        left = "" if holder.until_ms is None else f" {ago(holder.until_ms, it.now_ms)}"
        times = f"for the {ordinal(it.runs)} time " if it.runs > 1 else ""
        return Explanation(
            headline=f"A consumer has received it {times}and it is hidden: visible again{left}.",
            detail="It is deleted when the consumer is done, and visible again if it is not.",
            gates=[Gate(name="Visibility timeout", now=f"Ends{left}", verdict="holds")],
        )
    return _running(it, holder, name)


def _running(it: Situation, holder: Holder, name: str) -> Explanation:
    silent_s, takeover_s = holder.silent_s or 0.0, holder.takeover_s or 0.0
    renewed = f"{name} has it and renewed it {duration(silent_s)} ago"
    if takeover_s and silent_s > takeover_s:
        return Explanation(
            headline=f"Its worker {name} has been silent for {duration(silent_s)}.",
            detail="Another worker takes it over as soon as one has a free place."
            + ("" if it.workers else " No worker is alive now: start one."),
            gates=[Gate(name="Lease", now=renewed, verdict="holds")],
        )
    if it.is_read_ahead:
        return _read_ahead(it, name, renewed)
    detail = "The queue is paused: jobs that run end, others do not start." if it.paused else ""
    return Explanation(
        headline=f"It runs on {name}, for the {ordinal(max(1, it.runs))} time.",
        detail=detail,
        gates=[Gate(name="Lease", now=renewed, verdict="open")],
    )


def _read_ahead(it: Situation, name: str, renewed: str) -> Explanation:
    """Explain a job that its worker has fetched, and will start."""
    found: list[Shut] = [("Lease", renewed, False)]
    if it.paused is not None:
        paused = "The queue is paused" if it.paused else "The queue is not paused"
        found.append(("Pause", paused, it.paused))
    if it.limit_started is not None or it.limited_until_ms is not None:
        found.append(limiter_gate(it))
    found.append(("Place", f"{name} has not begun to run it", True))
    left = ago(it.limited_until_ms or it.now_ms, it.now_ms)
    headlines = {
        "Pause": "It waits because the queue is paused.",
        "Limiter": f"It waits for the rate limiter, which lets more start {left}.",
        "Place": "It waits for a free place of its worker.",
    }
    gate = next(gate for gate, _, is_shut in found if is_shut)
    detail = f"{name} has fetched it ahead, and starts it then."
    return Explanation(headline=headlines[gate], detail=detail, gates=_with_verdicts(found))


def _leased(it: Situation, holder: Holder) -> Explanation:
    left = (
        "" if holder.until_ms is None else f", for {duration((holder.until_ms - it.now_ms) / 1000)}"
    )
    owner = f" of {holder.name}" if holder.name else ""
    now = f"{holder.lease}{owner}{left}"
    if holder.lease_state in ("away", "dead"):
        headline = f"The Spark lease {holder.lease} has it, and its query is gone."
        detail = (
            "The next query of that lease goes on with it; `tambo pipeline leases` releases it."
        )
    else:
        headline = f"The Spark lease {holder.lease} has it{left}."
        detail = "It is settled when the query commits its batch."
    return Explanation(
        headline=headline, detail=detail, gates=[Gate(name="Lease", now=now, verdict="holds")]
    )


def _dead(it: Situation) -> Explanation:
    when = "" if it.ended_ms is None else f" It died {ago(it.ended_ms, it.now_ms)}."
    failed = f"Run {it.runs} failed: {it.error}." if it.runs and it.error else it.error
    reason = it.reason or "no reason is stored"
    return Explanation(
        headline=f"It is a dead letter: {reason}.",
        detail=f"{failed}{when} It runs again only if it is replayed.".strip(),
        gates=[Gate(name="Dead letters", now=f"It is there: {reason}", verdict="holds")],
    )


def _done(it: Situation) -> str:
    when = "" if it.ended_ms is None else f" {ago(it.ended_ms, it.now_ms)}"
    if it.protocol == "kqueue":
        return _passed(it, when)
    took = "" if it.duration_s is None else f", after {duration(it.duration_s)}"
    reason = f": {it.reason}" if it.reason else ""
    sentences = {
        "cancelled": f"It was cancelled{when}{reason}.",
        "delivered": f"It was delivered{when}.",
        "deleted": f"It was deleted{when}, which is how a consumer says that it is done.",
        "dead": f"It died{when}{reason}, and is no longer among the dead letters.",
        "gone": "It has left the queue, and nothing recorded says how.",
    }
    return sentences.get(it.ended, f"It completed{when}{took}.")


def _passed(it: Situation, when: str) -> str:
    if it.receivers is None:
        return f"It was sent{when}."
    if not it.receivers:
        return f"It was sent{when}, when no consumer was subscribed, so it went to none."
    return f"It was sent{when} and went to {count(it.receivers, 'consumer')} at once."
