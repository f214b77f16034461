"""Signatures: the part of a call of a jitted function that its trace depends on.

    f(params, x, n=3), n static   ->   key: (tree, Avals of the leaves, statics,
                                             device and configuration)

``CallKey`` is the cache key; ``describe_difference`` explains a cache miss in words.
Static values are compared exactly (core/array/equality.py): 1, 1.0 and True are three signatures.
"""

from __future__ import annotations

import inspect
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from fnx.core.array import api_boundary, tree
from fnx.core.array.array import Array
from fnx.core.array.aval import Aval, ShapeDtypeStruct
from fnx.core.array.convert import non_array_hint
from fnx.core.array.equality import StaticValue
from fnx.core.array.placement import Placement, common_placement
from fnx.core.array.pytree_registry import SequenceKey
from fnx.core.scope import scope
from fnx.core.support.config import config
from fnx.core.support.errors import (
    ArgumentError,
    DonatedError,
    FnxError,
    PlacementError,
    StaticArgumentError,
    format_location,
)
from fnx.core.support.name_hints import suggestion
from fnx.core.tracing.state import State, StateUsedError
from fnx.core.tracing.trace import function_name

NamedStatic = tuple[int | str, StaticValue]


class CallKey(NamedTuple):
    """All that a trace depends on besides the values that the function captures.

    Attributes:
        in_tree: the structure of ``(args, kwargs)``, without static arguments.
        avals: the types of its leaves.
        statics: the static arguments.
        device: the name of the device.
        config: the configuration, as ``config.key()``.
        axes: the named axes that are open.
        extra: what else the trace of this kind of function depends on.
    """

    in_tree: tree.TreeDef
    avals: tuple[Aval, ...]
    statics: tuple[NamedStatic, ...]
    device: str
    config: tuple[Any, ...]
    axes: tuple[Any, ...]
    extra: tuple[Any, ...] = ()

    @classmethod
    def now(cls, in_tree: tree.TreeDef, avals: tuple[Aval, ...],
            statics: tuple[NamedStatic, ...] = (), extra: tuple[Any, ...] = ()) -> CallKey:
        """Return the key of a call under the present configuration."""
        watchers = scope.thread_state.watchers
        return cls(in_tree, avals, statics, config.device, config.key(), scope.open_axes(),
                   (*extra, *watchers) if watchers else extra)

    def context(self) -> tuple[Any, ...]:
        """Return the part that does not come from the arguments."""
        return (self.device, self.config, self.axes, *self.extra)


# Types that convert to Arrays directly: NumPy data and numbers.
CASTABLE = frozenset({np.ndarray, float, int, bool, complex, np.bool_, np.float16, np.float32,
                      np.float64, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16,
                      np.uint32, np.uint64, np.complex64, np.complex128})


class ArgFlattener:
    """Flattens the arguments of a function to leaves and a signature.

    Static arguments, given by position and by name, are constants of the trace.
    """

    __slots__ = ("numbers", "names", "function", "f")

    def __init__(self, f: Callable[..., Any], name: str, static_argnums: tuple[int, ...] = (),
                 static_argnames: tuple[str, ...] = ()) -> None:
        numbers, names = argnums_and_names(f, "static", static_argnums, static_argnames)
        self.numbers, self.names, self.function, self.f = numbers, frozenset(names), name, f

    def key(self, args: tuple[Any, ...], kwargs: dict[str, Any], concrete: bool = False,
            shapes: bool = False) -> tuple[list[Array], CallKey]:
        """Return the dynamic arguments as Arrays, and the signature.

        ``concrete`` asks for Arrays with memory. ``shapes`` lets ShapeDtypeStructs pass unchanged.
        """
        statics: tuple[NamedStatic, ...] = ()
        if self.numbers or self.names:
            args, kwargs, statics = self._split(args, kwargs)
        leaves, in_tree = tree.flatten((args, kwargs))
        return self._key(leaves, in_tree, statics, concrete, shapes)

    def leaves_key(self, leaves: list[Any], in_tree: tree.TreeDef) -> tuple[list[Array], CallKey]:
        """Return leaves of the dynamic arguments as Arrays with memory, and their signature."""
        return self._key(leaves, in_tree, (), True, False)

    def _key(self, leaves: list[Any], in_tree: tree.TreeDef, statics: tuple[NamedStatic, ...],
             concrete: bool, shapes: bool) -> tuple[list[Array], CallKey]:
        for i, x in enumerate(leaves):
            if (type(x) is not Array or concrete and x._storage is None) and not (
                    shapes and isinstance(x, ShapeDtypeStruct)):
                leaves[i] = self._as_array(x, in_tree, i, concrete)
        return leaves, CallKey.now(in_tree, tuple([x._aval for x in leaves]), statics)

    def _as_array(self, x: Any, in_tree: tree.TreeDef, i: int, concrete: bool) -> Array:
        """Convert an argument to an Array; errors name the argument."""
        if isinstance(x, State):
            raise StateUsedError(x.lifted)
        try:
            if concrete and type(x) in CASTABLE:
                return api_boundary.to_concrete(x)
            array = api_boundary.asarray(x)
        except FnxError as e:
            error = type(e)(f"argument {leaf_path(in_tree, i)} of {self.function}: {e.message}",
                            hint=self._hint(x, leaf_path(in_tree, i), e))
            error.function = self.f
            raise error from None
        if concrete and array.is_deleted():
            raise array._donated_error(f"argument {leaf_path(in_tree, i)} of {self.function}: ")
        if concrete:
            api_boundary.evaluate_pending(array)
        return array

    def _hint(self, x: Any, where: str, error: FnxError) -> str:
        """Return a hint on how to pass an argument that is not an array."""
        method = getattr(type(x), self.function, None)
        if getattr(method, "__wrapped__", None) is self.f:
            kind = type(x).__name__
            return (f"this is self of a method of {kind}: make {kind} a pytree with "
                    "fnx.tree_util.register_dataclass, so that its arrays are arguments, or name "
                    "it in static_argnums=0 if it never changes")
        return non_array_hint(
            x, where, "pass a value that is not an array or a number as a static argument "
            "(static_argnums, static_argnames)", error)

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if the function does not accept these arguments."""
        try:
            signature = inspect.signature(self.f)
        except (ValueError, TypeError):
            return
        try:
            signature.bind(*args, **kwargs)
        except TypeError as e:
            raise ArgumentError(f"{self.function}{signature}: {e}",
                                hint=f"the parameters are {', '.join(signature.parameters)}"
                                ) from None

    def _split(self, args: tuple[Any, ...], kwargs: dict[str, Any]
               ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[NamedStatic, ...]]:
        """Return dynamic args and kwargs, and the static arguments as part of a key."""
        static = positions(self.numbers, len(args))
        values: list[tuple[int | str, Any]] = [(i, args[i]) for i in sorted(static)
                                               if 0 <= i < len(args)]
        values += [(k, kwargs[k]) for k in sorted(self.names & kwargs.keys())]
        for name, value in values:
            try:
                hash(value)
            except TypeError as e:
                raise StaticArgumentError(
                    f"expected a hashable value for static argument {name!r} of "
                    f"{self.function}, got {type(value).__name__}",
                    hint="pass a tuple or a frozen dataclass, or do not make the argument "
                         "static") from e
        return (tuple([x for i, x in enumerate(args) if i not in static]),
                {k: v for k, v in kwargs.items() if k not in self.names},
                tuple([(name, StaticValue(value)) for name, value in values]))

    def of_dynamic(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
        """Return the function of the dynamic arguments; the static ones are those of this call."""
        static = positions(self.numbers, len(args))

        def f(*dynamic: Any, **named: Any) -> Any:
            values = iter(dynamic)
            return self.f(*[x if i in static else next(values) for i, x in enumerate(args)],
                          **{**kwargs, **named})
        if not static:
            f.__wrapped__ = self.f  # type: ignore[attr-defined]  # for names of its arguments
        return f


def device_of_call(function: str, key: CallKey, memory: Sequence[Any]) -> Placement | None:
    """Return the common device of the arguments and captures of a call.

    Raises:
        PlacementError: they are on several devices.
    """
    count = len(key.avals)
    try:
        return common_placement(memory, lambda i: "an array that it captures" if i >= count
                                else f"argument {leaf_path(key.in_tree, i)}")
    except PlacementError as error:
        error.prefix_caller(function)
        raise


def positions(numbers: Sequence[int], count: int) -> set[Any]:
    """Positions among ``count`` arguments; negative ones count from the end."""
    return {i + count if i < 0 else i for i in numbers}


def as_tuple(x: Any) -> tuple[Any, ...]:
    """Normalize argument positions or names to a tuple; None gives an empty one."""
    return (x,) if isinstance(x, (int, str)) else () if x is None else tuple(x)


def parameters_of(f: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return the parameters of a function; ``*args, **kwargs`` if Python cannot inspect it."""
    try:
        return list(inspect.signature(f).parameters.values())
    except (ValueError, TypeError):
        return [inspect.Parameter("args", inspect.Parameter.VAR_POSITIONAL),
                inspect.Parameter("kwargs", inspect.Parameter.VAR_KEYWORD)]


def positional_names(f: Callable[..., Any], option: str, numbers: tuple[int, ...]) -> list[str]:
    """Return the names of the positional parameters.

    Raises:
        StaticArgumentError: one of the ``numbers`` is not the position of a parameter.
    """
    parameters = parameters_of(f)
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    has_varargs = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for i in numbers:
        if not isinstance(i, int):
            raise StaticArgumentError(f"expected an integer, or several, as {option}; got {i!r}",
                                      hint="argument positions start at 0; pass names in "
                                           "static_argnames")
        if not has_varargs and not -len(names) <= i < len(names):
            raise StaticArgumentError(f"expected {option} below {len(names)}, got {i}",
                                      hint=f"the parameters are {', '.join(names)}" +
                                      "".join([f"; {p.name} has no position: name it in "
                                               f"static_argnames={p.name!r}" for p in parameters
                                               if p.kind is p.KEYWORD_ONLY]))
    return names


def argnums_and_names(f: Callable[..., Any], kind: str, nums: tuple[int, ...],
                      names: tuple[str, ...]
                      ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Complete the positions and names of an option such as "static" from each other."""
    if not nums and not names:
        return nums, names
    by_position, parameters = positional_names(f, f"{kind}_argnums", nums), parameters_of(f)
    known = {p.name for p in parameters}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in names:
            if name not in known:
                raise StaticArgumentError(
                    f"expected parameters as {kind}_argnames, got {name!r}",
                    hint=suggestion(str(name), known) or
                    f"the parameters are {', '.join(sorted(known))}")
    names_of_nums = {by_position[i] for i in nums if -len(by_position) <= i < len(by_position)}
    nums_of_names = {by_position.index(n) for n in names if n in by_position}
    return tuple({*nums, *nums_of_names}), tuple({*names, *names_of_nums})


# ---- donation -----------------------------------------------------------------------------------


def check_compiler_options(by: str, options: Mapping[str, Any] | None) -> None:
    """Raise if options are not those of XLA, which do nothing here.

    >>> check_compiler_options("jit", {"xla_cpu_use_thunk_runtime": False})
    """
    other = sorted([name for name in options or () if not name.startswith("xla_")])
    if other:
        raise ArgumentError(f"{by}: expected compiler_options of XLA, which do nothing, got "
                            f"{other}",
                            hint="print(fnx.config) lists the settings here")


class Donation:
    """Which arguments of a function are donated, by position and by name.

        p = step(p, x)    with p donated: the memory of the old p goes back to the pool once the
                          call has been submitted, and the old p no longer has a value

    If a call fails before it is submitted (out of memory, Ctrl-C, an earlier failure), the
    arguments stay valid. If it fails later they may be overwritten; they then name the function
    they went to.
    """

    __slots__ = ("numbers", "names", "function", "to")

    def __init__(self, numbers: tuple[int, ...], names: tuple[str, ...], f: Callable[..., Any]
                 ) -> None:
        self.numbers, self.names, self.function = numbers, frozenset(names), function_name(f)
        code = getattr(f, "__code__", None) if numbers or names else None
        self.to = self.function if code is None else \
            f"{self.function} ({format_location((code.co_filename, code.co_firstlineno))})"

    def leaves(self, in_tree: tree.TreeDef, dynamic: list[int], count: int) -> list[int]:
        """Return the numbers of the donated leaves, among those of the dynamic arguments."""
        donated = positions(self.numbers, count) | self.names
        args_tree, kwargs_tree = in_tree.subtrees
        names: Any = kwargs_tree.data  # the keys of a dict
        out: list[int] = []
        first = 0
        for position, child in [*zip(dynamic, args_tree.subtrees),
                                *zip(names, kwargs_tree.subtrees)]:
            if position in donated:
                out += range(first, first + child.num_leaves)
            first += child.num_leaves
        return out

    def check(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Raise if two arguments contain the same donated array."""
        if not self.numbers and not self.names:
            return
        first_use: dict[int, int | str] = {}
        donated = positions(self.numbers, len(args)) | self.names
        arguments: list[tuple[int | str, Any]] = [*enumerate(args), *kwargs.items()]
        for i, arg in arguments:
            for x in tree.leaves(arg):
                if type(x) is Array:
                    first = first_use.setdefault(id(x._storage), i)
                    if first != i and (i in donated or first in donated):
                        raise DonatedError(
                            f"arguments {first} and {i} of {self.function}: expected each donated "
                            "array once, got the same array twice",
                            hint="pass x.copy() for one of them")

    def consumer_of(self, args: tuple[Any, ...],
                    kwargs: dict[str, Any]) -> Callable[[], None] | None:
        """Return a function that invalidates the donated arguments. None if there are none."""
        if not self.numbers and not self.names:
            return None
        donated = [args[i] for i in positions(self.numbers, len(args)) if 0 <= i < len(args)]
        donated += [kwargs[name] for name in self.names & kwargs.keys()]
        return lambda: consume_donated([x for x in tree.leaves(donated) if type(x) is Array],
                                       self.to)


def consume_donated(arrays: Sequence[Array], to: str) -> None:
    """Invalidate arrays; their memory goes to a result or back to the pool.

    This is atomic: after Ctrl-C in between, all arrays keep their values.
    """
    saved = [(x, x._storage, x._uop, x._value) for x in arrays]
    try:
        for x in arrays:
            x._storage = x._uop = None
            x._value = to
    except BaseException:
        for x, memory, node, value in saved:
            x._storage, x._uop, x._value = memory, node, value
        raise


# ---- in words -----------------------------------------------------------------------------------


def leaf_path(in_tree: tree.TreeDef, i: int) -> str:
    """Return the path of leaf ``i`` of (args, kwargs): ``args[0]['w']``, ``kwargs['scale']``."""
    which, *rest = tree.paths(in_tree)[i]
    return f"{'kwargs' if which.idx else 'args'}{tree.keystr(tuple(rest))}"


def check_static_or_donated(static: Sequence[int | str], donated: Sequence[int | str]) -> None:
    """Check that no argument is both.

    Raises:
        ArgumentError: one is.
    """
    both = [name for name in static if name in donated]
    if both:
        raise ArgumentError(f"jit: expected arguments that are static or donated, got both for "
                            f"{', '.join(map(str, both))}",
                            hint="a static argument has no memory: leave it out of donate_*")


def nonstatic(key: CallKey, n: int) -> list[int]:
    """Return the positions of the arguments, of n, that are not static."""
    static = {name for name, _ in key.statics}
    return [i for i in range(n) if i not in static]


def leaf_labels(f: Callable[..., Any], key: CallKey) -> list[str]:
    """Return a name for each leaf of a signature: parameter and path, joined by underscores.

    >>> x = api_boundary.asarray(1.0)
    >>> def f(params, n, x): ...
    >>> leaf_labels(f, ArgFlattener(f, "f", (1,)).key(({"w": x}, 3, x), {})[1])
    ['params_w', 'x']
    """
    try:
        parameters = list(inspect.signature(f).parameters)
    except (ValueError, TypeError):
        parameters = []
    static = {name for name, _ in key.statics}
    dynamic = [p for i, p in enumerate(parameters) if i not in static]
    out = []
    for _, param_key, *rest in tree.paths(key.in_tree):
        name = param_key.idx if isinstance(param_key, SequenceKey) else param_key.key
        if isinstance(name, int):
            name = dynamic[name] if name < len(dynamic) else f"x{name}"
        out.append(re.sub(r"\W+", "_", f"{name} {tree.keystr(tuple(rest))}").strip("_"))
    return out


_text = reprlib.Repr()  # truncates early, and tolerates a __repr__ that raises
_text.maxother = _text.maxstring = _text.maxlong = 60


def short_repr(x: Any) -> str:
    """Return a short text of a value; of an array, which may be pending, only its type."""
    aval = x._aval if type(x) is Array else x
    return f"an array {aval}" if type(aval) is Aval else _text.repr(x)


def describe_difference(old: CallKey, new: CallKey) -> str:
    """Describe the first difference between two signatures."""
    if old.in_tree != new.in_tree:
        return tree.first_difference(old.in_tree, new.in_tree)
    for i, (a, b) in enumerate(zip(old.avals, new.avals)):
        if a != b:
            return f"{leaf_path(new.in_tree, i)}: {a} -> {b}"
    for (name, before), (_, after) in zip(old.statics, new.statics):
        if before != after:
            return f"static {name}: {short_repr(before.value)} -> {short_repr(after.value)}"
    return f"configuration: {old.context()} -> {new.context()}"
