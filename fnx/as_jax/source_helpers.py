"""Small parts of ``jax._src`` that tests and libraries call: helpers of sequences, settings.

>>> split_list([1, 2, 3, 4], [1, 2]), partition_list([True, False], "ab")
([[1], [2, 3], [4]], (['b'], ['a']))
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from fnx.core.support.config import config, override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.jax_flags import FIELD_OF, FIXED, INERT

# ---- sequences ----------------------------------------------------------------------------------


def safe_map(f: Callable[..., Any], *args: Iterable[Any]) -> list[Any]:
    """Return a list of calls; the arguments have to be of one length."""
    columns = [list(arg) for arg in args]
    if len({len(c) for c in columns}) > 1:
        raise ArgumentError(f"length mismatch: {[len(c) for c in columns]}")
    return list(map(f, *columns))


def safe_zip(*args: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return a list of tuples; the arguments have to be of one length."""
    return safe_map(lambda *xs: xs, *args)


def unzip2(xys: Iterable[tuple[Any, Any]]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the first and the second parts of pairs."""
    pairs = list(xys)
    return tuple([x for x, _ in pairs]), tuple([y for _, y in pairs])


def unzip3(xyzs: Iterable[tuple[Any, Any, Any]]) -> tuple[tuple[Any, ...], ...]:
    """Return the first, second and third parts of triples."""
    triples = list(xyzs)
    return tuple([tuple([t[i] for t in triples]) for i in range(3)])


def split_list(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Split a list into parts of some lengths, and the rest."""
    ends = [0, *itertools.accumulate(ns), len(args)]
    return [list(args[i:j]) for i, j in itertools.pairwise(ends)]


def partition_list(bs: Sequence[bool], xs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the items where bs is false, and those where it is true."""
    pairs = safe_zip(bs, xs)
    return [x for b, x in pairs if not b], [x for b, x in pairs if b]


def merge_lists(bs: Sequence[bool], l0: Sequence[Any], l1: Sequence[Any]) -> list[Any]:
    """Undo ``partition_list``."""
    no, yes = iter(l0), iter(l1)
    return [next(yes if b else no) for b in bs]


def subvals(lst: Sequence[Any], replace: Iterable[tuple[int, Any]]) -> tuple[Any, ...]:
    """Return a tuple with some items replaced."""
    new = dict(replace)
    return tuple([new.get(i, x) for i, x in enumerate(lst)])


def concatenate(xs: Iterable[Sequence[Any]]) -> list[Any]:
    """Return one list of several."""
    return list(itertools.chain.from_iterable(xs))


def unflatten(xs: Iterable[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Return lists of some lengths."""
    rest = iter(xs)
    return [[next(rest) for _ in range(n)] for n in ns]


def split_list_checked(args: Sequence[Any], ns: Sequence[int]) -> list[list[Any]]:
    """Split a list into parts, whose lengths are all given."""
    if sum(ns) != len(args):
        raise ArgumentError(f"expected lengths that sum to {len(args)}, got {list(ns)}")
    return split_list(args, ns)[:-1]


def subs_list(subs: Sequence[int | None], src: Sequence[Any], base: Sequence[Any]) -> list[Any]:
    """Return base with some items replaced: item i by ``src[subs[i]]``."""
    rest = iter(base)
    return [next(rest) if i is None else src[i] for i in subs]


def flatten(xs: Iterable[Sequence[Any]]) -> list[Any]:
    """Return one list of several."""
    return concatenate(xs)


def canonicalize_axis_tuple(axis: int | Sequence[int] | None, ndim: int,
                            allow_duplicate: bool = False) -> tuple[int, ...]:
    """Return axes counted from the front; None: all of them."""
    axes = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    out = tuple([canonicalize_axis(i, ndim) for i in axes])
    if len(set(out)) != len(out) and not allow_duplicate:
        raise ArgumentError(f"duplicate value in 'axis': {axis}")
    return out


def tuple_insert(t: tuple[Any, ...], idx: int, val: Any) -> tuple[Any, ...]:
    """Return a tuple with an item more."""
    return (*t[:idx], val, *t[idx:])


def tuple_delete(t: tuple[Any, ...], idx: int) -> tuple[Any, ...]:
    """Return a tuple without an item."""
    return (*t[:idx], *t[idx + 1:])


def tuple_update(t: tuple[Any, ...], idx: int, val: Any) -> tuple[Any, ...]:
    """Return a tuple with another item."""
    return (*t[:idx], val, *t[idx + 1:])


def toposort(end_nodes: Iterable[Any]) -> list[Any]:
    """Return nodes after their ``parents``, which are in the list, too."""
    done: dict[int, Any] = {}

    def visit(node: Any) -> None:
        waiting = [(node, iter(node.parents))]
        while waiting:
            current, parents = waiting[-1]
            parent = next((p for p in parents if id(p) not in done), None)
            if parent is None:
                done.setdefault(id(current), current)
                waiting.pop()
            else:
                waiting.append((parent, iter(parent.parents)))
    for node in end_nodes:
        visit(node)
    return list(done.values())


def stable_unique(it: Iterable[Any]) -> Iterable[Any]:
    """Return the items in the order of their first occurrences."""
    return dict.fromkeys(it).keys()


def ceil_of_ratio(x: int, y: int) -> int:
    """Return x / y, rounded up."""
    return -(-x // y)


def canonicalize_axis(axis: int, num_dims: int) -> int:
    """Return an axis counted from the front."""
    if not -num_dims <= axis < num_dims:
        raise ArgumentError(f"axis {axis} is out of bounds for array of dimension {num_dims}")
    return axis % num_dims


# ---- functions ----------------------------------------------------------------------------------


def curry(f: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes some arguments and returns one of the others."""
    return functools.partial(functools.partial, f)


def fun_name(fun: Any, default_name: str = "<unnamed function>") -> str:
    """Return the name of a function."""
    inner = fun.func if isinstance(fun, functools.partial) else fun
    return str(getattr(inner, "__name__", default_name))


def fun_qual_name(fun: Any) -> str:
    """Return the name of a function with that of what it is defined in."""
    return str(getattr(fun, "__qualname__", fun_name(fun)))


def fun_sourceinfo(fun: Any) -> str:
    """Return the name of a function and where it is defined."""
    inner = inspect.unwrap(fun.func if isinstance(fun, functools.partial) else fun)
    code = getattr(inner, "__code__", None)
    return "<unknown>" if code is None else \
        f"{fun_name(fun)} at {code.co_filename}:{code.co_firstlineno}"


def fun_signature(fun: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a function, or None."""
    try:
        return inspect.signature(fun)
    except (ValueError, TypeError):
        return None


def is_hashable(arg: Any) -> bool:
    """Return whether a value has a hash."""
    try:
        hash(arg)
    except TypeError:
        return False
    return True


def cache(max_size: int | None = 4096, trace_context_in_key: Any = True) -> Callable[..., Any]:
    """Cache the results of a function by its arguments."""
    return functools.lru_cache(maxsize=max_size)


def pprint_bytes(num_bytes: float) -> str:
    """Return a number of bytes as text."""
    for unit, factor in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if num_bytes >= factor:
            return f"{num_bytes / factor:.2f}{unit}"
    return f"{num_bytes:.2f}B"


def wrap_name(transform_name: str, name: str) -> str:
    """Return the name of a transformed function."""
    return f"{transform_name}({name})"


def wraps(wrapped: Callable[..., Any], namestr: str | None = None, docstr: str | None = None,
          **kwargs: Any) -> Callable[[Any], Any]:
    """Give a function the name and the docstring of another, each through a format."""
    def decorate(fun: Any) -> Any:
        name, doc = fun_name(wrapped), getattr(wrapped, "__doc__", "") or ""
        fun = functools.wraps(wrapped)(fun)
        fun.__name__ = name if namestr is None else namestr.format(fun=name)
        fun.__doc__ = doc if docstr is None else docstr.format(fun=name, doc=doc, **kwargs)
        return fun
    return decorate


def memoize(f: Callable[..., Any]) -> Callable[..., Any]:
    """Keep all results of a function."""
    return functools.cache(f)


class Hashable:
    """A value with the hash of its identity."""

    def __init__(self, val: Any) -> None:
        self.val = val

    def __hash__(self) -> int:
        return id(self.val)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Hashable) and self.val is other.val


class HashableFunction:
    """A function that is equal to others of the same code and closure."""

    def __init__(self, f: Callable[..., Any], closure: Any) -> None:
        self.f, self.closure = f, closure

    def __hash__(self) -> int:
        return hash((self.f.__code__, self.closure))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashableFunction) and self.f.__code__ is other.f.__code__ \
            and bool(self.closure == other.closure)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*args, **kwargs)


class HashablePartial:
    """A partial function that is equal to others of the same function and arguments."""

    def __init__(self, f: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self.f, self.args, self.kwargs = f, args, kwargs

    def __hash__(self) -> int:
        return hash((self.f.__code__, self.args, tuple(sorted(self.kwargs.items()))))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HashablePartial) and self.f.__code__ is other.f.__code__ \
            and (self.args, self.kwargs) == (other.args, other.kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.f(*self.args, *args, **self.kwargs, **kwargs)


HELPERS = {name: value for name, value in globals().items()
           if getattr(value, "__module__", None) == __name__ and not name.startswith("_")}

# Names that each module of JAX's inside imports for itself.
SHARED: Mapping[str, Any] = {
    **HELPERS, "map": safe_map, "zip": safe_zip, "unsafe_map": map, "unsafe_zip": zip, "Any": Any,
    "partial": functools.partial, "contextmanager": contextlib.contextmanager,
    "ExitStack": contextlib.ExitStack, "cached_property": functools.cached_property}

# ---- settings -----------------------------------------------------------------------------------


class Setting:
    """A setting as JAX's tests use it: ``enable_x64.value``, ``with enable_x64(True):``.

    >>> Setting("jax_enable_x64").value
    False
    """

    def __init__(self, name: str) -> None:
        self.name = self._name = name

    @property
    def value(self) -> Any:
        """The value in this thread."""
        return config.read(self.name)

    def __call__(self, value: Any) -> Any:
        """Return a block in which the setting has a value."""
        return override(**{self.name: value})

    def __bool__(self) -> bool:
        raise TypeError(f"bool() not supported for instances of type '{type(self).__name__}' "
                        "(did you mean to use '.value' instead?)")


class Settings(Mapping[str, Any]):
    """The names of ``jax._src.config`` -> settings."""

    def __init__(self) -> None:
        names = {name.removeprefix("jax_"): name for name in (*FIELD_OF, *FIXED, *INERT)}
        self._values: dict[str, Any] = {
            "config": config, "update": config.update, "Config": type(config),
            "parse_flags_with_absl": config.parse_flags_with_absl,
            **{name: Setting(flag) for name, flag in names.items()}}

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
