"""The house rules: each is a function from a repository to a list of violations, as sentences.

`test_house_rules` demands that the list is empty, `test_rules_can_fail` that each rule reports a
violation that is planted for it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.rules import lua, lua_parts, mirror, public, repository, source, suite, words

RULES: dict[str, Callable[[Path], list[str]]] = {
    "every module has a docstring": source.modules_without_docstring,
    "only keys.py spells Redis keys": source.keys_spelled_elsewhere,
    "modules and functions fit in the head": source.too_long,
    "folders are short lists": source.too_full,
    "the drawn error tree is the real one": source.errors_not_as_drawn,
    "tests mirror the sources": mirror.untested_modules,
    "make test reaches every module": mirror.slowly_tested_modules,
    "tests do not sleep": source.sleeping_tests,
    "tests have three marks": suite.other_marks,
    "make test leaves out the marked alone": suite.tests_left_out,
    "tests assert no duration": suite.asserted_durations,
    "scripts keep their contract": lua.broken_contracts,
    "scripts need the parts they use": lua_parts.misused_parts,
    "scripts are short": lua.too_long,
    "twins are alike": public.unlike_twins,
    "exports are documented": public.undocumented_exports,
    "names are the field's words": words.banned_names,
    "class names are unique": words.doubled_classes,
    "the glossary has every noun": words.unexplained_nouns,
    "nothing names a registry or a machine": repository.places_named,
    "decisions fit on a page": repository.long_decisions,
}
