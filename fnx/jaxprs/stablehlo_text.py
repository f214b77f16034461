"""A jaxpr as a module of StableHLO, as text: for programs that search the text of a lowering.

    b:f32[3] = sin a       ->      %0 = stablehlo.sine %arg0 : tensor<3xf32>

Calls are functions of the module, loops and branches are regions; a primitive that StableHLO does
not have is a ``custom_call`` by its name. fnx compiles its own graph: nothing reads this text.

>>> import fnx, fnx.numpy as jnp
>>> print(module_text(fnx.make_jaxpr(lambda x: jnp.sin(x))(jnp.ones(3)), "f"))
module @jit_f attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<3xf32>) -> (tensor<3xf32> {jax.result_info = "result"}) {
    %0 = stablehlo.sine %arg0 : tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
<BLANKLINE>
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from fnx.core.array.aval import ShapeDtypeStruct
from fnx.core.support.process import lazy_import
from fnx.core.support.record import Record
from fnx.jaxprs.stablehlo_rows import COUNTER, ROWS, element_type, literal_text, tensor_type
from fnx.jaxprs.syntax import Atom, ClosedJaxpr, DropVar, Jaxpr, JaxprEqn, Literal

make = lazy_import("fnx.jaxprs.make")
user_rules = lazy_import("fnx.jaxprs.user_rules")

MAX_CONSTANT = 16  # elements of a constant that are printed


class StableHloModule(Record):
    """A module of StableHLO: its text is ``str(module)``."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def operation(self) -> StableHloModule:
        """The module, as an operation."""
        return self


def module_text(closed: ClosedJaxpr, name: str, donated: Collection[int] = (),
                keep_unused: bool = False, debug_info: bool = False) -> str:
    """Return the module of a function.

    Args:
        closed: its jaxpr.
        name: its name.
        donated: numbers of the arguments whose memory is donated; results take that of the first
            one that fits.
        keep_unused: whether arguments that nothing reads are arguments of the module.
        debug_info: whether operations say where they come from.
    """
    module = _Module(debug_info)
    module.add_main(closed, donated, keep_unused, name)
    partitions = max([mesh.size for mesh in module.meshes], default=1)
    header = f"module @jit_{re.sub(r'[^a-zA-Z0-9_]+', '_', name).rstrip('_')} attributes " \
             f"{{mhlo.num_partitions = {partitions} : i32, mhlo.num_replicas = 1 : i32}} {{"
    return "\n".join([header, *module.mesh_lines(), *module.lines(),
                      "}" + module.location_text("unknown"), *module.location_lines(), ""])


class _Module:
    """The functions of a module, and the locations that its operations have.

    Attributes:
        functions: the lines of each function by its name.
        name: that of the whole function.
    """

    def __init__(self, debug_info: bool) -> None:
        self.functions: dict[str, list[str]] = {}
        self.names: dict[tuple[int, str], str] = {}
        self.debug_info, self.locations, self.name = debug_info, dict[str, int](), ""
        self.meshes: dict[Any, str] = {}
        self.retained: list[Any] = []  # so that no other jaxpr gets the number of one

    def lines(self) -> Iterator[str]:
        return itertools.chain.from_iterable(self.functions.values())

    def mesh_name(self, mesh: Any) -> str:
        """Return the name of a mesh, which the module declares."""
        n = len(self.meshes)
        return self.meshes.setdefault(mesh, f"@mesh_{n - 1}" if n else "@mesh")

    def mesh_lines(self) -> Iterator[str]:
        """Return the declarations of the meshes."""
        for mesh, name in self.meshes.items():
            axes = mesh.shape.items()
            short = ", ".join([f'"{axis}"={n}' for axis, n in axes])
            long = ", ".join([f'{{name = "{axis}", size = {n} : i64}}' for axis, n in axes])
            yield f"  sdy.mesh {name} = <[{short}]> {{stablehlo.mesh = {{axes = [{long}]}}}}"

    def location_text(self, text: str) -> str:
        """Return the reference to a location, or nothing."""
        if not self.debug_info:
            return ""
        number = self.locations.setdefault(text, len(self.locations))
        return f" loc(#loc{number or ''})"

    def location_lines(self) -> list[str]:
        return [f"#loc{number or ''} = loc({text})" for text, number in self.locations.items()]

    def add_main(self, closed: ClosedJaxpr, donated: Collection[int], keep_unused: bool,
                 name: str) -> None:
        """Add the function that is called first."""
        jaxpr, info, self.name = closed.jaxpr, closed.jaxpr.debug_info, name
        self.location_text("unknown")
        read = {id(v) for v in (*jaxpr.outvars, *[v for e in jaxpr.eqns for v in e.invars])}
        body = _Function(self)
        read_arguments = [i for i, v in enumerate(jaxpr.invars) if keep_unused or id(v) in read]
        aliases = _aliases(jaxpr, [i for i in read_arguments if i in donated])
        arguments = []
        for n, i in enumerate(read_arguments):
            v = jaxpr.invars[i]
            body.names[v] = f"%arg{n}"
            where = f' loc("{info.arg_names[i]}")' if self.debug_info and info.arg_names else ""
            alias = f" {{tf.aliasing_output = {aliases[i]} : i32}}" if i in aliases else ""
            arguments.append(f"%arg{n}: {tensor_type(v.aval)}{alias}{where}")
        paths = info.result_paths or [f"result[{i}]" for i in range(len(jaxpr.outvars))]
        results = [f'{tensor_type(v.aval)} {{jax.result_info = "{path}"}}'
                   for v, path in zip(jaxpr.outvars, paths)]
        self.functions["main"] = []  # in front of those that it calls
        body.constants(jaxpr, closed.consts)
        outs = body.equations(jaxpr)
        self.functions["main"] = self._function("public @main", arguments, results, body, outs,
                                                [tensor_type(v.aval) for v in jaxpr.outvars])

    def function(self, closed: ClosedJaxpr, name: str, prefix: str) -> str:
        """Return the name of the function of a jaxpr, which is added if it is new; ``prefix`` is
        where it is called."""
        key = id(closed), name
        if key in self.names:
            return self.names[key]
        self.retained.append(closed)
        clean = re.sub(r"[^a-zA-Z0-9_.]+", "_", name).rstrip("_") or "closed_call"
        free = (clean if n < 0 else f"{clean}_{n}" for n in itertools.count(-1))
        chosen = self.names[key] = next(n for n in free if n not in self.functions)
        self.functions[chosen] = []
        body, jaxpr = _Function(self), closed.jaxpr
        body.prefix = body.inner_prefix = prefix
        types = [tensor_type(v.aval) for v in jaxpr.invars]
        for i, v in enumerate(jaxpr.invars):
            body.names[v] = f"%arg{i}"
        body.constants(jaxpr, closed.consts)
        outs = body.equations(jaxpr)
        results = [tensor_type(v.aval) for v in jaxpr.outvars]
        self.functions[chosen] = self._function(
            f"private @{chosen}", [f"%arg{i}: {t}" for i, t in enumerate(types)], results, body,
            outs, results)
        return chosen

    def _function(self, head: str, arguments: Sequence[str], results: Sequence[str],
                  body: _Function, outs: Sequence[str], types: Sequence[str]) -> list[str]:
        arrow = "" if not results else f" -> ({', '.join(results)})" \
            if len(results) > 1 or "{" in results[0] else f" -> {results[0]}"
        returned = f"return {', '.join(outs)} : {', '.join(types)}" if outs else "return"
        where = self.location_text("unknown")
        return [f"  func.func {head}({', '.join(arguments)}){arrow} {{",
                *[f"    {line}" for line in body.lines], f"    {returned}{where}", f"  }}{where}"]


def _aliases(jaxpr: Jaxpr, donated: Sequence[int]) -> dict[int, int]:
    """Return argument -> the result that takes its memory."""
    free = list(range(len(jaxpr.outvars)))
    aliases: dict[int, int] = {}
    for i in donated:
        want = tensor_type(jaxpr.invars[i].aval)
        fits = [j for j in free if tensor_type(jaxpr.outvars[j].aval) == want]
        if fits:
            aliases[i] = fits[0]
            free.remove(fits[0])
    return aliases


class _Function:
    """The lines of one function or region.

    Attributes:
        names: the names of variables.
        lines: its operations; those of regions are indented.
    """

    def __init__(self, module: _Module, outer: _Function | None = None) -> None:
        self.module, self.lines = module, list[str]()
        self.names: dict[Atom, str] = {} if outer is None else outer.names
        self.numbers: Iterator[int] = itertools.count() if outer is None else outer.numbers
        self.constant_names: dict[str, Iterator[int]] = {} if outer is None else \
            outer.constant_names
        self.where = ""
        self.prefix: str = f"jit({module.name})" if outer is None else outer.inner_prefix
        self.inner_prefix: str = self.prefix  # of the regions of the equation that is written

    def mesh_name(self, mesh: Any) -> str:
        """Return the name of a mesh of the module."""
        return self.module.mesh_name(mesh)

    # ---- values

    def fresh(self) -> str:
        return f"%{next(self.numbers)}"

    def emit(self, text: str, n: int = 1) -> list[str]:
        """Add an operation with n results, and return their names."""
        name = self.fresh()
        left = "" if n == 0 else f"{name} = " if n == 1 else f"{name}:{n} = "
        self.lines.append(f"{left}{text}{self.where}")
        return [name] if n == 1 else [f"{name}#{i}" for i in range(n)]

    def constant(self, value: Any, aval: Any) -> str:
        """Add a constant."""
        prefix = "%cst" if element_type(aval)[0] in "fbc" else "%c"
        count = next(self.constant_names.setdefault(prefix, itertools.count()))
        name = f"{prefix}_{count - 1}" if count else prefix
        self.lines.append(f"{name} = stablehlo.constant dense<{literal_text(value)}> : "
                          f"{tensor_type(aval)}{self.where}")
        return name

    def value(self, atom: Atom, shape: Sequence[int] | None = None) -> str:
        """Return the name of an operand, broadcast to a shape if it is a scalar."""
        name = self.constant(atom.val, atom.aval) if isinstance(atom, Literal) else \
            self.names[atom]
        if shape is None or tuple(atom.aval.shape) == tuple(shape):
            return name
        wide = tensor_type(atom.aval.update(shape=tuple(shape)))
        return self.emit(f"stablehlo.broadcast_in_dim {name}, dims = [] : "
                         f"({tensor_type(atom.aval)}) -> {wide}")[0]

    def constants(self, jaxpr: Jaxpr, consts: Sequence[Any]) -> None:
        """Add the constants of a jaxpr; of long ones the values are left out."""
        for v, x in zip(jaxpr.constvars, consts):
            known = v.aval.size <= MAX_CONSTANT and getattr(x, "_storage", x) is not None
            self.names[v] = self.constant(np.asarray(x) if known else "__elided__", v.aval)

    # ---- operations

    def equations(self, jaxpr: Jaxpr) -> list[str]:
        """Add the equations of a jaxpr, and return the names of its results."""
        for eqn in jaxpr.eqns:
            self.where = self._location(eqn)
            names = self.equation(eqn)
            self.names.update((v, n) for v, n in zip(eqn.outvars, names)
                              if not isinstance(v, DropVar))
        self.where = ""
        return [self.value(v) for v in jaxpr.outvars]

    def _name(self, eqn: JaxprEqn) -> str:
        stack = str(eqn.source_info.name_stack)
        return "/".join([self.prefix, *[stack] * bool(stack), str(eqn.primitive)])

    def _location(self, eqn: JaxprEqn) -> str:
        if not self.module.debug_info:
            return ""
        name = self._name(eqn)
        loc = eqn.source_info.loc
        at = f'("{loc[0]}":{loc[1]}:0)' if loc is not None else ""
        return self.module.location_text(f'"{name}"{at}')

    def equation(self, eqn: JaxprEqn) -> list[str]:
        """Add an equation, and return the names of its results."""
        name = eqn.primitive.name
        self.inner_prefix = self._name(eqn)
        lowered = user_rules.lowered_function(eqn.primitive, eqn.params, [
            v.aval for v in eqn.invars], [v.aval for v in eqn.outvars])
        if lowered is not None:
            return self.inline(make.make_jaxpr(lowered)(*map(_struct, eqn.invars)), eqn)
        if name in _WITH_BODIES:
            return _WITH_BODIES[name](self, eqn)
        row = ROWS.get(name)
        if row is not None:
            return row(self, eqn)
        if name == "composite":
            return self.composite(eqn)
        called = name if "callback" not in name else "xla_ffi_python_cpu_callback"
        types = ", ".join(tensor_type(v.aval) for v in eqn.invars)
        outs = ", ".join(tensor_type(v.aval) for v in eqn.outvars)
        operands = ", ".join(self.value(v) for v in eqn.invars)
        result = outs if len(eqn.outvars) == 1 else f"({outs})"
        return self.emit(f'stablehlo.custom_call @{called}({operands}) {{backend_config = ""}} : '
                         f"({types}) -> {result}", len(eqn.outvars))

    def region(self, jaxpr: Jaxpr, consts: Sequence[Any], operands: Sequence[str], name: str = ""
               ) -> tuple[list[str], list[str]]:
        """Return the lines and the results of a jaxpr as a region, whose operations are named by
        the equation and this name."""
        inner = _Function(self.module, self)
        inner.prefix = inner.inner_prefix = f"{self.inner_prefix}/{name}" if name \
            else self.inner_prefix
        self.names.update(zip(jaxpr.invars, operands))
        inner.constants(jaxpr, consts)
        outs = inner.equations(jaxpr)
        return inner.lines, outs

    def inline(self, closed: ClosedJaxpr, eqn: JaxprEqn) -> list[str]:
        """Add what a jaxpr computes from the operands of an equation."""
        self.names.update(zip(closed.jaxpr.invars, map(self.value, eqn.invars)))
        self.constants(closed.jaxpr, closed.consts)
        return self.equations(closed.jaxpr)

    def composite(self, eqn: JaxprEqn) -> list[str]:
        """Add an operation with a name, whose function is in the module."""
        params, avals = eqn.params, [v.aval for v in eqn.invars]
        name = params["name"]
        called = self.module.function(make.make_jaxpr(params["call"])(*map(_struct, eqn.invars)),
                                      name, name)
        entries = ", ".join([f"{key} = {_attribute(leaves[0])}"
                             for key, leaves, _ in params["attributes"] if len(leaves) == 1])
        fields = [f"composite_attributes = {{{entries}}}"] * bool(entries) + \
            [f"decomposition = @{called}"] + \
            [f"version = {params['version']} : i32"] * bool(params["version"])
        operands = ", ".join(map(self.value, eqn.invars))
        types = ", ".join(map(tensor_type, avals))
        return self.emit(f'stablehlo.composite "{name}" {operands} {{{", ".join(fields)}}} : '
                         f"({types}) -> {tensor_type(eqn.outvars[0].aval)}")

    def call(self, eqn: JaxprEqn, closed: ClosedJaxpr, name: str) -> list[str]:
        """Add a call of a function."""
        called = self.module.function(closed, name, f"{self.inner_prefix.rpartition('/')[0]}/"
                                                    f"jit({name})")
        types = ", ".join(tensor_type(v.aval) for v in eqn.invars)
        outs = ", ".join(tensor_type(v.aval) for v in eqn.outvars)
        operands = ", ".join(self.value(v) for v in eqn.invars)
        result = outs if len(eqn.outvars) == 1 else f"({outs})"
        return self.emit(f"call @{called}({operands}) : ({types}) -> {result}", len(eqn.outvars))


def _struct(v: Atom) -> ShapeDtypeStruct:
    return ShapeDtypeStruct(v.aval.shape, v.aval.dtype, weak_type=v.aval.weak_type)


def _attribute(x: Any) -> str:
    """Return an attribute of a composite as text."""
    if isinstance(x, (bool, str)):
        return json.dumps(x)
    if isinstance(x, int):
        return f"{x} : i64"
    return f"{x:e} : f32" if isinstance(x, float) else json.dumps(str(x))


def _returned(outs: Sequence[str], avals: Sequence[Any]) -> str:
    types = ", ".join(map(tensor_type, avals))
    return f"  stablehlo.return {', '.join(outs)} : {types}"


# ---- calls, loops and branches ------------------------------------------------------------------


def _jit(body: _Function, eqn: JaxprEqn) -> list[str]:
    return body.call(eqn, eqn.params["jaxpr"], eqn.params.get("name", "closed_call"))


def _inlined(body: _Function, eqn: JaxprEqn) -> list[str]:
    jaxpr, where = eqn.params["jaxpr"], body.where
    body.names.update(zip(jaxpr.invars, [body.value(v) for v in eqn.invars]))
    outs = body.equations(jaxpr)
    body.where = where
    return outs


def _with_rules(body: _Function, eqn: JaxprEqn) -> list[str]:
    closed = eqn.params["call"] if "call" in eqn.params else eqn.params["call_jaxpr"]
    return body.call(eqn, closed, closed.jaxpr.debug_info.func_name or "closed_call")


def _while_op(body: _Function, operands: Sequence[str], avals: Sequence[Any],
              test: Callable[[list[str]], tuple[list[str], str]],
              step: Callable[[list[str]], tuple[list[str], list[str]]]) -> list[str]:
    """Add a loop over values, given its condition and its step."""
    numbers = [next(body.constant_names.setdefault("iterArg", itertools.count()))
               for _ in operands]
    names = [f"%iterArg_{n - 1}" if n else "%iterArg" for n in numbers]
    where = body.where
    lines, flag = test(names)
    step_lines, outs = step(names)
    types = ", ".join(map(tensor_type, avals))
    pairs = ", ".join(f"{a} = {b}" for a, b in zip(names, operands))
    body.where = ""
    results = body.emit(f"stablehlo.while({pairs}) : {types}", len(operands))
    body.lines += ["cond {", *[f"  {line}" for line in lines],
                   f"  stablehlo.return {flag} : tensor<i1>", "} do {",
                   *[f"  {line}" for line in step_lines], _returned(outs, avals), "}" + where]
    return results


def _while(body: _Function, eqn: JaxprEqn) -> list[str]:
    p = eqn.params
    n, m = p["cond_nconsts"], p["cond_nconsts"] + p["body_nconsts"]
    values = [body.value(v) for v in eqn.invars]
    cond, step = p["cond_jaxpr"], p["body_jaxpr"]

    def test(names: list[str]) -> tuple[list[str], str]:
        lines, outs = body.region(cond.jaxpr, cond.consts, [*values[:n], *names], "cond")
        return lines, outs[0]
    return _while_op(body, values[m:], [v.aval for v in eqn.invars[m:]], test, lambda names:
                     body.region(step.jaxpr, step.consts, [*values[n:m], *names], "body"))


def _scan(body: _Function, eqn: JaxprEqn) -> list[str]:
    """Add a scan: a loop with a counter, slices of what it reads, and updates of what it writes."""
    p, jaxpr = eqn.params, eqn.params["jaxpr"].jaxpr
    n_consts, n_carry, length = p["num_consts"], p["num_carry"], p["length"]
    values = [body.value(v) for v in eqn.invars]
    n = n_consts + n_carry
    ys = [v.aval for v in eqn.outvars[n_carry:]]
    start = body.constant(np.int32(0), COUNTER)
    zeros = [body.value(Literal(np.zeros((), y.dtype)[()], y.update(shape=())), y.shape)
             for y in ys]
    avals = [COUNTER, *[v.aval for v in eqn.invars[n_consts:n]], *ys]

    def test(names: list[str]) -> tuple[list[str], str]:
        inner = _Function(body.module, body)
        end = inner.constant(np.int32(length), COUNTER)
        flag, = inner.emit(f"stablehlo.compare LT, {names[0]}, {end}, SIGNED : "
                           "(tensor<i32>, tensor<i32>) -> tensor<i1>")
        return inner.lines, flag

    def step(names: list[str]) -> tuple[list[str], list[str]]:
        inner = _Function(body.module, body)
        i = names[0]
        if p["reverse"]:
            last = inner.constant(np.int32(length - 1), COUNTER)
            i, = inner.emit(f"stablehlo.subtract {last}, {names[0]} : tensor<i32>")
        xs = [_element(inner, name, v.aval, i) for name, v in zip(values[n:], eqn.invars[n:])]
        lines, outs = inner.region(jaxpr, p["jaxpr"].consts,
                                   [*values[:n_consts], *names[1:1 + n_carry], *xs], "while/body")
        inner.lines += lines
        written = [_set_element(inner, name, out, y, i) for name, out, y in zip(
            names[1 + n_carry:], outs[n_carry:], ys)]
        one = inner.constant(np.int32(1), COUNTER)
        following, = inner.emit(f"stablehlo.add {names[0]}, {one} : tensor<i32>")
        return inner.lines, [following, *outs[:n_carry], *written]

    return _while_op(body, [start, *values[n_consts:n], *zeros], avals, test, step)[1:]


def _element(body: _Function, name: str, aval: Any, i: str) -> str:
    zeros = [body.constant(np.int32(0), COUNTER) for _ in aval.shape[1:]]
    row = aval.update(shape=(1, *aval.shape[1:]))
    types = ", ".join([tensor_type(aval), *["tensor<i32>"] * len(aval.shape)])
    sizes = ", ".join(map(str, row.shape))
    part, = body.emit(f"stablehlo.dynamic_slice {', '.join([name, i, *zeros])}, sizes = [{sizes}] "
                      f": ({types}) -> {tensor_type(row)}")
    return body.emit(f"stablehlo.reshape {part} : ({tensor_type(row)}) -> "
                     f"{tensor_type(aval.update(shape=aval.shape[1:]))}")[0]


def _set_element(body: _Function, name: str, value: str, aval: Any, i: str) -> str:
    zeros = [body.constant(np.int32(0), COUNTER) for _ in aval.shape[1:]]
    row, element = aval.update(shape=(1, *aval.shape[1:])), aval.update(shape=aval.shape[1:])
    wide, = body.emit(f"stablehlo.reshape {value} : ({tensor_type(element)}) -> "
                      f"{tensor_type(row)}")
    types = ", ".join([tensor_type(aval), tensor_type(row), *["tensor<i32>"] * len(aval.shape)])
    return body.emit(f"stablehlo.dynamic_update_slice {', '.join([name, wide, i, *zeros])} : "
                     f"({types}) -> {tensor_type(aval)}")[0]


def _cond(body: _Function, eqn: JaxprEqn) -> list[str]:
    index, *operands = eqn.invars
    which, values = body.value(index), [body.value(v) for v in operands]
    if element_type(index.aval) == "i1":
        which, = body.emit(f"stablehlo.convert {which} : (tensor<i1>) -> tensor<i32>")
    avals, where = [v.aval for v in eqn.outvars], body.where
    lines: list[str] = []
    for i, branch in enumerate(eqn.params["branches"]):
        inner, outs = body.region(branch.jaxpr, branch.consts, values, f"branch_{i}_fun")
        lines += ["}, {"] * bool(lines) + [f"  {line}" for line in inner] + [_returned(outs, avals)]
    types = ", ".join(map(tensor_type, avals))
    body.where = ""
    results = body.emit(f'"stablehlo.case"({which}) ({{', len(avals))
    body.lines += [*lines, "}) : (tensor<i32>) -> " +
                   (types if len(avals) == 1 else f"({types})") + where]
    return results


_WITH_BODIES: dict[str, Callable[[_Function, JaxprEqn], list[str]]] = {
    "jit": _jit, "remat2": _inlined, "custom_jvp_call": _with_rules,
    "custom_vjp_call": _with_rules, "custom_vmap_call": _with_rules, "while": _while,
    "scan": _scan, "cond": _cond}
