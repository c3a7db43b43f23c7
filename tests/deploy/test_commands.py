"""Every command line in ``deploy/`` is one that our commands take."""

from __future__ import annotations

import importlib
from pathlib import Path

import click
import pytest

from tambomq.cli.main import tambo
from tests.deploy import reading

COMMANDS = list(reading.commands())


def parsed(words: list[str]) -> click.Context:
    """Return the context of the command that *words* name; raises `click.UsageError`."""
    program, *rest = words
    assert program == "tambo"
    outer = tambo.make_context(program, rest)
    name, command, rest = tambo.resolve_command(outer, [*outer._protected_args, *outer.args])
    assert command is not None
    return command.make_context(name, rest, parent=outer)


@pytest.mark.parametrize(
    ("source", "words"), COMMANDS, ids=[f"{i} {source}" for i, (source, _) in enumerate(COMMANDS)]
)
def test_a_command_line_is_understood(
    source: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "tambo.toml"
    settings.write_text("[log]\nlevel = 'info'\n")
    words = [str(settings) if word == "/etc/tambo/tambo.toml" else word for word in words]
    if words == ["tambo", "--help"]:
        return
    parsed(words)
    if words[1] == "work":
        monkeypatch.syspath_prepend(str(reading.DEPLOY))
        targets = [word for word in words[2:] if word.startswith("shop")]
        assert targets
        for target in targets:
            importlib.import_module(target.partition(":")[0])


def test_every_kind_of_file_has_commands() -> None:
    kinds = {source.split()[0].rpartition(".")[2] for source, _ in COMMANDS}
    assert kinds == {"Dockerfile", "compose", "service", "yaml", "README"}


def test_a_wrong_option_is_seen() -> None:
    with pytest.raises(click.UsageError, match="--drain-z"):
        parsed(["tambo", "work", "shop.jobs", "--drain-z", "3"])


def test_every_file_of_the_folder_is_explained_on_its_page() -> None:
    page = (reading.DEPLOY / "README.md").read_text()
    files = [path for path in reading.DEPLOY.rglob("*") if path.is_file()]
    shown = [path for path in files if path.suffix not in {".py", ".pyc", ".md"}]
    assert [
        path.name for path in shown if f"`{path.relative_to(reading.DEPLOY)}`" not in page
    ] == []
