"""Print graphs of every level: as text, as Python source, as a drawing.

``pretty`` is for reading: tensor formulas, kernel loops, program instructions.
``to_python`` is Python source that rebuilds the identical node (the same object, while the first
one lives). ``dot`` is for Graphviz.

>>> from fnx.core.ir import build
>>> x = build.param(0, dtypes.float32, (3,))
>>> f = build.function([build.exp(build.mul(x, x))], 1, "f")
>>> print(pretty(f))
function f(x0: float32[3])
  t0[i] = exp(x0[i] * x0[i])                                    # float32[3]
  return t0
>>> print(to_python(x))
from fnx.core.ir import dtypes, kernel_args, op_args, ops
from fnx.core.ir.uop import UOp
n0 = UOp(ops.PARAM, dtypes.float32, (), op_args.Param(0, (3,)))
node = n0
>>> from_python(to_python(f)) is f
True
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from fnx.core.ir import build, dtypes, op_args, ops
from fnx.core.ir.dtypes import DType
from fnx.core.ir.ops import Op
from fnx.core.ir.uop import UOp, toposort
from fnx.core.levels.show_graph import format_type, graph_lines
from fnx.core.levels.show_kernel import expression_lines, kernel_lines
from fnx.core.levels.show_program import command_lines, program_lines
from fnx.core.levels.show_text import Names, format_const
from fnx.core.support.errors import ArgumentError, Location
from fnx.core.support.record import Record, values

_SCOPES = (ops.FUNCTION, ops.KERNEL)
_KERNEL_OPS = frozenset({ops.RANGE, ops.VAR, ops.REF, ops.INDEX, ops.STAGE})


# ---- text -------------------------------------------------------------------------------------


def pretty(roots: UOp | Iterable[UOp], *, locs: bool | Collection[Location] = True,
           scopes: bool = True, inputs: Sequence[str] = ()) -> str:
    """Format nodes of any level; FUNCTIONs and KERNELs are blocks before their first use.

    Args:
        roots: a node or several.
        locs: whether to print the user's lines of nodes, or the lines that may be printed.
        scopes: whether to print FUNCTIONs and KERNELs that other nodes refer to.
        inputs: names for the parameters of a FUNCTION or COMMANDS among the roots.
    """
    roots = [roots] if isinstance(roots, UOp) else list(roots)
    locations = _location_filter(locs)
    names: dict[UOp, str] = {}
    names_taken = Names()
    blocks: list[list[str]] = []
    for node in toposort(roots, into_functions=True):
        if node.op in _SCOPES:
            names[node] = names_taken.unique(node.arg.name or node.op.name.lower())
            if scopes or node in roots:
                blocks.append(kernel_lines(node, names[node], locations) if node.op is ops.KERNEL
                              else
                              _function_lines(node, names, locations,
                                              inputs if node in roots else ()))
    for root in roots:
        if root.op is ops.PROGRAM:
            blocks.append(program_lines(root))
        elif root.op is ops.COMMANDS:
            blocks.append(command_lines(root, names.__getitem__, inputs))
    others = [r for r in roots if r.op not in (*_SCOPES, ops.PROGRAM, ops.COMMANDS)]
    if others:
        blocks.append(_open_lines(others, names, locations))
    return "\n\n".join("\n".join(lines) for lines in blocks)


def pretty_groups(groups: Iterable[Any], locs: bool | Collection[Location] = True,
                  inputs: Sequence[str] = ()) -> list[str]:
    """Format groups of tensor nodes that become kernels: formulas over each other's results."""
    groups = list(groups)
    locations = _location_filter(locs)
    roots = list(dict.fromkeys(root for g in groups for root, _ in g.roots))
    buffers = {root: f"b{i}" for i, root in enumerate(roots)}
    lines: list[str] = []
    for i, g in enumerate(groups):
        if g.call is not None:
            lines.append(f"group {i}: {g.call.arg.name}, as it is written")
            continue
        own_roots = list(dict.fromkeys(root for root, _ in g.roots))
        reads = dict.fromkeys(s for n in g.inside for s in n.src
                              if s not in g.inside or s in buffers and s not in own_roots)
        params = sorted((n for n in reads if n.op is ops.PARAM), key=lambda n: n.arg.slot)
        names = {n: _input_name(n, buffers, inputs)
                 for n in (*params, *(n for n in reads if n in buffers))}
        body, results = graph_lines(own_roots, names, locations)
        lines.append(f"group {i} over {g.space}: "
                     f"{', '.join(names.values()) or 'nothing'} -> "
                     f"{', '.join(buffers[r] for r in own_roots)}")
        lines += ["  " + line for line in body]
        lines.append(f"  {', '.join(buffers[r] for r in own_roots)} = {', '.join(results)}")
    return lines


def _input_name(node: UOp, buffers: dict[UOp, str], inputs: Sequence[str]) -> str:
    if node in buffers:
        return buffers[node]
    slot = node.arg.slot
    return inputs[slot] if slot < len(inputs) else f"x{slot}"


def _location_filter(locs: bool | Collection[Location]) -> Callable[[UOp], tuple[Location, ...]]:
    def locs_of(node: UOp) -> tuple[Location, ...]:
        if isinstance(locs, bool):
            return node.locs[:1] if locs else ()
        return tuple([s for s in node.locs if s in locs])[:1]
    return locs_of


def _function_lines(fn: UOp, names: dict[UOp, str],
                    locations: Callable[[UOp], tuple[Location, ...]],
                    inputs: Sequence[str]) -> list[str]:
    params = build.params(fn)
    names_taken = Names()
    param_names = {params[i]: names_taken.unique(inputs[i] if i < len(inputs) else f"x{i}")
                   for i in sorted(params)}
    body, results = graph_lines(fn.src, {**names, **param_names}, locations)
    heads = ", ".join(f"{param_names[params[i]]}: {format_type(params[i])}" for i in sorted(params))
    return [f"function {names[fn]}({heads})", *("  " + line for line in body),
            f"  return {', '.join(results)}"]


def _open_lines(roots: list[UOp], names: dict[UOp, str],
                where: Callable[[UOp], tuple[Location, ...]]
                ) -> list[str]:
    """Format nodes outside of any scope: of an open trace, or parts of a kernel."""
    if any(n.op in _KERNEL_OPS for n in toposort(roots, stop=lambda n: n.op in _SCOPES)):
        return expression_lines(roots, where)
    lines, results = graph_lines(roots, names, where)
    return lines or results


# ---- Python source ----------------------------------------------------------------------------


def to_python(root: UOp) -> str:
    """Return Python source that rebuilds the identical node, as ``node``.

    Raises:
        ArgumentError: the graph has a BUFFER, which is memory and has no source.
    """
    lines = ["from fnx.core.ir import dtypes, kernel_args, op_args, ops",
             "from fnx.core.ir.uop import UOp"]
    names: dict[UOp, str] = {}
    for node in toposort([root], into_functions=True):
        names[node] = f"n{len(names)}"
        src = ", ".join(names[s] for s in node.src) + ("," if len(node.src) == 1 else "")
        arg = "" if node.arg is None else f", {python_arg(node.arg, True)}"
        lines.append(f"{names[node]} = UOp(ops.{node.op}, {_python_dtype(node.dtype)}, ({src})"
                     f"{arg})")
    return "\n".join([*lines, f"node = {names[root]}"])


def from_python(source: str) -> UOp:
    """Rebuild a node from the source that ``to_python`` returns."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    node = namespace["node"]
    assert isinstance(node, UOp)
    return node


def python_arg(arg: Any, source: bool) -> str:
    """Format an arg as a Python expression; for ``source`` names are qualified by modules."""
    if isinstance(arg, Op):
        return f"ops.{arg}" if source else arg.name
    if isinstance(arg, DType):
        return _python_dtype(arg) if source else arg.name
    if isinstance(arg, tuple):
        fields = ", ".join(python_arg(a, source) for a in arg)
        return f"({fields},)" if len(arg) == 1 else f"({fields})"
    if arg is None or isinstance(arg, (int, float, str, bytes)):
        return repr(arg)
    if isinstance(arg, op_args.Buffer) and source:
        raise ArgumentError("expected a graph without BUFFERs, got one",
                            hint="close the trace: its buffers become operands")
    if isinstance(arg, Record):
        fields = ", ".join(python_arg(v, source) for v in values(arg))
        module = f"{type(arg).__module__.rpartition('.')[2]}." if source else ""
        return f"{module}{type(arg).__name__}({fields})"
    return repr(arg)


def _python_dtype(dtype: DType) -> str:
    name = "bool_" if dtype.scalar is dtypes.bool_ else dtype.scalar.name
    return f"dtypes.{name}" if dtype.lanes == 1 else f"dtypes.{name}.vec({dtype.lanes})"


# ---- drawing ----------------------------------------------------------------------------------


def dot(roots: UOp | Iterable[UOp]) -> str:
    """Return a graph in Graphviz's language; FUNCTIONs are shown with their bodies."""
    nodes = toposort([roots] if isinstance(roots, UOp) else roots, into_functions=True)
    position = {n: i for i, n in enumerate(nodes)}
    lines = ["digraph fnx {", '  node [shape=box, fontname="monospace"];']
    for n, i in position.items():
        detail = format_const(n).text if n.op is ops.CONST else \
            "" if n.arg is None else python_arg(n.arg, False)
        label = "\\n".join(filter(None, [n.op.name, format_type(n), detail])).replace('"', "'")
        lines.append(f'  n{i} [label="{label}"];')
        lines += [f'  n{position[s]} -> n{i} [label="{k}"];' for k, s in enumerate(n.src)]
    return "\n".join([*lines, "}"])
