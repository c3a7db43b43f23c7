"""The states of a Spark lease on a queue, and the scripts that move it between them."""

from __future__ import annotations

from typing import Final

from tambomq.states import NEW, StateTable, Transition

LEASE: Final = StateTable(
    "Spark lease",
    {
        "held": "a query that is alive owns it",
        "away": "its query stopped with a claim open; the next query of this name continues it",
        "dead": "not renewed in time; others may have received its messages",
        "free": "it has no owner, and no claim is open",
    },
    (
        Transition(NEW, "held", "a query starts", ("bulk/lease_attach",)),
        Transition("free", "held", "a query starts", ("bulk/lease_attach",)),
        Transition(
            "held",
            "held",
            "renewed; batches claimed and acknowledged",
            tuple(
                f"{protocol}/bulk/lease_{verb}"
                for verb in ("renew", "claim", "acknowledge")
                for protocol in ("rsmq", "chasqui", "gomq")
            ),
        ),
        Transition("held", "away", "the query stops with a claim open", ("bulk/lease_resign",)),
        Transition("held", "away", "not renewed for the lease time, a claim is open"),
        Transition("held", "free", "the query stops without a claim", ("bulk/lease_resign",)),
        Transition("held", "free", "not renewed for the lease time, no claim is open"),
        Transition("away", "held", "the query restarts", ("bulk/lease_attach",)),
        Transition("away", "dead", "not renewed for twice the lease time"),
        Transition("dead", "held", "the query restarts", ("bulk/lease_attach",)),
        Transition(
            "away",
            "free",
            "`tambo pipeline leases release`",
            (
                "rsmq/bulk/lease_give_back",
                "chasqui/bulk/lease_give_back",
                "gomq/bulk/lease_give_back",
                "bulk/lease_release",
                "gomq/bulk/lease_release",
            ),
        ),
        Transition(
            "dead",
            "free",
            "another query of the queue releases it",
            ("bulk/lease_release", "gomq/bulk/lease_release"),
        ),
        Transition("free", NEW, "`tambo pipeline leases forget`", ("bulk/lease_forget",)),
    ),
)
