"""Records behave like the frozen dataclasses that they replace."""

from __future__ import annotations

import ast
import copy
import dataclasses
import pickle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fnx.core.ir import kernel_args, op_args, ops
from fnx.core.support.record import Record


class Point(Record):
    x: int
    y: Any
    name: str = ""
    size: int = 1


class Other(Record):
    x: int
    y: Any
    name: str = ""
    size: int = 1


@dataclasses.dataclass(frozen=True)
class Plain:
    x: int
    y: Any
    name: str = ""
    size: int = 1


VALUES = st.tuples(st.integers(0, 2), st.integers(0, 2) | st.tuples(st.integers(0, 1)),
                   st.sampled_from(["", "a"]), st.integers(0, 2))
ARGUMENTS = st.tuples(VALUES, st.integers(0, 4), st.sets(st.sampled_from(["y", "name", "size"])))


def made(cls: Any, arguments: Any) -> Any:
    """Return a value with some fields by position, some by name, and the rest defaulted."""
    values, by_position, by_name = arguments
    names = ("x", "y", "name", "size")
    return cls(*values[:by_position], **{n: values[names.index(n)] for n in by_name})


@given(ARGUMENTS, ARGUMENTS)
def test_like_a_frozen_dataclass(first: Any, second: Any) -> None:
    found = []
    for cls in (Point, Plain):
        try:
            a, b = made(cls, first), made(cls, second)
        except TypeError:
            found.append(None)
            continue
        found.append((repr(a).partition("(")[2], a == b, hash(a) == hash(b) or a != b,
                      [getattr(a, f) for f in ("x", "y", "name", "size")]))
    assert found[0] == found[1]


@given(VALUES)
def test_kind_counts_and_copies_are_equal(values: Any) -> None:
    point = Point(*values)
    assert point != Other(*values) and point != values and point != Plain(*values)
    for other in (copy.copy(point), copy.deepcopy(point), pickle.loads(pickle.dumps(point))):
        assert other == point and hash(other) == hash(point) and type(other) is Point
    match point:
        case Point(x, y):
            assert (x, y) == values[:2]


def test_nothing_can_be_changed_or_added() -> None:
    point = Point(1, 2)
    for change in (lambda: setattr(point, "x", 3), lambda: setattr(point, "z", 3),
                   lambda: delattr(point, "x")):
        with pytest.raises(AttributeError, match="Point is immutable"):
            change()
    assert point == Point(1, 2) and not hasattr(point, "__dict__")


@pytest.mark.parametrize("call", [lambda: Point(), lambda: Point(1), lambda: Point(1, 2, "", 1, 5),
                                  lambda: Point(1, 2, x=1), lambda: Point(1, 2, other=1)])
def test_wrong_fields_are_named(call: Any) -> None:
    with pytest.raises(TypeError, match="Point: expected"):
        call()


def test_args_of_ops_print_as_they_are_written() -> None:
    """Digests read these strings, so they may change only together with the object cache."""
    assert repr(kernel_args.Range(1, "PAR", "i")) == "Range(id=1, kind='PAR', name='i')"
    assert repr(op_args.Reduce(ops.ADD, (0,))) == \
        "Reduce(monoid=ADD, axes=(0,), accumulator=None, first=False)"


def test_frozen_values_of_the_package_are_records() -> None:
    """Except those that every call builds and hashes, and those of public modules, which users
    unpack and loops carry."""
    package = Path(__file__).resolve().parents[3] / "fnx"
    public = {"numpy", "lax", "scipy", "experimental", "as_jax"}
    sources = [path.read_text() for path in package.rglob("*.py")
               if path.relative_to(package).parts[0] not in public]
    classes = [node for source in sources if "NamedTuple" in source or "frozen=True" in source
               for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ClassDef)]
    frozen = {c.name for c in classes
              if any(ast.unparse(base) == "NamedTuple" for base in c.bases)
              or any("frozen=True" in ast.unparse(d) for d in c.decorator_list)}
    assert frozen == {"Aval", "CallKey", "GatherDimensionNumbers", "ScatterDimensionNumbers"}
