"""The states of a ChasquiMQ job, and the scripts that move it between them."""

from __future__ import annotations

from typing import Final

from tambomq.states import NEW, StateTable, Transition

JOB: Final = StateTable(
    "ChasquiMQ job",
    {
        "delayed": "in the sorted set, until it is due",
        "waiting": "in the stream, not yet read by a worker",
        "active": "read by a worker, pending under its name",
        "completed": "handled; its result may be kept for a while",
        "dead": "in the dead-letter stream, with the reason",
        "cancelled": "ended by a caller or by its own handler; only its event is left",
    },
    (
        Transition(
            NEW,
            "waiting",
            "added",
            (
                "chasqui/ops/add",
                "chasqui/ops/add_batch",
                "chasqui/ops/add_fresh",
                "chasqui/ops/add_once",
                "chasqui/bulk/sink_fresh",
                "chasqui/bulk/sink_jobs",
                "chasqui/bulk/move_put",
            ),
        ),
        Transition(NEW, "waiting", "a repeatable job fires", ("chasqui/ops/fire",)),
        Transition(
            NEW,
            "delayed",
            "added with a delay",
            ("chasqui/ops/schedule", "chasqui/ops/debounce", "chasqui/bulk/sink_jobs"),
        ),
        Transition("delayed", "waiting", "due: promoted by the leader", ("chasqui/ops/promote",)),
        Transition(
            "delayed",
            NEW,
            "cancelled, drained or cleaned",
            ("chasqui/ops/cancel", "chasqui/ops/drop_delayed"),
        ),
        Transition("delayed", "cancelled", "cancelled by its id", ("chasqui/ops/cancel_job",)),
        Transition("waiting", "cancelled", "cancelled by its id", ("chasqui/ops/cancel_job",)),
        Transition(
            "active",
            "cancelled",
            "cancelled by its id, or by its handler",
            ("chasqui/ops/cancel_job", "chasqui/ops/abort"),
        ),
        Transition(
            "waiting",
            NEW,
            "removed, drained or cleaned",
            ("chasqui/ops/drop_waiting", "chasqui/ops/drop_entry"),
        ),
        Transition("waiting", NEW, "moved to another queue", ("chasqui/bulk/move_take",)),
        Transition("delayed", NEW, "moved to another queue", ("chasqui/bulk/move_take_later",)),
        Transition(
            "waiting",
            "active",
            "fetched by a worker, or claimed by a Spark lease",
            ("XREADGROUP", "chasqui/bulk/lease_claim"),
        ),
        Transition(
            "active",
            "active",
            "lease renewed, or taken over from a silent worker",
            ("chasqui/ops/renew", "chasqui/ops/claim", "chasqui/bulk/lease_renew"),
        ),
        Transition(
            "active",
            "waiting",
            "released without a run",
            ("chasqui/ops/give_back", "chasqui/bulk/lease_give_back"),
        ),
        Transition(
            "active",
            "completed",
            "the handler returned",
            ("chasqui/ops/settle", "chasqui/ops/done", "chasqui/bulk/lease_acknowledge"),
        ),
        Transition(
            "active",
            "delayed",
            "the handler raised; attempts are left",
            ("chasqui/ops/retry", "chasqui/bulk/lease_acknowledge"),
        ),
        Transition(
            "active",
            "dead",
            "no attempts are left, unrecoverable, or not a valid job",
            ("chasqui/ops/bury", "chasqui/bulk/lease_acknowledge"),
        ),
        Transition(
            "dead",
            "waiting",
            "replayed or redriven",
            ("chasqui/ops/replay", "chasqui/bulk/redrive_move"),
        ),
        Transition("waiting", "dead", "redrive undone", ("chasqui/bulk/redrive_undo",)),
        Transition("dead", NEW, "removed or cleaned", ("XDEL", "chasqui/bulk/discard")),
        Transition(NEW, "dead", "deletion undone", ("chasqui/bulk/restore",)),
        Transition("delayed", "delayed", "edited in the console", ("chasqui/ops/edit_delayed",)),
    ),
)
