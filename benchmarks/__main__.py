"""``python -m benchmarks``: measures subjects and prints one table."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from benchmarks import (
    chasqui,
    durability,
    gomq,
    jobs,
    kqueue,
    pipeline,
    record,
    rsmq,
    spark,
    table,
)
from benchmarks.model import MISSED, Line, Subject, line
from benchmarks.rounds import Measured, measure
from benchmarks.server import KINDS, NoServer, place, servers

SUBJECTS: dict[str, Callable[..., Subject]] = {
    "rsmq": rsmq.subject,
    "chasqui": chasqui.subject,
    "jobs": jobs.subject,
    "kqueue": kqueue.subject,
    "gomq": gomq.subject,
    "spark": spark.subject,
    "pipeline": pipeline.subject,
    "durability": durability.subject,
}
"""A new subject is a file beside this one and a line here."""

ROUNDS, QUICK_ROUNDS = 5, 3


def main(argv: Sequence[str] | None = None) -> int:
    """Measure what *argv* names; return 1 with ``--strict`` if a floor was missed, else 0."""
    parser = _parser()
    options = parser.parse_args(argv)
    if unknown := set(options.subjects) - SUBJECTS.keys():
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there is {', '.join(SUBJECTS)}")
    if "://" not in options.server and options.server not in KINDS:
        parser.error(f"--server is a URL or one of {', '.join(KINDS)}")
    rounds = options.rounds or (QUICK_ROUNDS if options.quick else ROUNDS)
    lines: list[Line] = []
    found: dict[str, Measured] = {}
    versions: dict[str, None] = {}
    try:
        for name in options.subjects or SUBJECTS:
            subject = SUBJECTS[name](rounds, quick=options.quick)
            if options.only:
                subject = subject.only(options.only)
            if not subject.rows:
                continue
            with place(options.server) as server:
                found[name] = measure(subject, server)
                versions |= dict.fromkeys(each.version for each in (server, *servers()))
            lines += [line(name, row, found[name].turns) for row in subject.rows]
    except NoServer as missing:
        print(missing, file=sys.stderr)
        return 1
    players = dict.fromkeys(v for each in found.values() for v in each.versions.values())
    around = record.surroundings(" and ".join(versions), players)
    _show(lines, around, [f for each in found.values() for f in each.failures])
    if options.json:
        _save(options.json, lines, around, found)
    if options.record:
        record.write(table.markdown(lines), around)
    return 1 if options.strict and any(each.verdict == MISSED for each in lines) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("subjects", nargs="*", metavar="subject", help=", ".join(SUBJECTS))
    parser.add_argument(
        "--only", action="append", metavar="WORD", help="rows with it in their title"
    )
    parser.add_argument("--rounds", type=int, help=f"turns of each contender ({ROUNDS})")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work")
    parser.add_argument("--server", default="valkey", help=f"{', '.join(KINDS)} or a URL")
    parser.add_argument("--json", type=Path, metavar="PATH", help="all turns, for other tools")
    parser.add_argument("--record", action="store_true", help="write the table into the README")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a floor is missed")
    return parser


def _show(lines: Sequence[Line], around: Sequence[str], failures: Sequence[str]) -> None:
    print(table.text(lines))
    print()
    for each in around:
        print(each)
    for failure in dict.fromkeys(failures):
        print(f"! {failure}")


def _save(
    path: Path, lines: Sequence[Line], around: Sequence[str], found: dict[str, Measured]
) -> None:
    record = {
        "around": list(around),
        "lines": [asdict(each) for each in lines],
        "turns": {
            name: {
                contender: [asdict(turn) for turn in turns]
                for contender, turns in each.turns.items()
            }
            for name, each in found.items()
        },
    }
    path.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
