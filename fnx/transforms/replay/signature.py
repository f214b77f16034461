"""What makes two calls of a jitted function the same, and what such a call was traced to.

    f(params, x, n=3), n static   ->   key: (tree, (shape, dtype, weak) of the leaves,
                                             statics, device and configuration)

``Key`` is looked up; ``Traced`` is what is found; ``difference`` says in words why one was not.
Static values are compared exactly (core/array/equality.py): 1, 1.0 and True are three signatures.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable, Sequence
from typing import Any

from fnx.core import ops
from fnx.core.array import scope, tree
from fnx.core.array.array import Array
from fnx.core.array.equality import Static
from fnx.core.config import config
from fnx.core.dtypes import DType
from fnx.core.errors import StaticArgumentError
from fnx.core.ops import Shape
from fnx.core.uop import UOp
from fnx.transforms.replay.captures import Captures
from fnx.transforms.replay.launcher import Launch, NamedStatic

Aval = tuple[Shape, DType, bool]
Key = tuple[tree.TreeDef, tuple[Aval, ...], tuple[NamedStatic, ...], str, tuple[Any, ...]]


def key_of(in_tree: tree.TreeDef, leaves: Sequence[Array], statics: tuple[NamedStatic, ...]
           ) -> Key:
    """The signature of a call."""
    avals = tuple([(x._shape, x._dtype, x.weak) for x in leaves])
    return in_tree, avals, statics, config.device, config.key()


def positions(numbers: Sequence[int], count: int) -> set[int]:
    """Positions among ``count`` arguments; negative ones count from the end."""
    return {i + count if i < 0 else i for i in numbers}


class Traced:
    """What a signature was traced to.

    Attributes:
        fn: the FUNCTION.
        captures: nodes that stand for its last parameters.
        outs: (dtype, shape, weak) of the results.
        links: position in the watch -> position in captures, for arrays it read from outside.
        keeps: whether the captures outlive the trace they were found in.
        executable: the program, once it was asked for.
        launch: the launcher, once it paid to make one.
        calls_before_launcher: general calls until then.
    """

    __slots__ = ("fn", "captures", "outs", "out_tree", "watch", "links", "keeps", "executable",
                 "storages", "launch", "calls_before_launcher", "milliseconds")

    def __init__(self, fn: UOp, captures: list[UOp], outs: list[Array], out_tree: tree.TreeDef,
                 watch: Captures, read: set[Any]) -> None:
        self.fn, self.captures, self.out_tree, self.watch = fn, captures, out_tree, watch
        self.outs = [(x._dtype, x._shape, x.weak) for x in outs]
        self.links = self._find_links(read)
        linked = set(self.links.values())
        self.keeps = all(c.op is ops.BUFFER or i in linked for i, c in enumerate(captures))
        self.executable: Any = None
        self.launch: Launch | None = None
        self.calls_before_launcher = 1
        self.milliseconds = 0.0
        self.storages: list[Any] = []
        self._update()

    def _find_links(self, read: set[Any]) -> dict[int, int]:
        position = {c: i for i, c in enumerate(self.captures)
                    if c.op is not ops.BUFFER or c.arg.handle not in read}
        places: dict[UOp, list[int]] = {}  # where an array was found outside
        for i, (_, _, value) in enumerate(self.watch.entries):
            if type(value) is Array and not value.is_deleted():
                places.setdefault(value._node, []).append(i)
        return {at[0]: position[node] for node, at in places.items()
                if len(at) == 1 and node in position}  # of two names, one may be rebound

    def _update(self) -> None:
        self.storages = [c.arg.handle if c.op is ops.BUFFER else None for c in self.captures]

    def refuse_leaks(self) -> None:
        """Raise LeakedTracerError: outside of all traces a capture has no memory."""
        for node in self.captures:
            if node.op is not ops.BUFFER:
                scope.known(node)

    def follow(self) -> tuple[str, Any, Any] | None:
        """Take over rebound arrays of equal type; what else changed, if anything did."""
        entries = self.watch.entries
        while True:
            change = self.watch.changed()
            if change is None:
                return None
            i = next(i for i, e in enumerate(entries) if e[2] is change[1] and e[1] == change[0])
            old, new = change[1], change[2]
            if i not in self.links or type(new) is not Array or new.is_deleted() or \
                    (new._shape, new._dtype, new.weak) != (old._shape, old._dtype, old.weak):
                return change
            entries[i] = (entries[i][0], entries[i][1], new)
            self.captures[self.links[i]] = new._node
            self.launch, self.calls_before_launcher = None, 2  # it may be rebound at each call
            self._update()


# ---- static arguments ---------------------------------------------------------------------------


class StaticArguments:
    """Which arguments are values of the trace, by position and by name."""

    __slots__ = ("numbers", "names", "function")

    def __init__(self, numbers: tuple[int, ...], names: tuple[str, ...], function: str) -> None:
        self.numbers, self.names, self.function = numbers, frozenset(names), function

    def __bool__(self) -> bool:
        return bool(self.numbers or self.names)

    def split(self, args: tuple[Any, ...], kwargs: dict[str, Any]
              ) -> tuple[tuple[Any, ...], dict[str, Any], tuple[NamedStatic, ...]]:
        """Dynamic arguments by position and by name, and the static ones as a part of a key."""
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
                    hint="pass a tuple or a frozen dataclass instead, or make it dynamic") from e
        return (tuple([x for i, x in enumerate(args) if i not in static]),
                {k: v for k, v in kwargs.items() if k not in self.names},
                tuple([(name, Static(value)) for name, value in values]))

    def filled(self, args: tuple[Any, ...], dynamic: tuple[Any, ...]) -> list[Any]:
        """Positional arguments with traced values in the places of the dynamic ones."""
        static = positions(self.numbers, len(args))
        values = iter(dynamic)
        return [x if i in static else next(values) for i, x in enumerate(args)]


def static_arguments(f: Callable[..., Any], nums: tuple[int, ...], names: tuple[str, ...]
                      ) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Static arguments both by position and by name, whichever way they were given."""
    if not nums and not names:
        return nums, names
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (ValueError, TypeError):
        return nums, names
    by_position = [p.name for p in parameters
                   if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    open_ended = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    for i in nums:
        if not open_ended and not -len(by_position) <= i < len(by_position):
            raise StaticArgumentError(
                f"expected static_argnums below {len(by_position)}, got {i}",
                hint=f"the parameters are {', '.join(by_position)}")
    known = {p.name for p in parameters}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters):
        for name in names:
            if name not in known:
                raise StaticArgumentError(f"expected a parameter name, got {name!r}",
                                          hint=f"the parameters are {', '.join(sorted(known))}")
    more_names = {by_position[i] for i in nums if -len(by_position) <= i < len(by_position)}
    more_nums = {by_position.index(n) for n in names if n in by_position}
    return tuple({*nums, *more_nums}), tuple({*names, *more_names})


# ---- in words -----------------------------------------------------------------------------------


def path(treedef: tree.TreeDef, i: int) -> str:
    """Where leaf ``i`` is found."""
    return tree.keystr(tree.paths(treedef)[i])


def argument(in_tree: tree.TreeDef, i: int) -> str:
    """Where leaf ``i`` of (args, kwargs) is found: ``args[0]['w']`` or ``kwargs['scale']``."""
    where, *rest = tree.paths(in_tree)[i]
    return f"{'kwargs' if where.key else 'args'}{tree.keystr(tuple(rest))}"


_text = reprlib.Repr()  # looks at the beginning only, and survives a __repr__ that raises
_text.maxother = _text.maxstring = _text.maxlong = 60


def short(x: Any) -> str:
    """A value in a few words."""
    return _text.repr(x)


def difference(old: Any, new: Any) -> str:
    """Which argument differs between two signatures, from what to what."""
    if old[0] != new[0]:
        return tree.difference(old[0], new[0])
    for i, (a, b) in enumerate(zip(old[1], new[1])):
        if a != b:
            return f"{argument(new[0], i)}: {_aval(a)} -> {_aval(b)}"
    for (name, a), (_, b) in zip(old[2], new[2]):
        if a != b:
            return f"static {name}: {short(a.value)} -> {short(b.value)}"
    return f"configuration: {old[3:]} -> {new[3:]}"


def _aval(a: Aval) -> str:
    return f"{a[1]}{list(a[0])}{' weak' if a[2] else ''}"
