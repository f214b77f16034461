"""Functions of JAX's inside that its tests and libraries call: of jaxprs, values and lines.

>>> from fnx.as_jax.linear_util import wrap_init
>>> f = wrap_init(lambda x: [x + 1])
>>> print(trace_to_jaxpr_dynamic(f, [ShapedArray((), "float32")])[0])
{ lambda ; a:f32[]. let b:f32[] = add a 1.0:f32[] in (b,) }
"""

from __future__ import annotations

import ast
import contextlib
import functools
import inspect
import itertools
import linecache
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import fnx.numpy as jnp
from fnx.as_jax.linear_util import WrappedFun
from fnx.core.array import tree
from fnx.core.array.abstract_values import ShapedArray, Tracer, get_aval
from fnx.core.array.api_boundary import asarray, public_api
from fnx.core.array.array import Array
from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.array.axes import normalize_shape
from fnx.core.array.recorded_calls import record_call
from fnx.core.ir.cache import memos_of
from fnx.core.rewriting import lengths
from fnx.core.scope import scope
from fnx.core.support.errors import (
    ArgumentError,
    PytreeError,
    TracedValueError,
    format_location,
)
from fnx.core.tracing.references import freeze, new_ref
from fnx.core.tracing.trace import argument_name, function_name
from fnx.jaxprs.make import make_jaxpr
from fnx.jaxprs.syntax import DebugInfo, Jaxpr, NameStack, SourceInfo
from fnx.numpy import result_type
from fnx.transforms.jit import Jitted, jit


def shaped_abstractify(x: Any) -> ShapedArray:
    """Return the type of an array, a number or a ShapeDtypeStruct.

    >>> shaped_abstractify(1.0)
    ShapedArray(float32[], weak_type=True)
    """
    return get_aval(x if isinstance(x, ShapeDtypeStruct) else asarray(x))


def concrete_or_error(force: Callable[[Any], Any] | None, val: Any, context: str = "") -> Any:
    """Return ``force(val)``; the error of a traced value says for what it is needed.

    >>> concrete_or_error(int, 3.0, "the size")
    3
    """
    try:
        if force is None and isinstance(val, Tracer):
            bool(val)
        return val if force is None else force(val)
    except TracedValueError as error:
        error.message = f"{error.message}; {context}" if context else error.message
        error.args = (error.message,)
        raise


def trace_to_jaxpr_dynamic(fun: WrappedFun, in_avals: Sequence[Any], **_: Any
                           ) -> tuple[Jaxpr, list[Any], list[Any]]:
    """Trace a function of leaves, which returns a list.

    Returns:
        A jaxpr, the types of its results, and its constants.
    """
    structs = [ShapeDtypeStruct(a.shape, a.dtype, weak_type=getattr(a, "weak_type", False))
               for a in in_avals]
    closed = make_jaxpr(lambda *leaves: list(fun.call_wrapped(*leaves)))(*structs)
    return closed.jaxpr, list(closed.out_avals), list(closed.consts)


@contextlib.contextmanager
def extend_axis_env_nd(axes: Sequence[tuple[Any, int]]) -> Iterator[None]:
    """Open axes by name and size.

    >>> with extend_axis_env_nd([("rows", 4)]):
    ...     scope.innermost().name
    'axis rows'
    """
    with contextlib.ExitStack() as stack:
        for name, size in axes:
            stack.enter_context(scope.Scope(f"axis {name}", scope.new_axis(name, size)))
        yield


def summarize(source_info: SourceInfo, num_frames: int = 1) -> str:
    """Return the user's line of an equation as text, with the function that it is in.

    >>> summarize(SourceInfo(("model.py", 3)))
    'model.py:3'
    """
    if source_info.loc is None:
        return "unknown"
    name = _function_at(*source_info.loc)
    return format_location(source_info.loc) + f" ({name})" * bool(name)


def _function_at(path: str, line: int) -> str:
    """Return the qualified name of the innermost function that has a line; empty if none has."""
    names: list[str] = []
    try:
        inner: ast.AST | None = ast.parse("".join(linecache.getlines(path)))
    except SyntaxError:
        return ""
    while inner is not None:
        node, inner = inner, next((
            x for x in ast.walk(inner) if x is not inner and isinstance(
                x, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef)
            and x.lineno <= line <= (x.end_lineno or x.lineno)), None)
        if isinstance(node, ast.Lambda):
            names += ["<lambda>", "<locals>"]
        elif isinstance(node, ast.ClassDef):
            names += [node.name]
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names += [node.name, "<locals>"]
    return ".".join(names[:-1] if names[-1:] == ["<locals>"] else names)


def apply_primitive(prim: Any, *args: Any, **params: Any) -> Any:
    """Evaluate a primitive by its lowering, as the implementation of one that has no other."""
    return jit(lambda *xs: prim.bind(*xs, **params))(*args)


@public_api
def convert_element_type(operand: Any, new_dtype: Any = None, weak_type: bool = False,
                         sharding: Any = None) -> Array:
    """Convert an array to a dtype; None: its own.

    >>> convert_element_type(1, weak_type=True)
    Array(1, dtype=int32, weak_type=True)
    """
    x = asarray(operand)
    y = x if new_dtype is None else asarray(x.astype(new_dtype))
    return Array(y._node, weak_type)


def shard_alike(x: Any, y: Any) -> tuple[Any, Any]:
    """Return two arrays: where they are is chosen for each program as a whole.

    >>> shard_alike(1, 2)
    (1, 2)
    """
    return x, y


def standard_basis(pytree: Any) -> Any:
    """Return a tree of arrays whose rows are the unit vectors of a tree, in all its leaves.

    >>> import fnx.numpy as jnp
    >>> standard_basis((1.0, jnp.ones(2)))[1].shape
    (3, 2)
    """
    leaves, structure = tree.flatten(tree.map(asarray, pytree))
    units = jnp.eye(sum(x.size for x in leaves))
    ends = list(itertools.accumulate(x.size for x in leaves))
    return structure.unflatten([
        units[:, end - x.size:end].reshape(-1, *x.shape).astype(x.dtype)
        for x, end in zip(leaves, ends)])


def name_jitted_functions() -> None:
    """Give jitted functions the class name of JAX, by which libraries find them, and its text."""
    def text(self: Jitted[..., Any]) -> str:
        try:
            return f"<PjitFunction of {self._f!r}>"
        except Exception:  # of a __repr__ of the user's
            return f"<PjitFunction of {self._name}>"
    Jitted.__name__ = Jitted.__qualname__ = "PjitFunction"
    type.__setattr__(Jitted, "__repr__", text)
    Jitted.ir_by_default = "stablehlo"


class Frame(NamedTuple):
    """A line of the user's program."""

    file_name: str
    function_name: str
    start_line: int
    start_column: int = 0
    end_line: int = 0
    end_column: int = 0


def user_frame(traceback: Any) -> Frame | None:
    """Return the user's line of an equation, given its ``source_info`` or the traceback of this.

    >>> user_frame(SourceInfo(("model.py", 3))).start_line
    3
    """
    loc = getattr(traceback, "loc", traceback)
    return None if loc is None else Frame(loc[0], getattr(loc, "function", ""), loc[1], 0, loc[1])


def new_name_stack(name: str = "") -> NameStack:
    """Return a stack of one name, or of none.

    >>> print(new_name_stack("layer"))
    layer
    """
    return NameStack((name,) if name else ())


def current_name_stack() -> NameStack:
    """Return the names that ``named_scope`` gives the part of the program that runs.

    >>> from fnx.config_context import named_scope
    >>> with named_scope("layer"):
    ...     print(current_name_stack())
    layer
    """
    return NameStack(scope.region_names())


def run_state(f: Callable[..., None]) -> Callable[..., Any]:
    """Make a function of references one of values: it returns those that they have after it.

    >>> import fnx
    >>> run_state(lambda r: r.addupdate(1.0))(fnx.numpy.float32(2.0))
    Array(3., dtype=float32)
    """
    def on_values(values: Any) -> Any:
        refs = tree.map(new_ref, values)
        f(refs)
        return tree.map(freeze, refs)
    return on_values


def debug_info(traced_for: str, fun: Callable[..., Any], args: Sequence[Any],
               kwargs: dict[str, Any], *, static_argnums: Sequence[int] = (),
               static_argnames: Sequence[str] = (), **_: Any) -> DebugInfo:
    """Return which function is traced, for what, and the names of its arguments that are not
    static.

    >>> debug_info("jit", lambda x, y: x, (1, {"a": 2}), {}).arg_names
    ('x', "y['a']")
    """
    code = getattr(fun, "__code__", None)
    at = f" at {code.co_filename}:{code.co_firstlineno}" if code is not None else ""
    static = {i % max(len(args), 1) for i in static_argnums}
    positions = [i for i in range(len(args)) if i not in static]
    dynamic = (tuple([args[i] for i in positions]),
               {name: x for name, x in kwargs.items() if name not in static_argnames})
    names = tuple([argument_name(fun, path, positions)
                   for path in tree.paths(tree.structure(dynamic))])
    return DebugInfo(traced_for, f"{function_name(fun)}{at}", names, None)


def flatten_axes(name: str, treedef: tree.TreeDef, axis_tree: Any, **_: Any) -> list[Any]:
    """Return the leaves of a prefix tree, in which None is a leaf, for all leaves of a structure.

    >>> flatten_axes("in_axes", tree.structure((1, (2, 3))), (0, None))
    [0, None, None]
    """
    full = treedef.unflatten([0] * treedef.num_leaves)
    out: list[Any] = []

    def add(axis: Any, part: Any) -> None:
        out.extend([axis] * tree.structure(part).num_leaves)
    try:
        tree.map(add, axis_tree, full, is_leaf=lambda x: x is None)
    except PytreeError as error:
        raise ArgumentError(f"{name}: expected a prefix of {treedef}, got {axis_tree}",
                            hint=error.hint) from None
    return out


def donation_vector(donate_argnums: Sequence[int], donate_argnames: Sequence[str],
                    in_tree: tree.TreeDef, kws: bool = True) -> tuple[bool, ...]:
    """Return which leaves of (args, kwargs) are donated.

    >>> donation_vector((0,), ("k",), tree.structure(((1, 2), {"k": 3})))
    (True, False, True)
    """
    args, kwargs = in_tree.unflatten([0] * in_tree.num_leaves)
    donated = [i in donate_argnums for i, x in enumerate(args) for _ in tree.leaves(x)]
    return (*donated, *[k in donate_argnames for k, x in sorted(kwargs.items())
                        for _ in tree.leaves(x)])


def resolve_kwargs(fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]
                   ) -> tuple[Any, ...]:
    """Return all arguments of a call by position, with defaults.

    >>> resolve_kwargs(lambda x, y=2, z=3: x, (1,), {"z": 4})
    (1, 2, 4)
    """
    bound = inspect.signature(fun).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        raise TypeError(f"keyword arguments could not be resolved to positions: "
                        f"{', '.join(bound.kwargs)}")
    return bound.args


def rebase_donate_argnums(donate_argnums: Iterable[int], static_argnums: Iterable[int]
                          ) -> tuple[int, ...]:
    """Return the numbers of donated arguments among those that are not static.

    >>> rebase_donate_argnums((3, 4), (0, 1))
    (1, 2)
    """
    static, donated = set(static_argnums), sorted(set(donate_argnums))
    if both := static.intersection(donated):
        raise ValueError(f"`static_argnums` {sorted(static)} and `donate_argnums` {donated} cannot "
                         f"intersect: both have {sorted(both)}")
    return tuple([i - sum(j < i for j in static) for i in donated])


def weakref_lru_cache(f: Callable[..., Any] | None = None, *, maxsize: int | None = 2048, **_: Any
                      ) -> Any:
    """Cache a function by its arguments, without keeping the first one alive.

    >>> class Model: pass
    >>> double = weakref_lru_cache(lambda model, x: 2 * x)
    >>> model = Model(); double(model, 2), double(model, 2), double.cache_info().hits
    (4, 4, 1)
    """
    if f is None:
        return functools.partial(weakref_lru_cache, maxsize=maxsize)
    function, name = f, object()  # under which the table of each first argument has its results
    owners: weakref.WeakSet[Any] = weakref.WeakSet()
    counts = {"hits": 0, "misses": 0}

    def cache_clear() -> None:
        for owner in owners:
            memos_of(owner).pop(name, None)

    @functools.wraps(function)
    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        owners.add(first)
        rows = memos_of(first).setdefault(name, {})
        key = args, tuple(sorted(kwargs.items()))
        counts["hits" if key in rows else "misses"] += 1
        if key not in rows:
            if maxsize is not None and len(rows) >= maxsize:
                rows.pop(next(iter(rows)))
            rows[key] = function(first, *args, **kwargs)
        return rows[key]

    vars(call).update(
        cache_info=lambda: SimpleNamespace(
            **counts, maxsize=maxsize,
            currsize=sum([len(memos_of(owner).get(name, ())) for owner in owners])),
        cache_clear=cache_clear)
    return call


def is_constant_shape(shape: Sequence[Any]) -> bool:
    """Return whether all lengths are ints."""
    return all(isinstance(n, int) for n in shape)


def lattice_result_type(*args: Any) -> tuple[Any, bool]:
    """Return the dtype that values promote to, and whether it is weak.

    >>> lattice_result_type(1, 2.0)
    (dtype('float32'), True)
    """
    return result_type(*args), all(getattr(asarray(x), "weak_type", False) for x in args)


class ComputeOn(contextlib.ContextDecorator):
    """``compute_on``: a block or a function on another kind of memory; there is one kind here.

    Args:
        where: "device_host" and the like.
    """

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> ComputeOn:
        return self

    def __exit__(self, *exception: object) -> None:
        """End the block."""


CORE = {
    "max_dim": lengths.maximum,
    "min_dim": lengths.minimum,
    "canonicalize_shape": lambda shape, context="": normalize_shape(shape),
    "definitely_equal": lambda m, n: bool(m is n or m == n),
    "definitely_equal_shape": lambda s, t: len(s) == len(t) and all(map(operator.eq, s, t)),
    "dimension_as_value": lambda n: asarray(n),
    "is_concrete": lambda x: not isinstance(x, Tracer),
    "is_constant_dim": lambda n: isinstance(n, int),
    "is_constant_shape": is_constant_shape,
    "is_empty_shape": lambda shape: any(isinstance(n, int) and n == 0 for n in shape),
}


def composite(decomposition: Callable[..., Any], name: str, version: int = 0
              ) -> Callable[..., Any]:
    """Return the function, which jaxprs show as one equation; no compiler of fnx knows a faster one
    by this name.

    >>> composite(lambda x: x + 1, "my.increment")(1)
    2
    """
    @functools.wraps(decomposition)
    def call(*args: Any, **attributes: Any) -> Any:
        out = decomposition(*args, **attributes)
        leaves, structure = tree.flatten(args)
        if not all(isinstance(x, Array) for x in leaves):
            return out
        flat = tuple([(key, tuple(tree.leaves(x)), tree.structure(x))
                      for key, x in sorted(attributes.items())])
        return record_call("composite", lambda *xs: decomposition(
            *structure.unflatten(xs), **attributes), name, leaves, out, version=version,
            attributes=flat)
    return call
