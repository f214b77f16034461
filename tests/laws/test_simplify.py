"""Laws of simplify on generated graphs: same bits, idempotent, nothing new where nothing changed."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.graphs import Graph, assert_same, graphs

from fnx.core import build, dtypes, interp, ops
from fnx.core.rewrite import RuleSet, graph_rewrite
from fnx.core.spec import check
from fnx.core.uop import toposort
from fnx.lower.simplify import RULES, simplify


@settings(max_examples=300)
@given(graphs())
def test_every_bit_is_kept(graph: Graph) -> None:
    check([graph.fn], "tensor")
    simple = simplify(graph.fn)
    check([simple], "tensor")
    assert_same(interp.apply(simple, graph.args), interp.apply(graph.fn, graph.args))


@settings(max_examples=150)
@given(graphs())
def test_idempotent_and_unchanged_graphs_are_the_same_object(graph: Graph) -> None:
    simple = simplify(graph.fn)
    assert simplify(simple) is simple
