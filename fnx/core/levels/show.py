"""Printing of graphs at every level: to read, to rebuild, to draw.

``pretty`` is for reading: one line a node, FUNCTIONs as blocks. ``to_python`` is Python source
that rebuilds the identical node (the same object, while the first one lives). ``dot`` is for
Graphviz.

>>> from fnx.core import build
>>> x = build.param(0, dtypes.float32, (3,))
>>> f = build.function([build.exp(build.mul(x, x))], 1, "f")
>>> print(pretty(f))
function f(p0: float32[3]) -> float32[3]
  v0 = p0 * p0                             # MUL float32[3]
  v1 = EXP(v0)                             # EXP float32[3]
  return v1
>>> print(to_python(x))
from fnx.core import dtypes, ops
from fnx.core.uop import UOp
n0 = UOp(ops.PARAM, dtypes.float32, (), ops.Param(0, (3,)))
node = n0
>>> from_python(to_python(f)) is f
True
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fnx.core import build, dtypes, ops
from fnx.core.dtypes import DType
from fnx.core.errors import ArgumentError, show_site
from fnx.core.ops import Op
from fnx.core.record import Record, values
from fnx.core.uop import UOp, toposort

_SCOPES = (ops.FUNCTION, ops.KERNEL)
_LISTS = (ops.PROGRAM, ops.COMMANDS)  # their operands are what one reads


# ---- to read ----------------------------------------------------------------------------------


def pretty(roots: UOp | Iterable[UOp], *, sites: bool = False, scopes: bool = True) -> str:
    """One line a node; every FUNCTION and KERNEL is a block of its own before its first use.

    Args:
        roots: a node or several.
        sites: whether to print the user's lines that nodes came from.
        scopes: whether to print FUNCTIONs and KERNELs that other nodes name.
    """
    roots = [roots] if isinstance(roots, UOp) else list(roots)
    blocks: list[str] = []
    names: dict[UOp, str] = {}
    for node in toposort(roots, into_functions=True):
        if node.op in _SCOPES:
            names[node] = _unique(node.arg.name or node.op.name.lower(), names)
            if scopes or node in roots:
                blocks.append("\n".join(_block(node, names, sites)))
    rest = [n for r in roots if r.op not in _SCOPES
            for n in (r.src if r.op in _LISTS else (r,))]
    if rest:
        blocks.append("\n".join(_lines(rest, names, sites)))
    return "\n\n".join(blocks)


def _unique(name: str, names: dict[UOp, str]) -> str:
    taken = set(names.values())
    return name if name not in taken else next(
        f"{name}_{i}" for i in range(2, len(taken) + 3) if f"{name}_{i}" not in taken)


def _block(scope: UOp, names: dict[UOp, str], sites: bool) -> list[str]:
    if scope.op is ops.KERNEL:
        head = f"kernel {names[scope]} order={scope.arg.order}"
    else:
        params = sorted((n for n in toposort(scope.src) if n.op is ops.PARAM),
                        key=lambda n: n.arg.slot)
        inputs = ", ".join(f"p{p.arg.slot}: {_type(p)}" for p in params)
        head = f"function {names[scope]}({inputs}) -> {', '.join(map(_type, scope.src))}"
    body = dict(names)
    lines = _lines(scope.src, body, sites)
    if scope.op is ops.FUNCTION:
        lines.append(f"return {', '.join(_label(o, body) for o in scope.src)}")
    return [head, *("  " + line for line in lines)]


def _lines(roots: Iterable[UOp], names: dict[UOp, str], sites: bool) -> list[str]:
    lines = []
    count = 0
    for node in toposort(roots, stop=lambda n: n.op in _SCOPES):
        if node in names or _inline(node):
            continue
        names[node] = f"v{count}"
        count += 1
        text = f"{names[node]} = {_expression(node, names)}"
        if node.dtype is dtypes.void and node.op is not ops.CALL:
            text = _expression(node, names)
        where = "  at " + show_site(node.sites[0]) if sites and node.sites else ""
        lines.append(f"{text:<40} # {node.op} {_type(node)}{where}")
    return lines


def _inline(node: UOp) -> bool:
    return node.op in (ops.CONST, ops.PARAM, ops.RANGE, ops.VAR) or \
        (node.op is ops.REF and not node.src)


def _label(node: UOp, names: dict[UOp, str]) -> str:
    if node in names:
        return names[node]
    if node.op is ops.CONST:
        return repr(build.const_of(node))
    if node.op is ops.PARAM:
        return f"p{node.arg.slot}"
    if node.op is ops.RANGE:
        return f"{node.arg.name or 'r'}{node.arg.id}:{node.arg.kind}<{_label(node.src[0], names)}"
    return f"{node.op.name.lower()}{node.arg.slot}"


def _expression(node: UOp, names: dict[UOp, str]) -> str:
    src = [_label(s, names) for s in node.src]
    if node.op.symbol:
        text = node.op.symbol.format(*src)
        return text[1:-1] if text.startswith("(") and text.endswith(")") else text
    arg = [] if node.arg is None else [python_arg(node.arg, "")]
    return f"{node.op}({', '.join(src + arg)})"


def _type(node: UOp) -> str:
    return f"{node.dtype}{list(node.shape)}"


# ---- to rebuild -------------------------------------------------------------------------------


def to_python(root: UOp) -> str:
    """Python source whose ``node`` is the identical node.

    Raises:
        ArgumentError: the graph holds a BUFFER, which is memory and has no source.
    """
    lines = ["from fnx.core import dtypes, ops", "from fnx.core.uop import UOp"]
    names: dict[UOp, str] = {}
    for node in toposort([root], into_functions=True):
        names[node] = f"n{len(names)}"
        src = ", ".join(names[s] for s in node.src) + ("," if len(node.src) == 1 else "")
        arg = "" if node.arg is None else f", {python_arg(node.arg, 'ops.')}"
        lines.append(f"{names[node]} = UOp(ops.{node.op}, {_python_dtype(node.dtype)}, ({src})"
                     f"{arg})")
    return "\n".join([*lines, f"node = {names[root]}"])


def from_python(source: str) -> UOp:
    """The node that the source of ``to_python`` rebuilds."""
    namespace: dict[str, Any] = {}
    exec(source, namespace)
    node = namespace["node"]
    assert isinstance(node, UOp)
    return node


def python_arg(arg: Any, prefix: str) -> str:
    """An arg as a Python expression; ``prefix`` goes before names of ``core.ops``."""
    if isinstance(arg, Op):
        return f"{prefix}{arg}"
    if isinstance(arg, DType):
        return _python_dtype(arg) if prefix else arg.name
    if isinstance(arg, tuple):
        inside = ", ".join(python_arg(a, prefix) for a in arg)
        return f"({inside},)" if len(arg) == 1 else f"({inside})"
    if arg is None or isinstance(arg, (int, float, str, bytes)):
        return repr(arg)
    if isinstance(arg, ops.Buffer) and prefix:
        raise ArgumentError("expected a graph without BUFFERs, got one",
                            hint="close the trace: its buffers become operands")
    if isinstance(arg, Record):
        inside = ", ".join(python_arg(v, prefix) for v in values(arg))
        return f"{prefix}{type(arg).__name__}({inside})"
    return repr(arg)


def _python_dtype(dtype: DType) -> str:
    name = "bool_" if dtype.scalar is dtypes.bool_ else dtype.scalar.name
    return f"dtypes.{name}" if dtype.lanes == 1 else f"dtypes.{name}.vec({dtype.lanes})"


# ---- to draw ----------------------------------------------------------------------------------


def dot(roots: UOp | Iterable[UOp]) -> str:
    """A graph for Graphviz; FUNCTIONs are shown with their bodies."""
    nodes = toposort([roots] if isinstance(roots, UOp) else roots, into_functions=True)
    number = {n: i for i, n in enumerate(nodes)}
    lines = ["digraph fnx {", '  node [shape=box, fontname="monospace"];']
    for n, i in number.items():
        detail = repr(build.const_of(n)) if n.op is ops.CONST else \
            "" if n.arg is None else python_arg(n.arg, "")
        label = "\\n".join(filter(None, [n.op.name, _type(n), detail])).replace('"', "'")
        lines.append(f'  n{i} [label="{label}"];')
        lines += [f'  n{number[s]} -> n{i} [label="{k}"];' for k, s in enumerate(n.src)]
    return "\n".join([*lines, "}"])
