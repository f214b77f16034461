"""The parts of a jaxpr: variables, literals, equations, and jaxprs.

>>> from fnx.core.array.abstract_values import ShapedArray
>>> a, b = Var(ShapedArray((), "float32")), Var(ShapedArray((), "float32"))
>>> from fnx.jaxprs.primitive import Primitive
>>> eqn = new_jaxpr_eqn([a, Literal(2.0, a.aval)], [b], Primitive("double"), {})
>>> print(Jaxpr([], [a], [b], [eqn]))
{ lambda ; a:f32[]. let b:f32[] = double a 2.0:f32[] in (b,) }
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fnx.core.array.abstract_values import ShapedArray
from fnx.core.array.aval import Aval
from fnx.core.ir.uop import UOp
from fnx.core.support.errors import ArgumentError, Location
from fnx.core.support.process import lazy_import
from fnx.jaxprs.signature_names import SignatureNames

if TYPE_CHECKING:
    from fnx.jaxprs.primitive import Primitive

printer = lazy_import("fnx.jaxprs.printer")
show = lazy_import("fnx.core.levels.show")


class Effect:
    """An effect of an equation or a jaxpr: it must run, and in order."""

    def __repr__(self) -> str:
        return type(self).__name__


class HostEffect(Effect):
    """The effect of calling Python: printing, or a callback."""

    def __str__(self) -> str:
        return type(self).__name__.removesuffix("Effect")


class DebugEffect(HostEffect):
    """The effect of ``debug.print`` and ``debug.callback``."""


class OrderedDebugEffect(HostEffect):
    """That of such calls with ``ordered=True``."""


class IOEffect(HostEffect):
    """The effect of ``io_callback``."""


class OrderedIOEffect(HostEffect):
    """That of such calls with ``ordered=True``."""


HOST_EFFECT = HostEffect()
no_effects: frozenset[Effect] = frozenset()


class Var:
    """A variable, compared by identity.

    Args:
        aval: shape and dtype of its value.
    """

    __slots__ = ("aval", "__weakref__")
    aval: Any

    def __init__(self, aval: Any) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short()}"


class DropVar(Var):
    """The variable of a result that nothing reads; it prints as ``_``."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


class Literal:
    """A constant scalar as an operand.

    Args:
        val: the number.
        aval: its shape and dtype.
    """

    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: Any) -> None:
        self.val, self.aval = val, aval

    def __repr__(self) -> str:
        return f"Literal({self.val})"


Atom = Var | Literal


class NameStack(tuple[str, ...]):
    """The user's names of the parts of a program that an equation is in, outermost first.

    >>> print(NameStack(("layer", "norm")))
    layer/norm
    """

    @property
    def stack(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self)

    def __str__(self) -> str:
        return "/".join(self)


class SourceInfo:
    """The user's source line of an equation, and the named parts of the program it is in."""

    def __init__(self, loc: Location | None = None) -> None:
        self.loc = loc

    @property
    def traceback(self) -> Location | None:
        """What ``user_frame`` finds the line in: the line."""
        return self.loc

    @property
    def name_stack(self) -> NameStack:
        """The names that ``named_scope`` gives."""
        return NameStack(getattr(self.loc, "names", ()))

    def __repr__(self) -> str:
        return "" if self.loc is None else f"{self.loc[0]}:{self.loc[1]}"


class EqnContext:
    """The context of an equation: none here."""

    manager = contextlib.nullcontext()


_CONTEXT = EqnContext()


class JaxprEqn:
    """An equation: ``outvars = primitive[params] invars``."""

    __slots__ = ("invars", "outvars", "primitive", "params", "effects", "source_info", "ctx")

    def __init__(self, invars: Iterable[Atom], outvars: Iterable[Var], primitive: Primitive,
                 params: Mapping[str, Any], effects: Iterable[Effect] = no_effects,
                 source_info: SourceInfo | None = None, ctx: Any = None) -> None:
        self.invars, self.outvars = list(invars), list(outvars)
        self.primitive, self.params = primitive, dict(params)
        self.effects = set(effects)
        self.source_info = source_info or SourceInfo()
        self.ctx = ctx or _CONTEXT

    def replace(self, **changes: Any) -> JaxprEqn:
        """Return a copy with some fields changed."""
        return JaxprEqn(**{**{name: getattr(self, name) for name in self.__slots__}, **changes})

    def __repr__(self) -> str:
        text: str = printer.format_eqn(self)
        return text


def new_jaxpr_eqn(invars: Iterable[Atom], outvars: Iterable[Var], primitive: Primitive,
                  params: Mapping[str, Any], effects: Iterable[Effect] = no_effects,
                  source_info: SourceInfo | None = None, ctx: Any = None) -> JaxprEqn:
    """Return an equation.

    Args:
        invars: its operands.
        outvars: the variables that it binds.
        primitive: what it computes.
        params: the static arguments of the primitive.
        effects: its effects.
        source_info: the user's source line.
        ctx: accepted for JAX's sake.
    """
    return JaxprEqn(invars, outvars, primitive, params, effects, source_info, ctx)


def _of_length(names: Any, n: int) -> tuple[str, ...]:
    return tuple(names) if names is not None and len(names) == n else ("",) * n


class DebugInfo:
    """Where a jaxpr comes from: what it was traced for, and the name of the function."""

    def __init__(self, traced_for: str = "jit", func_src_info: str = "", arg_names: Any = None,
                 result_paths: Any = None) -> None:
        self.traced_for, self.func_src_info = traced_for, func_src_info
        self.arg_names, self.result_paths = arg_names, result_paths

    @property
    def func_name(self) -> str:
        """The name of the function."""
        return self.func_src_info.partition(" at ")[0]

    @property
    def func_filename(self) -> str | None:
        """The file of the function, if it is known."""
        path = self.func_src_info.partition(" at ")[2].rpartition(":")[0]
        return path or None

    @property
    def func_lineno(self) -> int | None:
        """Its line, if it is known."""
        line = self.func_src_info.rpartition(":")[2]
        return int(line) if line.isdigit() else None

    def set_names(self, names: SignatureNames) -> None:
        """Set where the function is, and the names of arguments and results."""
        where = names.source.partition(" at ")[2]
        if where and self.func_src_info:
            self.func_src_info = f"{self.func_name} at {where}"
        self.arg_names, self.result_paths = names.arguments, names.results

    def resolve_result_paths(self) -> DebugInfo:
        """Return what has the paths of the results: this.

        >>> DebugInfo("jit", "f", ("x",)).resolve_result_paths().func_name
        'f'
        """
        return self

    def safe_arg_names(self, expected_count: int) -> tuple[str, ...]:
        """Return a name for each argument, empty ones if these are not known.

        Args:
            expected_count: the number of the arguments.

        >>> DebugInfo("jit", "f", ("x",)).safe_arg_names(2)
        ('', '')
        """
        return _of_length(self.arg_names, expected_count)

    def safe_result_paths(self, expected_count: int) -> tuple[str, ...]:
        """Return a path for each result, empty ones if these are not known.

        Args:
            expected_count: the number of the results.

        >>> DebugInfo("jit", "f", ("x",), ("result",)).safe_result_paths(1)
        ('result',)
        """
        return _of_length(self.result_paths, expected_count)

    def __repr__(self) -> str:
        return (f"DebugInfo(traced_for={self.traced_for!r}, func_src_info={self.func_src_info!r}, "
                f"arg_names={self.arg_names!r}, result_paths={self.result_paths!r})")


class Jaxpr:
    """Equations over variables; what it closes over is bound by ``constvars``.

    Args:
        constvars: variables of constants.
        invars: variables of the arguments.
        outvars: the results.
        eqns: the equations, in order.
        effects: the effects of the equations.
        debug_info: the function that it comes from.
    """

    __slots__ = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info", "__weakref__")

    def __init__(self, constvars: Iterable[Var], invars: Iterable[Var], outvars: Iterable[Atom],
                 eqns: Iterable[JaxprEqn], effects: Iterable[Effect] = no_effects,
                 debug_info: DebugInfo | None = None, is_high: bool = False) -> None:
        self.constvars, self.invars = list(constvars), list(invars)
        self.outvars, self.eqns = list(outvars), list(eqns)
        self.effects, self.debug_info = set(effects), debug_info or DebugInfo()

    is_high = False

    @property
    def in_avals(self) -> list[Any]:
        """Shapes and dtypes of the arguments."""
        return [v.aval for v in self.invars]

    @property
    def out_avals(self) -> list[Any]:
        """Shapes and dtypes of the results."""
        return [v.aval for v in self.outvars]

    def replace(self, **changes: Any) -> Jaxpr:
        """Return a copy with some fields changed.

        Raises:
            ArgumentError: a field that a jaxpr does not have.
        """
        fields = self.__slots__[:-1]
        wrong = [name for name in changes if name not in fields and name != "is_high"]
        if wrong:
            raise ArgumentError(f"Jaxpr.replace: expected fields among {', '.join(fields)}, got "
                                f"{wrong[0]!r}")
        return Jaxpr(**{**{name: getattr(self, name) for name in fields}, **changes})

    def pretty_print(self, *, use_color: bool = False, source_info: bool = False,
                     name_stack: bool = False, **options: Any) -> str:
        """Return it as text.

        Args:
            use_color: accepted for JAX's sake.
            source_info: whether each equation has its line.
            name_stack: whether it has the names of ``named_scope``.
            options: accepted for JAX's sake.
        """
        text: str = printer.format_jaxpr(self, source_info, name_stack)
        return text

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__


class ClosedJaxpr:
    """A jaxpr and the values of its constants.

    Args:
        jaxpr: the jaxpr.
        consts: a value for each of its ``constvars``.
    """

    __slots__ = ("jaxpr", "consts", "_function", "__weakref__")

    def __init__(self, jaxpr: Jaxpr, consts: Iterable[Any],
                 function: Callable[[], Any] | None = None) -> None:
        self.jaxpr, self.consts, self._function = jaxpr, list(consts), function
        if len(self.consts) != len(jaxpr.constvars):
            raise ArgumentError(f"ClosedJaxpr: expected {len(jaxpr.constvars)} consts, one for "
                                f"each of the constvars, got {len(self.consts)}")

    in_avals = property(lambda self: self.jaxpr.in_avals, doc="Shapes and dtypes of arguments.")
    out_avals = property(lambda self: self.jaxpr.out_avals, doc="Shapes and dtypes of results.")
    eqns = property(lambda self: self.jaxpr.eqns, doc="The equations.")
    effects = property(lambda self: self.jaxpr.effects, doc="The effects of the equations.")
    literals = property(lambda self: self.consts, doc="The constants.")
    is_high = False

    @property
    def function(self) -> Any:
        """The FUNCTION that it is a view of, of its arguments and then its constants."""
        if self._function is None:
            raise ArgumentError("ClosedJaxpr.function: expected a jaxpr from make_jaxpr, got one "
                                "that is built from equations",
                                hint="trace it: make_jaxpr(jaxpr_as_fun(jaxpr))(*args)")
        return self._function()

    def replace(self, *, jaxpr: Jaxpr | None = None, consts: Sequence[Any] | None = None
                ) -> ClosedJaxpr:
        """Return a copy with another jaxpr or other constants."""
        return ClosedJaxpr(self.jaxpr if jaxpr is None else jaxpr,
                           self.consts if consts is None else consts)

    def show(self) -> str:
        """Return the graph as formulas, for reading."""
        text: str = show.pretty(self.function)
        return text

    def map_jaxpr(self, f: Callable[[Jaxpr], Jaxpr]) -> ClosedJaxpr:
        """Return a copy with f applied to the jaxpr."""
        return ClosedJaxpr(f(self.jaxpr), self.consts)

    def pretty_print(self, **options: Any) -> str:
        """Return it as text."""
        return self.jaxpr.pretty_print(**options)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


def gensym(suffix: str = "") -> Callable[[Any], Var]:
    """Return a function that makes a new variable of an aval.

    Args:
        suffix: accepted for JAX's sake: a variable has a name only when it is printed.
    """
    return Var


def jaxprs_in_params(params: Mapping[str, Any]) -> Iterator[Jaxpr]:
    """Yield the jaxprs among the params of an equation, and in tuples and lists of them.

    Args:
        params: the params.
    """
    for value in params.values():
        for item in value if type(value) in (tuple, list) else (value,):
            if isinstance(item, Jaxpr):
                yield item
            elif isinstance(item, ClosedJaxpr):
                yield item.jaxpr


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """Yield the jaxprs in the equations of a jaxpr, not those inside of these.

    Args:
        jaxpr: a jaxpr.
    """
    return itertools.chain.from_iterable(jaxprs_in_params(eqn.params) for eqn in jaxpr.eqns)


def aval_of(node: UOp, weak: bool = False) -> ShapedArray:
    """Return the aval of a graph node."""
    return ShapedArray.of(Aval(node.shape, node.dtype, weak))
