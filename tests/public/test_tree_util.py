"""``fnx.tree_util`` against recorded answers of JAX: structures, keys, types."""

from __future__ import annotations

import collections
from typing import Any

import pytest

import fnx
from fnx import tree_util as tu

Point = collections.namedtuple("Point", "x y")


class Named:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


tu.register_pytree_with_keys(
    Named, lambda n: (((tu.GetAttrKey("a"), n.a), ("b!", n.b)), ("meta", 3)),
    lambda data, xs: Named(*xs))


@pytest.mark.parametrize(("tree", "text", "paths"), [
    (1, "PyTreeDef(*)", [""]), ((1,), "PyTreeDef((*,))", ["[0]"]),
    ({"a": (1, None), "b": 2}, "PyTreeDef({'a': (*, None), 'b': *})", ["['a'][0]", "['b']"]),
    (Point(1, 2), "PyTreeDef(CustomNode(namedtuple[Point], [*, *]))", [".x", ".y"]),
    (collections.OrderedDict(b=1, a=2),
     "PyTreeDef(CustomNode(OrderedDict[('b', 'a')], [*, *]))", ["['b']", "['a']"]),
    (collections.defaultdict(int, a=1),
     "PyTreeDef(CustomNode(defaultdict[(<class 'int'>, ('a',))], [*]))", ["['a']"]),
    (Named(1, 2), "PyTreeDef(CustomNode(Named[('meta', 3)], [*, *]))", [".a", "b!"]),
    (tu.Partial(print, 1, x=2),
     "PyTreeDef(CustomNode(Partial[<built-in function print>], [(*,), {'x': *}]))",
     ["[<flat index 0>][0]", "[<flat index 1>]['x']"]),
    (None, "PyTreeDef(None)", [])])
def test_structures_and_paths_print_as_in_jax(tree: Any, text: str, paths: list[str]) -> None:
    structure = tu.tree_structure(tree)
    assert str(structure) == repr(structure) == text
    assert [tu.keystr(p) for p, _ in tu.tree_leaves_with_path(tree)] == paths


def test_names_of_children_are_not_part_of_the_structure() -> None:
    class Loud:
        def __init__(self, name: str) -> None:
            self.name = name
    tu.register_pytree_with_keys(
        Loud, lambda x: (((tu.DictKey(x.name), 1),), None), lambda data, xs: Loud(*xs))
    assert tu.tree_structure(Loud("a")) == tu.tree_structure(Loud("b"))


def test_structure_methods() -> None:
    outer, inner = tu.tree_structure((1, [2])), tu.tree_structure({"a": 1})
    assert outer.num_nodes == 4 and outer.num_leaves == 2
    assert outer.compose(inner) == tu.tree_structure(({"a": 1}, [{"a": 1}]))
    assert inner.node_data() == (dict, ["a"]) and tu.tree_structure(1).node_data() is None
    assert tu.tree_structure(Named(1, 2)).node_data() == (Named, ("meta", 3))


def test_is_leaf_may_take_the_path() -> None:
    def deep(path: Any, x: Any) -> bool:
        return len(path) == 1
    found, structure = tu.tree_flatten_with_path([(1, 2), 3], deep, True)
    assert [(tu.keystr(p), x) for p, x in found] == [("[0]", (1, 2)), ("[1]", 3)]
    assert structure == tu.tree_structure([0, 0])
    assert fnx.tree.map_with_path(lambda p, x: len(p), [(1, 2), 3], is_leaf=deep,
                                  is_leaf_takes_path=True) == [1, 1]
