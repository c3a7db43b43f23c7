"""``tambo pipeline audit``: checks the invariants of all protocols, and repairs violations."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import click

from tambomq.bulk.audit import Finding
from tambomq.cli.input import progress
from tambomq.cli.output import emit, emit_json, emit_table, example, yes_option
from tambomq.cli.pipeline.client import confirm, counted, every_command, open_store
from tambomq.pipeline.audit import PARTS, RULES, Audit
from tambomq.rsmq.keys import NAMESPACE

FOUND: Final = 4
SHOWN: Final = 200


@click.command(
    epilog=example(
        "tambo pipeline audit",
        "tambo pipeline audit chasqui gomq --json",
        "tambo pipeline audit --repair",
    )
    + "\n\nExit codes: 0 no damage, or all was repaired; 4 damage is left; else as everywhere."
)
@click.argument("parts", nargs=-1, type=click.Choice(PARTS), metavar="[PROTOCOL]...")
@click.option("--ns", default=NAMESPACE, metavar="NAME", help=f"RSMQ's namespace. [{NAMESPACE}]")
@click.option("--repair", is_flag=True, help="Repair what can be repaired, after showing it.")
@click.option("--rules", is_flag=True, help="Show all rules, and stop.")
@yes_option
@every_command
@click.pass_context
def audit(
    ctx: click.Context,
    parts: tuple[str, ...],
    *,
    ns: str,
    repair: bool,
    rules: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Look for damage in the stored data of all protocols: rsmq, chasqui, gomq, journal.

    Queues may be in use meanwhile. Nothing is changed without --repair.
    """
    wanted = parts or PARTS
    if rules:
        _show_rules(wanted, as_json=as_json)
        return
    work = Audit(open_store(), ns=ns)
    queues, found = 0, list[Finding]()
    with progress("looking", "queues", None, shown=not as_json) as tick:
        for _, wrong in work.look(wanted):
            queues += 1
            found += wrong
            tick(queues, queues)
    if not as_json:
        _show(queues, found)
    mended = _mend(work, found, yes=yes, quiet=as_json) if repair else Counter[str]()
    if as_json:
        emit_json(
            {"queues": queues, "findings": [_object(each) for each in found], "mended": mended}
        )
    if sum(mended.values()) < len(found):
        ctx.exit(FOUND)


def _mend(work: Audit, found: list[Finding], *, yes: bool, quiet: bool) -> Counter[str]:
    able = [each for each in found if each.rule.repair]
    mended = Counter[str]()
    if not able:
        return mended
    confirm(f"Repair {len(able)} of {len(found)}?", yes=yes)
    with progress("repairing", "findings", len(able), shown=not quiet) as tick:
        for place, each in enumerate(able, 1):
            # Sound by now: another process has repaired it.
            work.mend(each)
            mended[each.rule.name] += 1
            tick(place, place)
    if not quiet:
        emit(f"Repaired {sum(mended.values())}.")
    return mended


def _show(queues: int, found: list[Finding]) -> None:
    if not found:
        emit(f"Looked at {counted(queues, 'queue')}: all is well.")
        return
    rows = [
        (each.rule.name, each.location, each.detail, each.rule.repair or "(decide yourself)")
        for each in found[:SHOWN]
    ]
    emit_table(("rule", "where", "found", "repair"), rows)
    if len(found) > SHOWN:
        emit(f"… and {len(found) - SHOWN} more: --json has all.")
    emit("")
    counts = Counter(each.rule for each in found)
    meanings = [(rule.name, count, rule.meaning) for rule, count in counts.most_common()]
    emit_table(("rule", "times", "meaning"), meanings)


def _show_rules(parts: tuple[str, ...], *, as_json: bool) -> None:
    rules = [rule for part in parts for rule in RULES[part]]
    if as_json:
        emit_json([{"rule": r.name, "meaning": r.meaning, "repair": r.repair} for r in rules])
        return
    emit_table(
        ("rule", "meaning", "repair"),
        [(rule.name, rule.meaning, rule.repair or "(decide yourself)") for rule in rules],
    )


def _object(finding: Finding) -> dict[str, Any]:
    return {
        "rule": finding.rule.name,
        "queue": finding.queue,
        "key": finding.key,
        "item": finding.item,
        "found": finding.detail,
        "meaning": finding.rule.meaning,
        "repair": finding.rule.repair,
    }
