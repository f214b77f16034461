"""Fast path of a jitted call: a Python function generated for one signature.

    f(params, x) with params a dict of two arrays   ->

    def launch(args, kwargs):
        if len(args) != 2 or len(kwargs) != 0: return MISS
        a0, a1 = args
        if type(a0) is not dict or len(a0) != 2: return MISS
        x0 = a0['b']; x1 = a0['w']; x2 = a1
        if type(x0) is not Array:
            if type(x0) not in T0 or ...: return MISS   (NumPy data; Python numbers if weak)
            x0 = convert(x0)
        if x0._storage is None or x0._shape != S0 or x0._dtype is not D0 or ...: return MISS
        ...
        outs = fresh()
        submit((x0._storage, x1._storage, x2._storage), outs)
        return make(outs[0], ...)

A launcher does no graph work and builds no key: it only checks that the arguments have its
signature; for arrays over several processes, that they are cut as they were. Anything else (another
signature, an unsupported container) is a MISS, and the call takes the slow path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core.array import tree
from fnx.core.array.api_boundary import to_concrete
from fnx.core.array.array import Array, from_storage, from_storages
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.array.equality import exactly_equal
from fnx.core.array.placement import LocalProgram, Placement, commit, common_placement
from fnx.core.array.pytree_registry import KeyedData, is_named_tuple
from fnx.core.ir.kernel_code import UNBOUND, NativeCall
from fnx.core.support.config import config
from fnx.core.support.errors import PlacementError
from fnx.core.support.record import Record
from fnx.core.tracing.trace import ClosedFunction
from fnx.transforms.dispatch.captures import MISSING, VALUE_TYPES, WeakArrayRef
from fnx.transforms.dispatch.executable import DeviceLike, Executable
from fnx.transforms.dispatch.signature import CASTABLE, CallKey, NamedStatic

MISS = object()
MAX_LEAVES = 2000
MAX_OF_KIND = 4  # launchers for arguments of one kind, tried in turn
MAX_INLINE = 8  # results from which on they are built in a loop

# Types converted to a weak argument, to one with axes, and to any other.
_NUMBER_TYPES, _ARRAY_TYPES = frozenset({int, float}), frozenset({np.ndarray})
_SCALAR_TYPES = CASTABLE - _NUMBER_TYPES

Fastpath = Callable[[tuple[Any, ...], dict[str, Any]], Any]


def args_kind(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the lookup key of launchers: the shapes of arrays, the types of other arguments."""
    return tuple([x._shape if type(x) is Array else x.shape if type(x) is ShapeDtypeStruct else
                  type(x) for x in args])


def launch_by_kind(fastpaths: Sequence[tuple[tuple[Any, ...], Fastpath]]) -> Fastpath:
    """Return the fast path of several signatures, given each with the kind of its arguments."""
    by_kind: dict[tuple[Any, ...], list[Fastpath]] = {}
    for kind, fastpath in fastpaths:
        by_kind.setdefault(kind, []).append(fastpath)
    tried = {kind: same[:MAX_OF_KIND] for kind, same in by_kind.items()}

    def launch(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for fastpath in tried.get(args_kind(args), ()):
            out = fastpath(args, kwargs)
            if out is not MISS:
                return out
        return MISS
    return launch


class _Source:
    """The source of the function being generated, and the objects it refers to."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.namespace: dict[str, Any] = {
            "Array": Array, "MISS": MISS, "make": from_storage, "make_all": from_storages,
            "common_place": common_placement, "commit": commit, "PlacementError": PlacementError,
            "config": config, "convert": to_concrete, "MISSING": MISSING, "same": exactly_equal}
        self._constants: dict[tuple[str, int], str] = {}
        self.names = 0

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"

    def constant(self, value: Any, prefix: str = "k") -> str:
        """Bind an object to a name in the generated function, and return the name."""
        key = prefix, id(value)
        if key not in self._constants:
            self._constants[key] = name = self.name(prefix)
            self.namespace[name] = value
        return self._constants[key]

    def guard(self, *conditions: str) -> None:
        """Emit a guard: return MISS if any condition holds."""
        self.lines.append(f"  if {' or '.join(conditions)}: return MISS")


class LaunchPlan(Record):
    """A signature whose trace and program are known.

    Attributes:
        key: the signature.
        positions: the positions of the dynamic arguments.
        entries: entries of Captures, which must be unchanged.
        storages: the storages of captures, which follow those of the arguments.
        closed: the trace, for the structure and the types of the results.
        program: the program, called with the storages of arguments and captures.
        donated: the leaves that have no value afterwards.
        recipient: the name of the recipient of donated leaves, for errors.
        fixed: the device that the function asks for regardless of its arguments, if any.
        local: what this process runs if arrays are over several processes: ``program`` is of it.
        placements: then, those of the arguments.
    """

    key: CallKey
    positions: Sequence[int]
    entries: Sequence[tuple[Any, str, Any]]
    storages: Sequence[Any]
    closed: ClosedFunction
    program: Executable
    donated: Sequence[int] = ()
    recipient: str = ""
    fixed: Placement | None = None
    local: LocalProgram | None = None
    placements: Sequence[Placement | None] = ()


def make_fastpath(plan: LaunchPlan) -> Fastpath | None:
    """Generate the launcher of a signature.

    None if it has too many leaves, or dict keys that may equal keys of another type.
    """
    in_tree, fixed = plan.key.in_tree, plan.fixed
    if in_tree.num_leaves > MAX_LEAVES:
        return None
    src = _Source()
    leaves: list[str] = []
    if not _unpack_arguments(src, in_tree, plan.key.statics, plan.positions, leaves):
        return None
    _leaf_guards(src, leaves, plan.key.avals)
    _capture_guards(src, plan.entries)
    src.guard(f"config.mode is not {src.constant(config.mode, 'mode')}")
    ins = "".join(f"{x}._storage, " for x in leaves)
    ins += "".join(f"{src.constant(s, 's')}, " for s in plan.storages)
    if plan.local is not None:
        _placement_guards(src, leaves, plan.placements)
        if not any(plan.placements) and fixed is None:
            src.guard(f"config.device != {plan.key.device!r}")
    elif config.placing and fixed is None:
        src.lines.append(f"  try: place = common_place(({ins}), str)\n"
                         "  except PlacementError: return MISS")
        src.guard(f"(config.device if place is None else place.device) != {plan.key.device!r}",
                  "place is not None and place.key")
    _run_program(src, plan, leaves, ins)
    if plan.local is not None:
        _commit_local(src, plan, plan.local, ins)
    elif config.placing or fixed is not None:
        placement = "place" if fixed is None else src.constant(fixed, "place")
        src.lines.append(f"  commit(outs, {placement}, ({ins}), "
                         f"{src.constant(plan.closed.function)})")
    src.lines.append(f"  return {_results(src, plan.closed)}")
    text = "def launch(args, kwargs):\n" + "\n".join(src.lines)
    exec(compile(text, "<fnx launcher>", "exec"), src.namespace)
    fastpath: Fastpath = src.namespace["launch"]
    return fastpath


def _placement_guards(src: _Source, leaves: Sequence[str], placements: Sequence[Placement | None]
                      ) -> None:
    """Emit the guards on how arguments are cut over processes. Results of earlier calls have the
    identical placement."""
    for x, placement in zip(leaves, placements):
        src.lines.append(f"  p = getattr({x}._storage, 'placed', None)")
        other = "True" if placement is None or not placement.key else \
            f"(p is None or p.key != {placement.key!r})"
        src.guard(f"p is not {src.constant(placement, 'p')} and {other}")


def _commit_local(src: _Source, plan: LaunchPlan, local: LocalProgram, ins: str) -> None:
    """Emit what commits the results of the program of this process."""
    if plan.program.is_plain:  # their memory is new
        src.lines += [f"  for s, p in zip(outs, {src.constant(local.placements, 'places')}):",
                      "    s.placed = p"]
    else:
        src.lines.append(f"  {src.constant(local.commit, 'commit')}(outs, ({ins}))")


def _run_program(src: _Source, plan: LaunchPlan, leaves: Sequence[str], ins: str) -> None:
    """Emit the run of the program on ``ins``, the storages of arguments and captures."""
    program = plan.program
    if plan.donated:  # must be distinct: otherwise the slow path raises the error
        ids = ", ".join(f"id({x}._storage)" for x in leaves)
        src.guard(f"len({{{ids}}}) != {len(leaves)}")
        src.lines.append("  def begin():")  # no loop, no call: Ctrl-C can't come in between
        src.lines += [f"    {x}._storage = {x}._uop = None; {x}._value = {plan.recipient!r}"
                      for x in (leaves[i] for i in plan.donated)]
        src.lines.append(f"  outs = {src.constant(program.run, 'run')}(({ins}), begin)")
    elif program.is_plain and not config.check:  # ``run`` inlined
        src.lines += [f"  outs = {src.constant(program.allocate_results)}()",
                      f"  {src.constant(program.buffer.submit)}(({ins}), outs)"]
    else:
        src.lines.append(f"  outs = {src.constant(program.run, 'run')}(({ins}))")


def _results(src: _Source, closed: ClosedFunction) -> str:
    """Return an expression for the result, made of the storages ``outs``."""
    outs = closed.outs
    if len(outs) > MAX_INLINE:
        src.lines.append(f"  outs = make_all(outs, {src.constant([tuple(a) for a in outs])})")
        results = iter([f"outs[{i}]" for i in range(len(outs))])
    else:
        results = iter([f"make(outs[{i}], {src.constant(shape, 'S')}, {src.constant(t, 'D')}, "
                        f"{weak})"
                        for i, (shape, t, weak) in enumerate(outs)])
    return _result_expression(src, closed.out_tree, results)


def make_native_call(plan: LaunchPlan, hits: Any) -> Any | None:
    """Make the native call of a signature, with which a device bypasses the Python launcher.

    None if the device does not support it. Arguments are Arrays passed by position, and results are
    an Array or a tuple of Arrays.

    Args:
        plan: the signature.
        hits: a one-element array that counts calls.
    """
    key, program, outs, out_tree = plan.key, plan.program, plan.closed.outs, plan.closed.out_tree
    dynamic, named = key.in_tree.subtrees
    is_single = out_tree.pytree_type is None
    if key.statics or named.subtrees or plan.donated or plan.fixed is not None or \
            config.placing or config.check or not program.is_plain or \
            len(key.avals) > MAX_INLINE or len(outs) > MAX_INLINE or \
            any(a.pytree_type is not None for a in dynamic.subtrees) or \
            not (is_single or _is_flat_tuple(out_tree)):
        return None
    packed = [(where, name, UNBOUND if value is MISSING else value, type(value) is WeakArrayRef)
              for where, name, value in plan.entries]
    native_call = getattr(program.buffer, "native_record", None)
    return None if native_call is None else native_call(NativeCall(
        tuple([tuple(a) for a in key.avals]), tuple(packed), tuple(plan.storages),
        tuple([tuple(a) for a in outs]), tuple(program.sizes), is_single, config.mode, hits))


def _is_flat_tuple(treedef: tree.TreeDef) -> bool:
    row = treedef.pytree_type
    return row is not None and row.kind is tuple and bool(treedef.subtrees) and \
        all(t.pytree_type is None for t in treedef.subtrees)


def _unpack_arguments(src: _Source, in_tree: tree.TreeDef, statics: Sequence[NamedStatic],
                      positions: Sequence[int], leaves: list[str]) -> bool:
    """Emit the unpacking of the arguments; False if a container is not supported."""
    dynamic, kwargs_tree = in_tree.subtrees
    by_name = [s for s in statics if type(s[0]) is str]
    src.guard(f"len(args) != {len(positions) + len(statics) - len(by_name)}",
              f"len(kwargs) != {len(kwargs_tree.subtrees) + len(by_name)}")
    for where, static in statics:
        value_text = f"kwargs.get({where!r}, MISSING)" if type(where) is str else f"args[{where}]"
        constant = src.constant(static.value)
        src.lines.append(f"  now = {value_text}")
        src.guard(f"now is not {constant} and not same(now, {constant})")
    for i, child in zip(positions, dynamic.subtrees):
        if not _unpack(src, child, f"args[{i}]", leaves):
            return False
    return not kwargs_tree.subtrees or _unpack_items(src, kwargs_tree, "kwargs", leaves)


def _unpack(src: _Source, treedef: tree.TreeDef, expr: str, leaves: list[str]) -> bool:
    """Emit the unpacking of ``expr`` to named leaves, with guards on its structure."""
    if treedef.pytree_type is None:
        name = expr
        if not expr.isidentifier():
            name = src.name("x")
            src.lines.append(f"  {name} = {expr}")
        leaves.append(name)
        return True
    kind, children = treedef.pytree_type.kind, treedef.subtrees
    if kind is type(None):
        src.guard(f"{expr} is not None")
        return True
    var = src.name("a")
    src.lines.append(f"  {var} = {expr}")
    if kind not in (tuple, list, dict) and not is_named_tuple(treedef.pytree_type):
        return _unpack_registered(src, treedef, var, leaves)
    src.guard(f"type({var}) is not {src.constant(kind)}", f"len({var}) != {len(children)}")
    if kind is dict:
        return _unpack_items(src, treedef, var, leaves)
    return all(_unpack(src, c, f"{var}[{i}]", leaves) for i, c in enumerate(children))


def _unpack_items(src: _Source, treedef: tree.TreeDef, var: str, leaves: list[str]) -> bool:
    """Emit the unpacking of the values of a dict."""
    keys = list(treedef.data)  # type: ignore[call-overload]
    if all(type(k) is int for k in keys):  # 1 is equal to True and 1.0
        if keys:
            src.guard(f"{{*map(type, {var})}} != {{int}}")
    elif any(type(k) is not str for k in keys):
        return False
    names = [src.name("i") for _ in keys]
    if keys:  # a single lookup for each item, without a separate guard
        src.lines += ["  try:", *[f"    {x} = {var}[{k!r}]" for x, k in zip(names, keys)],
                      "  except KeyError: return MISS"]
    return all(_unpack(src, c, x, leaves) for x, c in zip(names, treedef.subtrees))


def _unpack_registered(src: _Source, treedef: tree.TreeDef, var: str, leaves: list[str]) -> bool:
    """Emit the unpacking of a registered type, by its own function."""
    row, data = treedef.pytree_type, treedef.data
    assert row is not None
    src.guard(f"type({var}) is not {src.constant(row.kind)}")
    children, data_name = src.name("a"), src.name("d")
    src.lines.append(f"  {children}, {data_name} = {src.constant(row.flatten, 't')}({var})")
    if isinstance(data, KeyedData):  # the names of children do not matter
        src.guard(f"not same({data_name}.data, {src.constant(data.data)})")
    else:
        src.guard(f"not same({data_name}, {src.constant(data)})")
    src.guard(f"len({children}) != {len(treedef.subtrees)}")
    return all(_unpack(src, c, f"{children}[{i}]", leaves) for i, c in enumerate(treedef.subtrees))


def _leaf_guards(src: _Source, leaves: list[str], avals: Sequence[Aval]) -> None:
    for x, (shape, t, weak) in zip(leaves, avals):
        accepted = _NUMBER_TYPES if weak else _ARRAY_TYPES if shape else _SCALAR_TYPES
        shape_name = src.constant(shape, "S")
        # checked before upload
        other = f" or {x}.shape != {shape_name}" if accepted is _ARRAY_TYPES else ""
        src.lines.append(f"  if type({x}) is not Array:\n"
                         f"    if type({x}) not in {src.constant(accepted, 'T')}{other}: return "
                         "MISS\n"
                         f"    {x} = convert({x})")
        src.guard(f"{x}._storage is None",
                  f"{x}._shape is not {shape_name} and {x}._shape != {shape_name}",
                  f"{x}._dtype is not {src.constant(t, 'D')}", f"{x}.weak is not {weak}")


def _capture_guards(src: _Source, entries: Sequence[tuple[Any, str, Any]]) -> None:
    for where, name, value in entries:
        if type(where) is dict:
            src.lines.append(f"  now = {src.constant(where, 'g')}.get({name!r}, MISSING)")
        else:
            cell = src.constant(where, "c")
            src.lines.append(f"  try: now = {cell}.cell_contents\n"
                             "  except ValueError: return MISS")
        constant = src.constant(value, "v")
        if type(value) is WeakArrayRef:
            src.guard(f"type(now) is not Array or now is not {constant}()")
        elif type(value) in VALUE_TYPES:
            src.guard(f"now is not {constant} and not same(now, {constant})")
        else:
            src.guard(f"now is not {constant}")


def _result_expression(src: _Source, treedef: tree.TreeDef, results: Iterator[str]) -> str:
    """Return an expression that builds the results; nested parts are bound on prior lines."""
    if treedef.pytree_type is None:
        return next(results)
    kind = treedef.pytree_type.kind
    if kind is type(None):
        return "None"
    texts: list[str] = []
    for child in treedef.subtrees:
        text = _result_expression(src, child, results)
        if child.subtrees:
            name = src.name("t")
            src.lines.append(f"  {name} = {text}")
            text = name
        texts.append(text)
    if kind is tuple:
        return f"({''.join(t + ', ' for t in texts)})"
    if kind is list:
        return f"[{', '.join(texts)}]"
    if kind is dict:
        keys = [src.constant(k, "n") for k in treedef.data]  # type: ignore[attr-defined]
        return "{" + ", ".join(f"{k}: {t}" for k, t in zip(keys, texts)) + "}"
    if is_named_tuple(treedef.pytree_type):
        return f"{src.constant(kind)}({', '.join(texts)})"
    make, data = src.constant(treedef.pytree_type.unflatten, "m"), src.constant(treedef.data)
    return f"{make}({data}, [{', '.join(texts)}])"


_native_devices: list[DeviceLike] = []  # the device whose method jitted functions have


def installs_native_call(device: DeviceLike, jitted: Any) -> bool:
    """Whether calls on a device run no Python: the first that can do so installs its method.

    ``jitted`` is the class of jitted functions.
    """
    if not _native_devices and \
            (method := device.native_method(jitted, "_native_calls", jitted.__call__)) is not None:
        jitted.__call__ = method
        _native_devices.append(device)
    return device in _native_devices
