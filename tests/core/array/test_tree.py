"""Pytrees: properties of random trees, each container type, messages that name the path."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fnx.core.array import tree
from fnx.core.array.pytree_registry import (
    register_dataclass,
    register_pytree_node,
    register_pytree_node_class,
)
from fnx.core.support.errors import PytreeError


class Point(collections.namedtuple("Point", "x y")):
    __slots__ = ()


Pair = collections.namedtuple("Pair", "left right")


@register_dataclass
@dataclasses.dataclass
class Layer:
    w: Any
    b: Any
    name: str = dataclasses.field(default="", metadata={"static": True})


@register_pytree_node_class
class Box:
    def __init__(self, inside: Any, label: str) -> None:
        self.inside, self.label = inside, label

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and (self.inside, self.label) == (other.inside, other.label)

    def tree_flatten(self) -> tuple[Any, Any]:
        return (self.inside,), self.label

    @classmethod
    def tree_unflatten(cls, label: Any, children: Any) -> Box:
        return cls(*children, label)


def containers(children: Any) -> Any:
    keys = st.text("abc", max_size=2)
    return st.one_of(
        st.lists(children, max_size=3), st.lists(children, max_size=3).map(tuple),
        st.dictionaries(keys, children, max_size=3),
        st.dictionaries(keys, children, max_size=3).map(collections.OrderedDict),
        st.dictionaries(keys, children, max_size=2).map(
            lambda d: collections.defaultdict(list, d)),
        st.builds(Pair, children, children), st.builds(Point, children, children),
        st.builds(Layer, children, children, st.sampled_from(["", "a"])),
        st.builds(Box, children, st.sampled_from(["p", "q"])))


TREES = st.recursive(st.integers() | st.none(), containers, max_leaves=12)


@settings(max_examples=150, deadline=None)
@given(TREES)
def test_unflatten_undoes_flatten(t: Any) -> None:
    leaves, structure = tree.flatten(t)
    back = tree.unflatten(structure, leaves)
    assert back == t and type(back) is type(t)
    assert structure.num_leaves == len(leaves)
    assert tree.structure(back) == structure
    assert hash(tree.structure(back)) == hash(structure)
    assert [p for p, _ in tree.flatten_with_path(t)[0]] == tree.paths(structure)


@settings(max_examples=100, deadline=None)
@given(TREES, TREES)
def test_structures_differ_where_difference_says(a: Any, b: Any) -> None:
    one, two = tree.structure(a), tree.structure(b)
    assert (one == two) == (tree.first_difference(one, two) == "")
    assert (str(one) == str(two)) or one != two
    if one != two:
        assert "expected" in tree.first_difference(one, two)


@settings(max_examples=100, deadline=None)
@given(TREES)
def test_map_keeps_the_structure(t: Any) -> None:
    doubled = tree.map(lambda x: 2 * x, t)
    assert tree.structure(doubled) == tree.structure(t)
    assert tree.leaves(doubled) == [2 * x for x in tree.leaves(t)]
    assert tree.map(lambda x, y: y - x, t, doubled) == t


def test_dicts_are_in_the_order_of_their_keys() -> None:
    assert tree.leaves({"b": 1, "a": 2}) == [2, 1]
    assert tree.leaves(collections.OrderedDict(b=1, a=2)) == [1, 2]
    assert tree.structure({"b": 1, "a": 2}) == tree.structure({"a": 1, "b": 2})


def test_none_has_no_leaves_and_is_leaf_stops() -> None:
    assert tree.leaves([None, 1]) == [1]
    assert tree.leaves([None, [1, 2]], is_leaf=lambda x: x is None or x == [1, 2]) == [
        None, [1, 2]]


def test_rest_may_be_deeper() -> None:
    assert tree.map(lambda x, y: (x, y), [1, 2], [{"a": 3}, 4]) == [(1, {"a": 3}), (2, 4)]


@pytest.mark.parametrize(("want", "got", "where"), [
    ({"a": [1, 2]}, {"a": [1]}, "['a']"),
    ({"a": {"b": 1}}, {"a": {"c": 1}}, "['a']"),
    ((1, Pair(1, [2])), (1, Pair(1, (2,))), "[1].right"),
    ([1], 3, "the root"),
])
def test_a_mismatch_names_its_path(want: Any, got: Any, where: str) -> None:
    with pytest.raises(PytreeError) as caught:
        tree.map(lambda a, b: a, want, got)
    assert where in caught.value.message
    assert where in tree.first_difference(tree.structure(want), tree.structure(got))


def test_paths_read_as_code() -> None:
    t = {"layers": [Layer(1, 2, "x"), Box(3, "p")], "p": Point(4, 5)}
    assert [tree.keystr(p) for p in tree.paths(tree.structure(t))] == [
        "['layers'][0].w", "['layers'][0].b", "['layers'][1][<flat index 0>]", "['p'].x", "['p'].y"]


def test_structures_print() -> None:
    assert f"{tree.structure({'a': (1, None), 'b': [2]})}" == "{'a': (*, None), 'b': [*]}"
    assert f"{tree.structure(Layer(1, 2, 'n'))}" == "Layer(w=*, b=*, name='n')"
    assert f"{tree.structure((1,))}" == "(*,)"


def test_static_fields_are_part_of_the_structure() -> None:
    assert tree.structure(Layer(1, 2, "a")) != tree.structure(Layer(1, 2, "b"))


def test_misuse() -> None:
    with pytest.raises(PytreeError, match="not a pytree yet"):
        register_pytree_node(Box, lambda b: ((), None), lambda d, xs: None)
    with pytest.raises(PytreeError, match="keys that can be sorted"):
        tree.leaves({"a": 1, 2: 3})
    with pytest.raises(PytreeError, match="expected 2 leaves"):
        tree.unflatten(tree.structure([1, 2]), [1])
    with pytest.raises(PytreeError, match="fields of Loose"):
        register_dataclass(dataclasses.make_dataclass("Loose", ["a", "b"]), ["a"], [])
