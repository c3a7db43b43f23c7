"""The state tables are true to the scripts, and the documentation is true to the tables."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import get_args

import pytest

from tambomq.bulk import lease_model
from tambomq.bulk.states import LEASE
from tambomq.chasqui.job_info import JobInfo
from tambomq.chasqui.states import JOB
from tambomq.gomq.states import MESSAGE as GOMQ_MESSAGE
from tambomq.rsmq.states import MESSAGE as RSMQ_MESSAGE
from tambomq.states import NEW, StateTable, Transition

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src/tambomq"
TABLES = (JOB, RSMQ_MESSAGE, GOMQ_MESSAGE, LEASE)
NO_TRANSITION = re.compile(
    r"attributes|set_attributes|set_bounds|weigh|create|peek|census_|audit_"
    r"|lease_(?:members|prune|judge)|rewind|drop$|detail$|excerpts$|hidden_sample$"
)
"""Scripts of RSMQ that read, repair, or concern a queue as a whole."""


def script(name: str) -> Path:
    folder, _, verb = name.rpartition("/")
    return SOURCES / folder / "scripts" / f"{verb}.lua"


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_transition_names_scripts_that_exist(table: StateTable) -> None:
    named = [name for each in table.transitions for name in each.by if not name.isupper()]
    assert [name for name in named if not script(name).exists()] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_command_in_a_table_is_used_by_its_protocol(table: StateTable) -> None:
    protocol = table.transitions[0].by[-1].partition("/")[0]
    code = "".join(path.read_text() for path in (SOURCES / protocol).rglob("*.py"))
    commands = {name for each in table.transitions for name in each.by if name.isupper()}
    assert [name for name in commands if f'"{name}"' not in code] == []


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.title)
def test_every_state_can_be_reached_and_left(table: StateTable) -> None:
    reached = {NEW}
    for _ in table.states:
        reached |= {each.target for each in table.transitions if each.source in reached}
    assert reached - {NEW} == set(table.states)
    finished = {"completed", "cancelled", "delivered"}
    left = {each.source for each in table.transitions} | finished
    assert set(table.states) <= left


def test_the_table_of_rsmq_names_every_script_that_moves_messages() -> None:
    scripts = [
        path
        for part in ("ops", "bulk")
        for path in (SOURCES / f"rsmq/{part}/scripts").glob("*.lua")
    ]
    named = {script(name) for each in RSMQ_MESSAGE.transitions for name in each.by}
    missing = [path.stem for path in scripts if path not in named]
    assert [name for name in missing if not NO_TRANSITION.match(name)] == []


def test_jobs_have_the_states_that_queues_report() -> None:
    state = JobInfo.__annotations__["state"]
    reported = (
        set(re.findall(r"\w+", state)) - {"Literal"}
        if isinstance(state, str)
        else set(get_args(state))
    )
    assert reported <= {*JOB.states, "str"}


def test_leases_have_the_states_that_commands_report() -> None:
    text = Path(lease_model.__file__).read_text()
    assert [state for state in LEASE.states if f'"{state}"' not in text] == []


def test_a_transition_between_unknown_states_is_refused() -> None:
    with pytest.raises(ValueError, match="no such state: 'gone'"):
        StateTable("thing", {"here": "it is here"}, (Transition("here", "gone", "why not"),))


def test_the_pictures_are_those_of_the_tables() -> None:
    made = runpy.run_path(str(ROOT / "scripts/state-diagrams"))["pages"]()
    assert [path.name for path, text in made.items() if path.read_text() != text] == []
