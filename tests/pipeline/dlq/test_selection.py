"""``--set`` is parsed, and errors of Spark become one line."""

from __future__ import annotations

import pytest

from tambomq.errors import SettingsError
from tambomq.pipeline.dlq.selection import rewriting, sql_fault


class ParseException(Exception):
    """As Spark's: it has a state, and many lines."""

    def getSqlState(self) -> str:  # noqa: N802  (Spark's name)
        return "42601"


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("payload = upper(value)", "upper(value)"),
        ("BODY=a = b", "a = b"),
        (" payload = case when a\nthen b end", "case when a\nthen b end"),
    ],
)
def test_the_expression_after_the_equals_sign_is_the_new_body(text: str, expression: str) -> None:
    assert rewriting(text) == expression


@pytest.mark.parametrize("text", ["", "payload", "payload =", "name = 'x'", "payload == 'x'"])
def test_a_set_option_without_a_body_is_reported(text: str) -> None:
    with pytest.raises(SettingsError, match="--set wants payload ="):
        rewriting(text)


def test_a_mistake_in_sql_is_one_line_with_its_place() -> None:
    text = (
        "\n[PARSE] Syntax error at 'x'. SQLSTATE: 42601 (line 1, pos 9)\n\n== SQL ==\nselect x\n^^^"
    )
    assert sql_fault(ParseException(text)) == "SQL: [PARSE] Syntax error at 'x'. (line 1, pos 9)"


def test_an_error_that_is_not_about_sql_is_none() -> None:
    assert sql_fault(OSError("disk full")) is None
