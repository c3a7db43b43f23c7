"""The Redis key that carries the trace of a job. No other module of this folder spells one."""

from __future__ import annotations


def trace(queue: str, id: str) -> str:
    """String: the trace context in which job *id* was added, as JSON; expires.

    In the slot of the queue, and deleted with it.
    """
    return f"{{chasqui:{queue}}}:tambo:trace:{id}"
