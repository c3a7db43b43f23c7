"""``tambo doctor``: checks the server, this machine and this installation, and says what to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from tambomq.cli.output import (
    FAILED,
    OK,
    emit,
    emit_json,
    emit_table,
    example,
    json_option,
    verbose_option,
)
from tambomq.cli.redis_option import ns_option, redis_url_option

if TYPE_CHECKING:
    from tambomq.cli.doctor.facts import DoctorFinding

PATIENCE_S: Final = 1.0


@click.command(
    epilog=example(
        "tambo doctor",
        "tambo doctor --redis-url redis://:secret@redis.example.com:6379",
        "tambo doctor --json",
    )
)
@redis_url_option
@ns_option
@json_option
@verbose_option
def doctor(*, redis_url: str, ns: str, as_json: bool) -> int:
    """Check the server, this machine and this installation, and say what to do.

    Changes nothing: one key that expires is written, to see that the server takes writes. Exit 1
    if something is wrong; what is only worth a look does not count.
    """
    from tambomq.cli.doctor.ask_machine import ask_machine
    from tambomq.cli.doctor.ask_server import ask_server
    from tambomq.cli.doctor.machine_checks import check_machine
    from tambomq.cli.doctor.server_checks import check_server
    from tambomq.store.sync import Store

    store = Store(redis_url, patience_s=PATIENCE_S)
    try:
        server = ask_server(store, rsmq_ns=ns)
    finally:
        store.close()
    findings = check_server(server)
    has_server = server.is_local and server.unreachable is None
    findings += check_machine(ask_machine(store.endpoint), has_server=has_server)
    if as_json:
        _show_json(server.url, findings)
    else:
        _show(findings)
    return FAILED if any(each.level == "wrong" for each in findings) else OK


def _show(findings: Sequence[DoctorFinding]) -> None:
    rows: list[tuple[str, str, str]] = []
    for each in findings:
        rows.append((each.level, each.about, each.finding))
        rows += [("", "", f"→ {each.next}")] if each.next else []
    emit_table(("", "about", "finding"), rows)
    counts = Counter(each.level for each in findings)
    emit(f"\n{counts['wrong']} wrong, {counts['look']} worth a look, {counts['ok']} ok")


def _show_json(url: str, findings: Sequence[DoctorFinding]) -> None:
    rows = [
        {"level": each.level, "about": each.about, "finding": each.finding, "next": each.next}
        for each in findings
    ]
    ok = all(each.level != "wrong" for each in findings)
    emit_json({"ok": ok, "server": url, "findings": rows})
