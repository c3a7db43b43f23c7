"""Parsers of the files in ``deploy/``: Dockerfile, units, YAML, and the commands in them."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "Dockerfile"
COMPOSE = DEPLOY / "compose.yaml"
KUBERNETES = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
SHELL = re.compile(r"^(?:\$ )?(?:sudo )?(tambo .+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Instruction:
    """A line of a Dockerfile, with those that continue it."""

    word: str
    rest: str

    @property
    def words(self) -> list[str]:
        """The arguments: of the exec form, or split as a shell does."""
        text = re.sub(r"^(--\S+ +)*(CMD +)?", "", self.rest)
        return list(json.loads(text)) if text.startswith("[") else shlex.split(text)

    @property
    def is_exec_form(self) -> bool:
        """Whether it is a JSON array, which needs no shell."""
        return re.sub(r"^(--\S+ +)*(CMD +)?", "", self.rest).startswith("[")


@dataclass(slots=True)
class BuildStage:
    """What stands between two lines with FROM."""

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list)

    def last(self, word: str) -> Instruction | None:
        """The last instruction *word*, which is the one that counts."""
        return next((each for each in reversed(self.instructions) if each.word == word), None)


def stages(text: str) -> dict[str, BuildStage]:
    """Return the stages of a Dockerfile by name, with the defaults of ARG filled in."""
    args: dict[str, str] = {}
    found: dict[str, BuildStage] = {}
    build: BuildStage | None = None
    for one in instructions(text):
        if one.word == "ARG":
            name, _, default = one.rest.partition("=")
            args[name] = default
        elif one.word == "FROM":
            base, _, name = re.sub(
                r"\$\{(\w+)\}", lambda match: args[match[1]], one.rest
            ).partition(" AS ")
            build = found[name] = BuildStage(name, base)
        elif build is not None:
            build.instructions.append(one)
    return found


def instructions(text: str) -> Iterator[Instruction]:
    """Yield the instructions of a Dockerfile; comments are left out, continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for line in re.sub(r"\\\n\s*", " ", "\n".join(lines)).splitlines():
        if line.strip():
            word, _, rest = line.strip().partition(" ")
            yield Instruction(word, " ".join(rest.split()))


def inherited(found: dict[str, BuildStage], name: str, word: str) -> Instruction | None:
    """Return what an image of stage *name* has for *word*, its own or that of its base."""
    build = found[name]
    own = build.last(word)
    return own if own or build.base not in found else inherited(found, build.base, word)


Unit = dict[str, dict[str, str]]


def unit(path: Path) -> Unit:
    """Return the sections of a systemd unit; raise for what systemd would ignore."""
    sections: Unit = {}
    section: dict[str, str] | None = None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.strip() or line.startswith(("#", ";")):
            continue
        if head := re.fullmatch(r"\[(\w+)\]", line):
            section = sections.setdefault(head[1], {})
            continue
        key, equals, value = line.partition("=")
        if section is None or not equals or key in section or key != key.strip():
            raise ValueError(f"{path.name}:{number} is no setting, or the second of its name")
        section[key] = value
    return sections


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file; raise where a key stands twice in a mapping."""
    return list(yaml.load_all(path.read_text(), Loader=_Strict))


class _Strict(yaml.SafeLoader):
    """Refuses a mapping that has a key twice: YAML silently takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        if len(keys) != len(set(keys)):
            raise yaml.YAMLError(f"a key stands twice: {keys} {node.start_mark}")
        return super().construct_mapping(node, deep)


def containers(path: Path) -> list[dict[str, Any]]:
    """Return the containers of the pods in a file of Kubernetes."""
    return [
        container
        for document in documents(path)
        if document["kind"] == "Deployment"
        for container in document["spec"]["template"]["spec"]["containers"]
    ]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Yield each command line of ours in ``deploy/``: where it stands, and its words."""
    found = stages(DOCKERFILE.read_text())
    for name in found:
        entry, command = (inherited(found, name, word) for word in ("ENTRYPOINT", "CMD"))
        if entry and command:
            yield f"Dockerfile {name}", [*entry.words, *command.words]
    for name, service in documents(COMPOSE)[0]["services"].items():
        if "build" in service:
            yield f"compose {name}", ["tambo", *service["command"]]
    for path in UNITS:
        program, *words = shlex.split(unit(path)["Service"]["ExecStart"].replace("%i", "shop.jobs"))
        yield path.name, [Path(program).name, *words]
    for path in KUBERNETES:
        yield from ((path.name, ["tambo", *each["args"]]) for each in containers(path))
    for line in SHELL.findall((DEPLOY / "README.md").read_text()):
        yield "README", shlex.split(line)


def seconds(text: str) -> float:
    """Return the seconds of a duration such as ``45s``, ``1m`` or ``45``."""
    number, unit_name = re.fullmatch(r"(\d+)(s|m|min)?", str(text)).groups()  # type: ignore[union-attr]
    return float(number) * (60 if unit_name in {"m", "min"} else 1)


def option(words: list[str], flag: str) -> str:
    """Return the value of *flag* in a command line, in either spelling."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    raise KeyError(flag)
