"""Graph -> jaxpr: each node that is read becomes an equation, in the order of the program.

    t0 = MUL(SIN(x), 2)      ->      b = sin a;  c = mul b 2.0

A broadcast constant is a scalar literal. Tokens, which order effects, have no variables: binding
the equations in order gives the effects new ones.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.array import Array
from fnx.core.ir import build_calls, ops
from fnx.core.ir.uop import Composite, UOp, toposort
from fnx.core.scope.callbacks import Handle
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.jaxprs.effects import check_control_flow, effects_of_primitive
from fnx.jaxprs.op_rows import literal_value, node_view
from fnx.jaxprs.primitive import define
from fnx.jaxprs.syntax import (
    HOST_EFFECT,
    Atom,
    DebugInfo,
    DropVar,
    HostEffect,
    Jaxpr,
    JaxprEqn,
    Literal,
    SourceInfo,
    Var,
    aval_of,
    jaxprs_in_params,
    no_effects,
)
from fnx.jaxprs.templates import View

if TYPE_CHECKING:
    from fnx.jaxprs.references import LoggedTrace

bodies = lazy_import("fnx.jaxprs.bodies")
callbacks = lazy_import("fnx.jaxprs.callbacks")
references = lazy_import("fnx.jaxprs.references")


class _Step(Record):
    """An equation to emit: its view, and the results of the node."""

    view: View
    outs: tuple[UOp | ShapedArray, ...]  # without a node: a result that the op leaves out
    effects: bool


def graph_to_jaxpr(outs: Sequence[UOp], inputs: Sequence[UOp], consts: Sequence[UOp] = (),
                   name: str = "", weak: Sequence[bool] = (), tokens: Iterable[UOp] = (),
                   logged: LoggedTrace | None = None) -> Jaxpr:
    """Return the jaxpr of a graph.

    Args:
        outs: its results; tokens are left out.
        inputs: its sources, in the order of the arguments.
        consts: sources that become constvars.
        name: the name of the function.
        weak: of the inputs, then of the results, whether the dtype is weak.
        tokens: sources and results that order effects.
        logged: what it does with references.
    """
    accesses, refs = (logged.views, logged.refs) if logged is not None else ({}, {})
    sources = [*consts, *inputs]
    env: dict[UOp, Atom] = {x: Var(refs.get(x) or aval_of(x)) for x in sources}
    flags = weak or [False] * (len(inputs) + len(outs))
    for x, w in zip(inputs, flags):
        if x not in refs:
            env[x] = Var(aval_of(x, w))
    steps = _steps([*outs, *tokens, *accesses], env, accesses)
    eqns = [_equation(step, env, refs) for step in steps]
    results = [_result(_atom(x, env), w) for x, w in zip(outs, flags[len(inputs):])]
    read = {id(v) for eqn in eqns for v in eqn.invars} | {id(v) for v in results}
    for eqn in eqns:
        eqn.outvars = [v if id(v) in read else DropVar(v.aval) for v in eqn.outvars]
    effects = {e for eqn in eqns for e in eqn.effects}
    if accesses:
        effects = references.visible_effects(effects, [env[x] for x in sources])
    return Jaxpr([env[x] for x in consts], [env[x] for x in inputs],  # type: ignore[misc]
                 results, eqns, effects, DebugInfo(func_src_info=name))


def function_to_jaxpr(fn: UOp, params: Sequence[UOp], consts: Sequence[UOp] = (),
                      weak: Sequence[bool] = ()) -> Jaxpr:
    """Return the jaxpr of a FUNCTION with these PARAMs, without tokens among them and results."""
    tokens = [x for x in fn.src if build_calls.is_token(x)]
    return graph_to_jaxpr([x for x in fn.src if not build_calls.is_token(x)],
                          [x for x in params if not build_calls.is_token(x)], consts,
                          fn.arg.name, weak, tokens)


def _steps(outs: Sequence[UOp], known: dict[UOp, Atom], accesses: Mapping[UOp, View]
           ) -> list[_Step]:
    """Return the steps that compute ``outs``, in the order in which the nodes were made.

    Equal graphs are the same nodes, so an operand of a composite may be computed from its node in
    this graph: such a composite is left out.
    """
    without: set[UOp] = set()
    while True:
        steps = _Steps(known, without, accesses)
        steps.visit(outs)
        order, cycle = steps.in_order()
        if not cycle:
            return [steps.steps[node] for node in order]
        without |= cycle


class _Steps:
    """The steps that compute some nodes.

    Attributes:
        steps: the step of a node; of several results, that of the first to be read.
        owners: the node with the step of a result.
        reads: effects that a step reads beside its operands.
        without: the nodes whose composite is left out.
        graph: all nodes that the results are computed from.
    """

    def __init__(self, known: Collection[UOp], without: Collection[UOp],
                 accesses: Mapping[UOp, View]) -> None:
        self.known, self.without, self.accesses = known, without, accesses
        self.steps: dict[UOp, _Step] = {}
        self.owners: dict[UOp, UOp] = {}
        self.reads: dict[UOp, list[UOp]] = {
            after: [before] for before, after in itertools.pairwise(accesses)}
        self.graph: set[UOp] = set()
        self.computable = set(known)  # sources, and nodes found to read no others

    def visit(self, outs: Sequence[UOp]) -> None:
        """Add the steps of nodes, and of those that they read."""
        waiting = list(outs)
        self.graph = set(toposort(outs, stop=self.known.__contains__))
        while waiting:
            node = waiting.pop()
            if node in self.known or node in self.owners or _is_source(node):
                continue
            composite = None if node in self.without else self.composite(node)
            step = None if composite is None else self.composite_step(node, composite)
            if node in self.accesses:
                step = _Step(self.accesses[node], (node,), False)
            if step is None:
                node = node.src[0] if node.op is ops.GETTUPLE else node
                if node in self.steps:
                    continue
                step = self.op_step(node)
            self.steps[node] = step
            for x in (node, *step.outs):
                if isinstance(x, UOp):
                    self.owners.setdefault(x, node)
            waiting += (*step.view.operands, *self.reads.get(node, ()))

    def owner(self, node: UOp) -> UOp:
        """Return the node whose step has a node as a result; tokens are of the op before."""
        return self.owners.get(node, node.src[0] if node.op is ops.GETTUPLE else node)

    def op_step(self, node: UOp) -> _Step:
        """Return the step of an op."""
        if node.op is ops.BARRIER:  # the others of its operands are results that nothing reads
            return _Step(node_view(node), (node, *map(aval_of, node.src[1:])), False)
        if node.op not in ops.MULTI_RESULT:
            return _Step(node_view(node), (node,), False)
        view, outs, effects = bodies.multi_view(node)
        if effects is not None:
            self.reads[node] = [effects]
        return _Step(view, tuple(outs), effects is not None)

    def composite_step(self, node: UOp, composite: Composite) -> _Step | None:
        """Return the step of what is recorded of a node, if it is to be shown.

        Other results are built again, which gives the nodes that there are: None if it does not.
        A single part of an array is a slice.
        """
        outs, several = [node], composite.index is not None
        if composite.index is not None:
            built = composite.build(*map(Array, composite.operands), **composite.params)
            outs = [x._node for x in built]
            is_part = node.op in (ops.SHRINK, ops.RESHAPE) and composite.name != "scan"
            if outs[composite.index] is not node or \
                    is_part and sum(x in self.graph for x in outs) < 2:
                return None
        if composite.name == "scan":
            return _Step(bodies.unrolled_scan_view(composite), tuple(outs), False)
        primitive = define(composite.name, composite.build, several, replace=True)
        view = View(primitive, composite.operands, composite.params)
        return _Step(view, tuple(outs), False)

    def composite(self, node: UOp) -> Composite | None:
        """Return what is recorded of a node, unless it reads a source of another graph, which has
        the same node."""
        if node.composite is None:
            return None
        nodes = toposort(node.composite.operands, stop=self.computable.__contains__)
        if not all(n.src or n in self.computable or n.op in (ops.IOTA, ops.AXIS_INDEX)
                   or _is_source(n) for n in nodes):
            return None
        self.computable.update(nodes)
        return node.composite

    def in_order(self) -> tuple[list[UOp], set[UOp]]:
        """Return the nodes in the order in which they were made, but each after what it reads,
        which a view may have made; and the nodes on the way to the first that reads itself, if
        there is one."""
        ordered: dict[UOp, None] = {}
        for root in sorted(self.steps, key=lambda n: n.number):
            waiting, entered = [root], set[UOp]()
            while waiting:
                node = waiting[-1]
                operands = [self.owner(x) for x in (
                    *self.steps[node].view.operands, *self.reads.get(node, ()))]
                missing = [x for x in operands if x in self.steps and x not in ordered]
                if node in ordered or not missing:
                    ordered[waiting.pop()] = None
                    continue
                entered.add(node)
                if not entered.isdisjoint(missing):
                    return [], entered.difference(ordered)
                waiting += missing
        return list(ordered), set()


def _is_source(node: UOp) -> bool:
    """Return whether a node needs no equation in any graph."""
    return node.op is ops.CONST or is_handle(node) or build_calls.is_token(node) and not node.src


def _atom(node: UOp, env: dict[UOp, Atom]) -> Atom:
    if node in env:
        return env[node]
    return Literal(Array(node) if is_handle(node) else literal_value(node), aval_of(node))


def _result(v: Atom, weak: bool) -> Atom:
    """Return a result, whose dtype may be weak."""
    if weak and isinstance(v, Literal):
        return Literal(v.val, v.aval.update(weak_type=True))
    if weak and not v.aval.weak_type:
        v.aval = v.aval.update(weak_type=True)
    return v


def is_handle(node: UOp) -> bool:
    """Whether a node stands for a Python function that is called."""
    return node.op is ops.BUFFER and type(node.arg.handle) is Handle


def _effects_in_order(eqn: JaxprEqn) -> set[Any]:
    """Return the effects of an equation that takes a token: its own, those of its jaxprs, or that
    of a call of Python."""
    effects = effects_of_primitive(eqn.primitive, [v.aval for v in eqn.invars], eqn.params)
    for inner in jaxprs_in_params(eqn.params):
        effects |= inner.effects
    check_control_flow(eqn.primitive.name,
                       [e for e in effects if not isinstance(e, HostEffect)])
    return effects or callbacks.effects_of_callback(eqn) or {HOST_EFFECT}


def _equation(step: _Step, env: dict[UOp, Atom], refs: Mapping[UOp, Any]) -> JaxprEqn:
    invars = [_atom(x, env) for x in step.view.operands]
    outvars: list[Var] = []
    for x in step.outs:
        v = Var(refs.get(x) or aval_of(x)) if isinstance(x, UOp) else DropVar(x)
        if isinstance(x, UOp):
            env[x] = v
        outvars.append(v)
    locs = next((x.locs for x in step.outs if isinstance(x, UOp)), ())
    # equal graphs share nodes: the last of their lines is the one of this graph
    loc = next((x for x in locs[::-1] if getattr(x, "names", ())), locs[0] if locs else None)
    eqn = JaxprEqn(invars, outvars, step.view.primitive, step.view.params, no_effects,
                   SourceInfo(loc))
    if step.effects:
        eqn.effects = _effects_in_order(eqn)
    if eqn.primitive.ref_primitive:
        eqn.effects = references.effects_of(eqn)
        eqn.outvars = [] if eqn.primitive.name == "addupdate" else outvars
    return eqn
