"""CSV and tables of what others wrote into Redis: shown, and neither computed nor obeyed."""

from __future__ import annotations

import csv
import io
from decimal import Decimal
from typing import Any

import pytest

from tambomq.cli.output import emit_csv, emit_table
from tambomq.cli.pipeline import sql as pipeline_sql


def shown(capsys: pytest.CaptureFixture[str], *values: Any) -> list[str]:
    emit_csv(["x"] * len(values), [values])
    rows: list[list[str]] = [*csv.reader(io.StringIO(capsys.readouterr().out))]
    return rows[1]


@pytest.mark.parametrize(
    "text",
    [
        '=HYPERLINK("http://evil")',
        "+1+cmd|' /C calc'!A0",
        "-2+3+cmd|' /C calc'!A0",
        "@SUM(A1:A9)",
        "  =1+1",
        "＝1+1",
    ],
)
def test_formulas_are_written_as_text(capsys: pytest.CaptureFixture[str], text: str) -> None:
    assert shown(capsys, text) == [f"'{text}"]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("1;=1+1", "1;'=1+1"),
        ('a; "=1+1"', 'a;\' "=1+1"'),
        ("a;b;@SUM(A1:A9)", "a;b;'@SUM(A1:A9)"),
        ("a;-2+3+cmd|' /C calc'!A0", "a;'-2+3+cmd|' /C calc'!A0"),
        ("a\t+1+1", "a\t'+1+1"),
        ("two\n＝1+1", "two\n'＝1+1"),
        ("\n=1+1", "\n'=1+1"),
        ("\t=1+1", "'\t'=1+1"),
    ],
)
def test_formulas_after_what_may_separate_cells_are_text_too(
    capsys: pytest.CaptureFixture[str], text: str, written: str
) -> None:
    assert shown(capsys, text) == [written]


def test_a_carriage_return_begins_no_formula(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "\r=1+1") == ["\\r=1+1"]


@pytest.mark.parametrize("number", [-5, -5.5, Decimal("-5.50"), "-5", "+5.5", "-1.5e-3", 0])
def test_numbers_stay_numbers(capsys: pytest.CaptureFixture[str], number: Any) -> None:
    assert shown(capsys, number) == [str(number)]


def test_text_that_is_not_a_formula_is_unchanged(capsys: pytest.CaptureFixture[str]) -> None:
    texts = ["a=b", "a,b", 'a "b"', "two\nlines", "ü", "", "x-1", "1;-5;+2.5", "a;b=c", "x; y"]
    assert shown(capsys, *texts) == texts
    assert shown(capsys, None, True) == ["", "True"]


def test_control_characters_are_spelled_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, "\x1b]0;owned\x07\x1b[2J\x9b\u202e\udc80") == [
        "\\x1b]0;owned\\x07\\x1b[2J\\x9b\\u202e\\udc80"
    ]


def test_formulas_in_column_names_are_text_too(capsys: pytest.CaptureFixture[str]) -> None:
    emit_csv(["=1+1", "\x1b[2J"], [])
    assert capsys.readouterr().out == "'=1+1,\\x1b[2J\n"
    emit_table(["[bold]\x1b[2J"], [["x"]])
    assert capsys.readouterr().out.splitlines()[0].rstrip() == "[bold]\\x1b[2J"


@pytest.mark.parametrize(
    "value",
    [
        "=1+1",
        b"=1+1",
        bytearray(b"=1+1"),
    ],
)
def test_sql_prints_csv_in_this_way(capsys: pytest.CaptureFixture[str], value: Any) -> None:
    pipeline_sql._show(["reason"], [[value], [["\x1b[2J"]]], as_csv=True, as_json=False)
    assert capsys.readouterr().out == "reason\n'=1+1\n['\\x1b[2J']\n"
