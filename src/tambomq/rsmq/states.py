"""The states of an RSMQ message, and the scripts that move it between them."""

from __future__ import annotations

from typing import Final

from tambomq.states import NEW, StateTable, Transition

MESSAGE: Final = StateTable(
    "RSMQ message",
    {
        "delayed": "sent with a delay that has not ended",
        "visible": "can be received",
        "hidden": "received; the visibility timeout has not ended",
        "dead": "in the dead-letter queue, with the reason",
    },
    (
        Transition(
            NEW,
            "visible",
            "sent",
            ("rsmq/ops/send", "rsmq/bulk/sink_send", "rsmq/bulk/move_put"),
        ),
        Transition(NEW, "delayed", "sent with a delay", ("rsmq/ops/send", "rsmq/bulk/sink_send")),
        Transition("delayed", "visible", "the delay ends"),
        Transition(
            "visible",
            "hidden",
            "received, or claimed by a Spark lease",
            ("rsmq/ops/receive", "rsmq/ops/receive_one", "rsmq/bulk/lease_claim"),
        ),
        Transition(
            "hidden",
            "hidden",
            "lease renewed, or failed and waiting for its backoff",
            ("rsmq/ops/hide", "rsmq/bulk/lease_renew"),
        ),
        Transition("hidden", "visible", "the visibility timeout ends"),
        Transition(
            "hidden",
            "visible",
            "released by a worker that stops, or with its Spark lease",
            ("rsmq/ops/hide", "rsmq/bulk/lease_give_back"),
        ),
        Transition(
            "hidden",
            NEW,
            "handled and deleted",
            ("rsmq/ops/delete", "rsmq/ops/delete_one", "rsmq/bulk/lease_acknowledge"),
        ),
        Transition(
            "hidden",
            "dead",
            "failed too often, or rejected",
            ("rsmq/ops/bury", "rsmq/bulk/lease_acknowledge"),
        ),
        Transition(
            "visible",
            "dead",
            "expired",
            ("rsmq/ops/receive", "rsmq/ops/pop", "rsmq/ops/sweep"),
        ),
        Transition(
            NEW,
            "dead",
            "sent to a full queue that dead-letters what does not fit",
            ("rsmq/ops/send", "rsmq/bulk/sink_send"),
        ),
        Transition("visible", NEW, "popped, deleted or purged", ("rsmq/ops/pop", "rsmq/ops/purge")),
        Transition("visible", NEW, "moved to another queue", ("rsmq/bulk/move_take",)),
        Transition("dead", "visible", "redriven", ("rsmq/bulk/redrive_move",)),
        Transition("visible", "dead", "redrive undone", ("rsmq/bulk/redrive_undo",)),
        Transition("delayed", "visible", "edited in the console", ("rsmq/bulk/edit",)),
        Transition("dead", NEW, "deleted in the console", ("rsmq/bulk/discard",)),
        Transition(NEW, "dead", "deletion undone", ("rsmq/bulk/restore",)),
    ),
)
