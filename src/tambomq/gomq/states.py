"""The states of a GOMQ message on its way to one peer, and the scripts that move it."""

from __future__ import annotations

from typing import Final

from tambomq.states import NEW, StateTable, Transition

MESSAGE: Final = StateTable(
    "GOMQ message",
    {
        "queued": "in the main queue of its key",
        "dispatched": "in the dedicated queue of a peer; each peer has its own copy",
        "unacknowledged": "delivered to a client that acknowledges, and kept until it does",
        "delivered": "observed by the peer",
        "set aside": "its peer has left, and it is not settled yet",
    },
    (
        Transition(
            NEW,
            "queued",
            "published",
            (
                "RPUSH",
                "gomq/ops/publish_all",
                "gomq/bulk/sink_push",
                "gomq/bulk/move_put",
            ),
        ),
        Transition("queued", "dispatched", "copied to every peer", ("gomq/ops/dispatch",)),
        Transition("queued", NEW, "moved to another queue", ("gomq/bulk/move_take",)),
        Transition("queued", "queued", "expired: a dead letter of its key", ("gomq/ops/expire",)),
        Transition(
            "dispatched",
            "delivered",
            "observed by a client that does not acknowledge",
            ("gomq/ops/observe",),
        ),
        Transition(
            "dispatched",
            "unacknowledged",
            "observed by a client that acknowledges, or claimed by a Spark lease",
            ("gomq/ops/observe_kept", "gomq/bulk/lease_claim"),
        ),
        Transition(
            "unacknowledged",
            "unacknowledged",
            "the reply was lost: the same batch is sent again",
            ("gomq/ops/observe_kept",),
        ),
        Transition(
            "unacknowledged",
            "delivered",
            "acknowledged by the next Observe, or with its Spark batch",
            ("gomq/ops/observe_kept", "gomq/bulk/lease_acknowledge"),
        ),
        Transition(
            "delivered",
            "dispatched",
            "the client hung up before the reply was sent",
            ("gomq/ops/give_back",),
        ),
        Transition(
            "dispatched",
            "set aside",
            "the peer was silent for too long, or unsubscribed",
            ("gomq/ops/reap", "gomq/ops/unsubscribe"),
        ),
        Transition(
            "unacknowledged",
            "set aside",
            "the peer was silent for too long, or unsubscribed",
            ("gomq/ops/reap", "gomq/ops/unsubscribe"),
        ),
        Transition("set aside", "queued", "no other peer has it", ("gomq/ops/settle",)),
        Transition("set aside", NEW, "other peers have it", ("gomq/ops/settle",)),
    ),
)
