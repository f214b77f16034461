"""One meaning a word: each class has a name of its own, each term of the glossary one entry."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text()
CAMEL = re.compile(r"_?[A-Z][A-Za-z0-9]*[a-z][A-Za-z0-9]*")


@functools.cache
def sources() -> dict[str, ast.Module]:
    """The files of the package, parsed once."""
    return {path.relative_to(ROOT / "fnx").as_posix(): ast.parse(path.read_text())
            for path in sorted((ROOT / "fnx").rglob("*.py"))}


def types(tree: ast.Module) -> Iterator[str]:
    """The classes of a file, and the types that it gives a name (``Nodes = tuple[UOp, ...]``)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            names = [t.id for t in statement.targets if isinstance(t, ast.Name)]
            if not isinstance(statement.value, ast.Attribute):  # another's, by its own name
                yield from (n for n in names if CAMEL.fullmatch(n))
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            if ast.unparse(statement.annotation) == "TypeAlias":
                yield statement.target.id


def test_a_type_has_its_name_for_itself() -> None:
    homes = defaultdict[str, list[str]](list)
    for file, tree in sources().items():
        for name in types(tree):
            homes[name].append(file)
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}


def test_a_term_has_one_entry() -> None:
    terms = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY, re.MULTILINE)
    words = [word.strip() for term in terms for word in term.split(",")]
    assert len(terms) > 80
    assert sorted(words) == sorted(set(words))


def test_types_in_the_glossary_exist() -> None:
    known = {name for tree in sources().values() for name in types(tree)}
    named = {word for word in re.findall(r"`(_?[A-Za-z]+)`", GLOSSARY) if CAMEL.fullmatch(word)}
    assert named <= known


def test_frozen_values_are_records() -> None:
    """But for one that is made and hashed in every call, and those that users unpack."""
    found = {node.name for tree in sources().values()
             for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
             and any(ast.unparse(base) == "NamedTuple" for base in node.bases)
             or isinstance(node, ast.ClassDef)
             and any("frozen=True" in ast.unparse(d) for d in node.decorator_list)}
    assert {n for n in found if not n.endswith("DimensionNumbers")
            and not n.startswith(("Unique", "ModeResult"))} == {"Aval"}


# A word, and where a function, class or constant may have it in its name. What JAX and NumPy call
# so is theirs: names that users see are not looked at.
HOMES = {
    "stage": ("core/", "lower/", "transforms/kernels/", "kernel.py"),  # a buffer inside a kernel
    "program": ("core/levels/", "core/kernel_code.py", "core/ops.py", "lower/",
                "transforms/replay/lowering.py"),
    "unfold": ("core/", "lower/", "transforms/ad/", "transforms/batching/", "lax/"),  # windows
    "late": ("core/array/array.py",),  # a method that is loaded with its first use
    "watch": ("core/weak_tables.py", "backends/"),  # a death, a queue; of a trace: captures
    "grouping": (), "meanings": (), "hoisted_constants": (),
}



@functools.cache
def names() -> dict[str, set[str]]:
    """Functions, classes and constants of each file."""
    found = {file: {n.name for n in ast.walk(tree)
                    if isinstance(n, ast.FunctionDef | ast.ClassDef)}
             for file, tree in sources().items()}
    for file, tree in sources().items():
        found[file] |= {t.id for s in tree.body if isinstance(s, ast.Assign) for t in s.targets
                        if isinstance(t, ast.Name)}
    return found


def has(name: str, word: str) -> bool:
    """Whether a word is among those that a name is made of."""
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return word in {w.lower().removesuffix("s") for w in words} | {name.lower().strip("_")}


@pytest.mark.parametrize("word", HOMES)
def test_a_word_of_the_compiler_stays_where_it_has_its_meaning(word: str) -> None:
    elsewhere = {(file, name) for file, found in names().items() for name in found
                 if has(name, word) and not file.startswith(HOMES[word] or ("-",))}
    assert elsewhere == set()


def test_a_block_is_commands_and_a_carry_is_handed_on() -> None:
    """As a class; a block of a matrix, or of a tile, is a part in the text of one function."""
    classes = {name for tree in sources().values() for name in types(tree)
               if not name.startswith("_")}
    assert {n for n in classes if "Block" in n} == {
        "Block", "BlockFace", "Blocks", "PoolBlock", "BlockOf", "DerivativeBlocks"}
    assert {n for n in classes if "Carr" in n} == {
        "Carry", "CarryT", "Carried", "CarriedValues", "CarryPlaces"}
    assert {n for n in classes if re.search("Fold(?!er)", n)} <= {"Fold", "FoldedLanes"}
    for word in ("Pattern", "Value", "Traced", "Function", "Rule"):  # alone: one class, or none
        assert sum(n == word for n in classes) <= 1
