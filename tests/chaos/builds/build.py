"""A broken build: a patch of the sources, and the run of the chaos suite whose history shows it."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tests.chaos.checker import Verdict
from tests.chaos.member import ROOT
from tests.chaos.nemeses.nemesis import Nemesis
from tests.chaos.run import run
from tests.chaos.subject import Subject

SRC: Final = ROOT / "src"
SEED: Final = 7
PAUSE_S: Final = 0.5
"""Between two faults: more of them than in other runs, which last longer."""
PATIENCE_S: Final = 12.0


def mixed(**kinds: int) -> Mapping[str, Mapping[str, Any]]:
    """Return options of senders: how many of a hundred messages are of each kind."""
    return {"sender": {"kinds": {"plain": 100 - sum(kinds.values()), **kinds}}}


@dataclass(frozen=True, slots=True)
class Trial:
    """A run of the suite: one subject, one nemesis, one seed."""

    subject: Subject
    nemesis: Nemesis
    seed: int = SEED
    seconds: float = 12.0
    lease_s: float = 2.0
    pause_s: float = PAUSE_S
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """More options for the programs of a role, by role."""
    load: str = ""
    """What these options are, in a word."""
    wait_s: float = PATIENCE_S
    """How long nothing may become less at the end until it counts as stuck."""

    @property
    def name(self) -> str:
        """What tells it from others."""
        load = f" {self.load}" if self.load else ""
        return f"{self.subject.name} {self.nemesis.name}{load} {self.seed}"

    def run(self, folder: Path, source: Path | None = None) -> Verdict:
        """Run it on the sources in *source*, by default on those of this tree."""
        roles = tuple(
            replace(role, options={**role.options, **self.options.get(role.name, {})})
            for role in self.subject.roles
        )
        return run(
            replace(self.subject, roles=roles),
            [self.nemesis],
            seconds=self.seconds,
            seed=self.seed,
            folder=folder,
            source=source,
            lease_s=self.lease_s,
            pause_s=self.pause_s,
            patience_s=self.wait_s,
        )


@dataclass(frozen=True, slots=True)
class Build:
    """One change of one line that breaks a guarantee."""

    name: str
    """What is broken, in words."""
    file: str
    """Below ``src/tambomq``."""
    old: str
    """Stands there exactly once."""
    new: str
    trial: Trial
    found: tuple[str, ...]
    """The kinds of violation that it causes; one of them must be found."""

    def planted(self) -> str:
        """Return the text of the file with the change in it."""
        text = (SRC / "tambomq" / self.file).read_text("utf-8")
        count = text.count(self.old)
        assert count == 1, f"{self.name}: {self.old!r} is {count} times in {self.file}"
        return text.replace(self.old, self.new)

    def make(self, folder: Path) -> Path:
        """Copy the sources into *folder*, with the change; return their directory."""
        copy = folder / "src"
        left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "node_modules")
        shutil.copytree(SRC, copy, ignore=left_out)
        (copy / "tambomq" / self.file).write_text(self.planted(), "utf-8")
        return copy

    def try_out(self, folder: Path) -> Verdict:
        """Make the build and run its trial."""
        history = folder / "history"
        history.mkdir()
        return self.trial.run(history, self.make(folder))

    def is_found(self, verdict: Verdict) -> bool:
        """Whether the checker found what the build breaks."""
        return any(kind in verdict.kinds for kind in self.found)
