"""Complex numbers -> pairs of real numbers, so that no other pass knows them.

    before  FUNCTION(MUL(p0, p1))               p0, p1: complex64 (n,)
    after   FUNCTION(CONCAT(SUB(ac, bd), ADD(ad, bc)))      p0, p1: float32 (n, 2)
            a = p0[:, 0], b = p0[:, 1], c = p1[:, 0], d = p1[:, 1]

In memory the two parts of a number are neighbors, as in NumPy: a parameter or result of the program
is an array of real numbers with one more axis, of length 2. Everything else, also between the
bodies of loops and branches, is two arrays. Each elementwise op has a formula over the parts
(core/formulas/complex_parts.py); a sum of products becomes four sums of products, which are
contractions again; a product over an axis multiplies halves.

>>> from fnx.core.ir import build, dtypes
>>> z = build.param(0, dtypes.complex64, (3,))
>>> out, = complex_to_real(build.function([build.add(z, z)], 1)).src
>>> out.op, out.dtype, out.shape
(CONCAT, float32, (3, 2))
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fnx.core.formulas.complex_parts import COMPARISONS, PARTS, Pair, multiply
from fnx.core.ir import build, op_args, ops
from fnx.core.ir.expr import Expr
from fnx.core.ir.linalg import interleaved
from fnx.core.ir.op import other_axes
from fnx.core.ir.op_bodies import OpBodies
from fnx.core.ir.uop import UOp, toposort
from fnx.core.support.errors import DTypeError, KernelError

Parts = tuple[UOp, UOp]
Flags = tuple[bool, ...]
Rewritten = dict[tuple[UOp, Flags], UOp]

# Ops that treat both parts alike; all their complex operands have the type of the result.
_MOVEMENTS = frozenset({
    ops.RESHAPE, ops.PERMUTE, ops.EXPAND, ops.PAD, ops.SHRINK, ops.FLIP, ops.UNFOLD, ops.FOLD,
    ops.CONCAT, ops.BARRIER, ops.STOP_GRADIENT, ops.GATHER, ops.SCATTER, ops.WHERE,
    ops.ALL_GATHER, ops.PVARY_LIKE, ops.PSUM_LIKE})


def complex_to_real(fn: UOp) -> UOp:
    """Return a FUNCTION without complex numbers."""
    nodes = toposort([fn], into_functions=True)
    uses: dict[UOp, set[Flags]] = {}
    for node in nodes:
        if node.op in ops.HIGHER_ORDER:
            for body in OpBodies(node).bodies:
                uses.setdefault(body, set()).add(_complex_operands(node))
    rewritten: Rewritten = {}
    for body in nodes:
        for flags in uses.get(body, ()):
            rewritten[body, flags] = _Rewrite(body, rewritten, flags).function()
    return _Rewrite(fn, rewritten).function()


def _complex_operands(node: UOp) -> Flags:
    """Return which operands of the bodies of a node are complex, also those they do not read."""
    return tuple([x.dtype.is_complex for x in OpBodies(node).operands])


def interleave(parts: Parts) -> UOp:
    """Return an array of real numbers with a last axis for the two parts."""
    return build.concat([build.reshape(x, (*x.shape, 1)) for x in parts], len(parts[0].shape))


def _with_operands(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """Return a real node over other operands; both parts of an array, joined, are the array."""
    if node.op is ops.RESHAPE:
        return build.reshape(src[0], node.arg)
    return build.concat(src, node.arg) if node.op is ops.CONCAT else node.replace(src=src)


def separate(x: UOp) -> Parts:
    """Return the two parts along the last axis.

    They are columns of a matrix of pairs, so that another shape of them is one, too.
    """
    n = math.prod(x.shape[:-1])
    flat = build.reshape(x, (n, 2))
    re, im = [build.reshape(build.shrink(flat, [(0, n), (i, i + 1)]), x.shape[:-1]) for i in (0, 1)]
    return re, im


class _Rewrite:
    """The rewriting of one FUNCTION, whose bodies are rewritten already.

    Args:
        fn: the FUNCTION.
        rewritten: its bodies, and which of their operands are complex -> what became of them.
        flags: of a body, which parameters are complex: they become two arrays, and so do complex
            results. None: the program, in which each stays one array.
    """

    def __init__(self, fn: UOp, rewritten: Rewritten, flags: Flags | None = None) -> None:
        self.fn, self.rewritten, self.interleaved = fn, rewritten, flags is None
        self.slots, self.n_params = list[int](), 0  # the new slot of each parameter
        for is_complex in flags or (False,) * fn.arg.n_params:
            self.slots.append(self.n_params)
            self.n_params += 1 + is_complex
        self.real: dict[UOp, UOp] = {}
        self.parts: dict[UOp, Parts] = {}
        self.results: dict[UOp, list[UOp]] = {}  # of ops with several results

    def function(self) -> UOp:
        """Return the rewritten FUNCTION."""
        for node in toposort(self.fn.src, stop=lambda n: n.op is ops.KERNEL):
            if node.op is ops.FUNCTION or node.op is ops.KERNEL:
                continue
            if node.op is ops.PARAM:
                self._param(node)
            elif node.op in ops.MULTI_RESULT:
                self._multi_result(node)
            elif node.dtype.is_complex:
                self.parts[node] = self._pair(node)
            elif any(s in self.parts for s in node.src):
                self.real[node] = self._read(node)
            elif node.op is ops.GETTUPLE:
                self.real[node], = self._result(node)
            else:
                src = tuple([self.real.get(s, s) for s in node.src])
                self.real[node] = node if src == node.src else _with_operands(node, src)
        outs: list[UOp] = []
        for out in self.fn.src:
            outs += self._operands([out]) if not self.interleaved or out not in self.parts \
                else [interleave(self.parts[out])]
        return build.function(outs, self.n_params, self.fn.arg.name)

    def _param(self, node: UOp) -> None:
        slot, real = self.slots[node.arg.slot], node.dtype.real
        if not node.dtype.is_complex:
            self.real[node] = build.param(slot, node.dtype, node.shape)
        elif self.interleaved:
            self.parts[node] = separate(build.param(slot, real, (*node.shape, 2)))
        else:
            self.parts[node] = (build.param(slot, real, node.shape),
                                build.param(slot + 1, real, node.shape))

    def _operands(self, nodes: Sequence[UOp]) -> list[UOp]:
        """Return the new operands in place of some: two for a complex one."""
        return [x for n in nodes for x in self.parts.get(n) or (self.real[n],)]

    def _result(self, node: UOp) -> list[UOp]:
        """Return what a GETTUPLE reads: two arrays for a complex result."""
        called = node.src[0]
        outs = called.arg.outs
        start = sum([1 + t.is_complex for _, t in outs[:node.arg]])
        return self.results[called][start:start + 1 + node.dtype.is_complex]

    def _multi_result(self, node: UOp) -> None:
        if node.op in ops.HIGHER_ORDER:
            called = self._rebuild_with_bodies(node)
        elif any(t.is_complex for _, t in getattr(node.arg, "ins", ())) or \
                any(t.is_complex for _, t in node.arg.outs):
            if node.op is ops.LINALG:
                self.results[node] = self._interleave_linalg(node)
                return
            called = self._split_sort(node) if node.op is ops.SORT else self._split_callback(node)
        else:
            called = node.replace(src=tuple([self.real.get(s, s) for s in node.src]))
        self.results[node] = list(build.results(called))

    def _rebuild_with_bodies(self, node: UOp) -> UOp:
        op = OpBodies(node)
        if not op.bodies:
            if any(s in self.parts for s in node.src) or any(t.is_complex for _, t in
                                                             node.arg.outs):
                raise KernelError("expected real operands and results of a kernel, got complex "
                                  "numbers", loc=node.loc,
                                  hint="pass x.real and x.imag as two arrays")
            return node.replace(src=tuple([self.real.get(s, s) for s in node.src]))
        groups = [self._operands(group) for group in op.split(op.operands)]
        flags = _complex_operands(node)
        return op.rebuild([self.rewritten[body, flags] for body in op.bodies], groups,
                          selector=[self.real[s] for s in op.selector])

    def _split_sort(self, node: UOp) -> UOp:
        """Return a SORT by both parts of complex keys, which moves both parts of the others."""
        arg, new_indices, ins = node.arg, list[list[int]](), list[tuple[tuple[int, ...], object]]()
        for shape, t in arg.ins:
            n = 1 + t.is_complex
            new_indices.append(list(range(len(ins), len(ins) + n)))
            ins += [(shape, t.real)] * n
        outputs = [j for i in arg.outputs for j in ([-1] if i < 0 else new_indices[i])]
        n_keys = sum([1 + t.is_complex for _, t in arg.ins[:arg.n_keys]])
        return node.replace(src=tuple(self._operands(node.src)),
                            arg=arg.replace(n_keys=n_keys, ins=tuple(ins),
                                            outputs=tuple(outputs)))

    def _interleave_linalg(self, node: UOp) -> list[UOp]:
        """Return the results of a routine that reads and writes complex numbers in memory."""
        arg = node.arg
        ins, outs = interleaved(arg.ins), interleaved(arg.outs)
        src = [interleave(self.parts[s]) if s in self.parts else self.real[s] for s in node.src]
        called = node.replace(src=tuple(src), arg=arg.replace(ins=ins, outs=outs, of_complex=arg))
        return [x for result, (_, t) in zip(build.results(called), arg.outs)
                for x in (separate(result) if t.is_complex else (result,))]

    def _split_callback(self, node: UOp) -> UOp:
        """Return a CALLBACK of the parts of complex operands, which joins them for Python."""
        arg = node.arg
        ins, outs = (tuple([(shape, t.real) for shape, t in types for _ in range(1 + t.is_complex)])
                     for types in (arg.ins, arg.outs))
        return node.replace(src=tuple(self._operands(node.src)), arg=op_args.Callback(
            arg.name, arg.effect, ins, outs, method=arg.method, of_parts=arg))

    def _pair(self, node: UOp) -> Parts:
        """Return the parts of a complex node without bodies."""
        op, src = node.op, node.src
        if op is ops.GETTUPLE:
            re, im = self._result(node)
        elif op is ops.COMPLEX:
            re, im = (self.real[s] for s in src)
        elif op is ops.CONST:
            value = build.const_of(node)
            re, im = (build.const(part, node.dtype.real) for part in (value.real, value.imag))
        elif op is ops.CAST:
            re, im = self._cast(node)
        elif op in PARTS:
            re, im = (x.node for x in PARTS[op](*[self._exprs(s) for s in src]))
        elif op is ops.REDUCE:
            re, im = self._reduce(node)
        elif op in _MOVEMENTS and not (op is ops.SCATTER and node.arg.monoid not in
                                       (None, ops.ADD)):
            re, im = (self._move(node, i) for i in (0, 1))
        else:
            raise DTypeError(f"{op} of {node.dtype} is not supported", loc=node.loc,
                             hint="compute with x.real and x.imag")
        return re, im

    def _exprs(self, node: UOp) -> Pair:
        re, im = self.parts[node]
        return Expr(re), Expr(im)

    def _move(self, node: UOp, i: int) -> UOp:
        """Apply a movement to part i."""
        src = tuple([self.parts[s][i] if s in self.parts else self.real[s] for s in node.src])
        return node.replace(dtype=node.dtype.real, src=src)

    def _cast(self, node: UOp) -> Parts:
        x, t = node.src[0], node.dtype.real
        if x in self.parts:
            re, im = self.parts[x]
            return build.cast(re, t), build.cast(im, t)
        return build.cast(self.real[x], t), build.const(0, t, node.shape)

    def _read(self, node: UOp) -> UOp:
        """Return a real node whose operands are complex."""
        op, src = node.op, node.src
        if op in (ops.REAL, ops.IMAG):
            return self.parts[src[0]][op is ops.IMAG]
        if op in COMPARISONS:
            return COMPARISONS[op](self._exprs(src[0]), self._exprs(src[1])).node
        if op is ops.CAST and node.dtype.is_bool:
            re, im = self._exprs(src[0])
            return (re.ne(0) | im.ne(0)).node
        if op is ops.CAST:
            return build.cast(self.parts[src[0]][0], node.dtype)
        if op is ops.BARRIER:  # complex numbers that come before are two arrays
            return node.replace(src=tuple(self._operands(src)))
        raise DTypeError(f"{op} of {src[0].dtype} is not supported", loc=node.loc,
                         hint="compute with x.real and x.imag")

    def _reduce(self, node: UOp) -> Parts:
        x, arg = node.src[0], node.arg
        if arg.monoid is ops.MUL:
            re, im = self._exprs(x)
            return _product(re, im, arg.axes)
        if arg.monoid is not ops.ADD:
            raise DTypeError(f"a reduction by {arg.monoid} of {x.dtype} is not supported",
                             loc=node.loc, hint="reduce x.real, x.imag or abs(x)")
        if x.op is not ops.MUL:
            a, b = self.parts[x]
            return build.reduce(a, ops.ADD, arg.axes), build.reduce(b, ops.ADD, arg.axes)
        (a, b), (c, d) = (self.parts[s] for s in x.src)

        def total(p: UOp, q: UOp) -> UOp:
            return build.reduce(build.mul(p, q), ops.ADD, arg.axes)
        return build.sub(total(a, c), total(b, d)), build.add(total(a, d), total(b, c))


def _product(re: Expr, im: Expr, axes: Sequence[int]) -> Parts:
    """Multiply along axes: the first half by the second half, until one number is left."""
    rest = other_axes(axes, len(re.shape))
    rest_shape = tuple([re.shape[a] for a in rest])
    n = math.prod([re.shape[a] for a in axes])
    z = [build.reshape(build.permute(x.node, (*axes, *rest)), (n, *rest_shape)) for x in (re, im)]
    if not n:
        return build.const(1, re.dtype, rest_shape), build.const(0, re.dtype, rest_shape)
    while n > 1:
        half, odd = n // 2, n % 2

        def rows(start: int, stop: int, z: list[UOp] = z) -> Pair:
            bounds = [(start, stop), *[(0, m) for m in rest_shape]]
            first, second = (Expr(build.shrink(x, bounds)) for x in z)
            return first, second
        product = multiply(rows(0, half), rows(half, 2 * half))
        last = rows(2 * half, n)
        z = [build.concat([p.node, q.node], 0) if odd else p.node for p, q in zip(product, last)]
        n = half + odd
    re_out, im_out = (build.reshape(x, rest_shape) for x in z)
    return re_out, im_out
