"""Random programs over all public functions: jit = eager = interpreter = NumPy; vmap = the loop.

    python -m tests.attack.programs --count 20000 --seed 1
    python -m tests.attack.programs --seconds 600

A program is a few lines of Python: calls of public functions, and of functions of these under
compositions of transforms and loops, over inputs of any dtype and shape (0-d, empty, broadcast,
ragged), with odd values (NaN, infinities, both zeros, tiny, huge). It runs eagerly, under ``jit``,
under ``vmap`` and on the interpreter. Exact results must agree bitwise (also with NumPy, if NumPy
has the function), others within the effect of perturbing the last bits of each line. Its gradient
is taken under ``jit``, on the interpreter and now and then eagerly; along a direction it must equal
the tangent of forward mode. If one way rejects a program, all must, with the same error; only
functions of ``VALUED`` may report under ``jit`` that they need values.

Each new line costs a compilation, so only some programs are checked in some ways (``_some``), and
rejection samplers, which are expensive loops, are drawn rarely.
"""

from __future__ import annotations

import contextlib
import re
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from fnx.backends.device.base import get_device
from fnx.core.ir import dtypes
from fnx.core.support.config import override
from fnx.core.support.errors import GradError, OutOfMemoryError, TracedValueError
from tests.attack.agreement import (
    Array,
    Leaf,
    Wrong,
    close,
    explained,
    flat,
    fused,
    huge,
    known_to,
    leaves,
    meaning,
    outcome,
    rounded_otherwise,
)
from tests.attack.calls import CALLS, VALUED
from tests.attack.seeds import parse_limits
from tests.attack.writer import Program, Writer, moderated, results
from tests.helpers import same_bits

_EXTREMES = re.compile(r"(?<![a-z])(a|nan|reduce_)?(max|min)\b|ptp")
WORK, HANG = 100.0, 600.0  # seconds of work per program, and of waiting on a busy machine


def _some(program: Program, part: int) -> bool:
    """Return true for one of this many programs."""
    return sum(map(len, program.lines)) % part == 0


def _needs_values(program: Program, error: Any) -> bool:
    """Return whether a trace may reject this: a value determines the shape of a result."""
    return isinstance(error, TracedValueError) and \
        any(re.search(rf"\b{name}\b", text) for name in VALUED for text in program.lines)


def check(program: Program) -> str:
    """Run a program in all ways.

    Returns:
        "ran", "differentiated", "refused" or "too large" (for the interpreter).

    Raises:
        Wrong: two ways disagree.
    """
    whole = partial(run_lines, program)
    eager = outcome(whole, *program.inputs)
    jitted = outcome(fnx.jit(whole), *program.inputs)
    if _some(program, 8):
        with override(device="interp"):
            interpreted = outcome(whole, *program.inputs)
    else:
        interpreted = meaning(whole, *program.inputs)
    if isinstance(interpreted, OutOfMemoryError):
        return "too large"
    if isinstance(eager, Exception):
        for way, got in (("jit", jitted), ("interp", interpreted)):
            if type(got) is not type(eager) and not (isinstance(got, Exception) and (
                    way == "jit" or _needs_values(program, got))):
                raise Wrong(f"{way}: expected {type(eager).__name__}: {eager}; got {got!r}")
        return "refused"
    for way, got in (("jit", jitted), ("interp", interpreted)):
        if isinstance(got, Exception):
            if _needs_values(program, got):  # both trace rules without values
                continue
            raise Wrong(f"{way} refuses what eager does: {got}") from got
        compare(program, way, got, eager)
    compare_numpy(program, eager)
    if _some(program, 3):  # as expensive as all the rest
        in_lanes(program)
    return differentiate(program, eager)


def compare(program: Program, way: str, got: list[list[Leaf]], want: list[list[Leaf]]) -> None:
    exact = [exact for exact, line in zip(program.exact, want) for _ in line]
    folds_extremes = any(_EXTREMES.search(text) for text in program.lines)
    noisy: list[list[Leaf]] | None = None
    for i, (g, w) in enumerate(zip(flat(got), flat(want), strict=True)):
        if g.dtype != w.dtype or g.numbers.shape != w.numbers.shape:
            raise Wrong(f"{way}, leaf {i}: {g.dtype}{g.numbers.shape} and "
                        f"{w.dtype}{w.numbers.shape}")
        if same_bits(g.numbers, w.numbers) or (not exact[i] and close(g, w, 1e-5)):
            continue
        if folds_extremes and w.dtype.is_float and \
                same_bits(g.numbers + np.zeros((), g.numbers.dtype),
                     w.numbers + np.zeros((), w.numbers.dtype)):
            continue  # max and min may return either zero (docs/differences.md)
        if not exact[i]:
            if noisy is None:
                noisy = [_noisy(program, seed) for seed in range(5)]
            known = known_to(w.dtype, flat(want)[:i + 1], exact)
            if explained(g, w, [n[i] for n in noisy], known):
                continue
            if huge(flat(want)[:i], program.inputs) and fused(g, w, noisy[-1][i]):
                continue
            if explained(g, w, [made[i] for made in _rounded(partial(run_lines, program),
                                                             *program.inputs)]):
                continue
        raise Wrong(f"{way}, leaf {i}, {g.dtype}: got\n{g.numbers!r}\nexpected\n{w.numbers!r}")


def run_lines(program: Program, *inputs: Any) -> Any:
    return results(program, list(inputs))


def _rounded(f: Any, *args: Any) -> list[list[Leaf]]:
    """Return the leaves of f, once for each set of perturbed roundings."""
    made = [rounded_otherwise(seed, f, *args) for seed in range(4)]
    return [flat(m) for m in made if not isinstance(m, Exception)]


def _noisy(program: Program, seed: int) -> list[Leaf]:
    return [leaf for value in results(program, program.inputs, np.random.default_rng(seed),
                                      moderate=seed == 4) for leaf in leaves(value)]


_OF_NUMPY = {c.text.split("(")[0] for c in CALLS if c.numpy}


def compare_numpy(program: Program, eager: list[list[Leaf]]) -> None:
    """Compare lines that NumPy defines, computed from the values of the previous lines."""
    env: dict[str, Any] = {"np": np, "jnp": np, **{f"x{i}": x
                                                   for i, x in enumerate(program.inputs)}}
    narrow: set[str] = set()
    for i, (text, line) in enumerate(zip(program.lines, eager)):
        if len(line) != 1:
            continue
        value = env[f"v{i}"] = line[0].numbers
        if line[0].dtype.storage is not None:
            narrow.add(f"v{i}")  # numbers are rounded to its type
        names = re.findall(r"\b[vx]\d+\b", text)
        used = [env[name] for name in names]
        if text.split("(")[0] not in _OF_NUMPY or "index" in text or "asarray" in text or \
                any(x.dtype.names for x in used) or not narrow.isdisjoint([*names, f"v{i}"]):
            continue
        if used and np.result_type(*used).itemsize > max(x.dtype.itemsize for x in used):
            continue  # NumPy computes in 64 bits
        if any(x.dtype.kind == "u" for x in used) and "-" in text:
            continue  # NumPy compares with -1, JAX with -1 converted to unsigned
        try:
            with np.errstate(all="ignore"):
                want = np.asarray(eval(text, env))
        except (OverflowError, TypeError):  # NumPy rejects the number, or bools
            continue
        if text.startswith(("jnp.maximum", "jnp.minimum")):  # either zero may be the larger
            value, want = value + value.dtype.type(0), want + want.dtype.type(0)
        if want.dtype.kind != value.dtype.kind or want.dtype.itemsize < value.dtype.itemsize:
            continue
        if not same_bits(value, want.astype(value.dtype)) and want.dtype == value.dtype:
            raise Wrong(f"NumPy, line {i}: got\n{value!r}\nexpected\n{want!r}")


def in_lanes(program: Program, size: int = 3) -> None:
    """Under vmap, with only some inputs batched, the program equals the stacked loop."""
    batched = [i % 2 == len(program.lines) % 2 or len(program.inputs) == 1
               for i in range(len(program.inputs))]
    if not any(batched):
        return
    lanes = [[np.roll(x, k) if b else x for x, b in zip(program.inputs, batched)]
             for k in range(size)]
    alone = [outcome(lambda *xs: results(program, list(xs)), *lane) for lane in lanes]
    if any(isinstance(a, Exception) for a in alone):
        return
    given = [np.stack(column) if b else column[0] for column, b in zip(zip(*lanes), batched)]
    mapped = fnx.vmap(lambda *xs: results(program, list(xs)),
                      in_axes=tuple([0 if b else None for b in batched]))
    ways = [fnx.jit(mapped), mapped]
    for f in ways if _some(program, 4) else ways[_some(program, 2):][:1]:
        got = outcome(f, *given)
        if _needs_values(program, got):
            return
        if isinstance(got, Exception):
            raise Wrong(f"vmap refuses what each lane does: {got}") from got
        for k, lane in enumerate(lanes):
            own = Program(lane, program.lines, program.exact)
            in_lane = [[Leaf(leaf.dtype, leaf.numbers[k]) for leaf in line] for line in got]
            compare(own, f"vmap, lane {k}", in_lane, alone[k])


def differentiate(program: Program, eager: list[list[Leaf]]) -> str:
    """Differentiate the last float32: all ways agree, also on errors."""
    moving = [i for i, x in enumerate(program.inputs) if x.dtype == np.float32]
    last = [i for i, leaf in enumerate(flat(eager)) if leaf.dtype == dtypes.float32]
    if not moving or not last:
        return "ran"
    draw = np.random.default_rng(1)
    weights = draw.standard_normal(flat(eager)[last[-1]].numbers.shape).astype("f4")

    def loss(noise: int | None, *inputs: Any) -> Any:
        made = list(program.inputs)
        for i, x in zip(moving, inputs):
            made[i] = x
        rng = None if noise is None else np.random.default_rng(noise)
        return (fnx.tree.leaves(results(program, made, rng))[last[-1]] * weights).sum()

    gradient = fnx.grad(loss, argnums=tuple(range(1, len(moving) + 1)))
    given = [program.inputs[i] for i in moving]
    along = [draw.standard_normal(x.shape).astype("f4") for x in given]

    def tangent(noise: int | None, *inputs: Any) -> Any:
        return [fnx.jvp(partial(loss, noise), inputs, tuple(along))[1]]

    def both(*inputs: Any) -> Any:
        return [*gradient(None, *inputs), *tangent(None, *inputs)]

    want = meaning(both, *given)
    if isinstance(want, GradError):  # only one mode rejects it
        want = meaning(partial(gradient, None), *given)
        along.clear()
    if isinstance(want, OutOfMemoryError):
        return "too large"
    ways = {"jit": fnx.jit(partial(gradient, None)), "eager": partial(gradient, None)}
    for way, f in [*ways.items()][:1 + _some(program, 4)]:
        got = outcome(f, *given)
        if way == "jit" and _needs_values(program, got):
            continue
        if isinstance(got, Exception) or isinstance(want, Exception):
            if type(got) is not type(want):
                raise Wrong(f"gradient: {way} {got!r}, interp {want!r}")
            return "ran"
        noisy: list[Any] | None = None
        for i, (g, w) in enumerate(zip(flat(got), flat(want))):
            if same_bits(g.numbers, w.numbers) or close(g, w, 1e-4):
                continue
            if noisy is None:
                noisy = [outcome(gradient, seed, *given) for seed in range(4)]
            if not explained(g, w, [n[i][0] for n in noisy]) and not explained(
                    g, w, [made[i] for made in _rounded(partial(gradient, None), *given)]):
                raise Wrong(f"gradient by x{moving[i]}: {way}\n{g.numbers!r}\ninterp\n"
                            f"{w.numbers!r}")
    if isinstance(want, Exception):
        return "ran"
    if along:
        fault = both_modes(flat(want), along, lambda: [
            *[flat(made) for made in (outcome(tangent, seed, *given) for seed in range(4))
              if not isinstance(made, Exception)], *_rounded(partial(tangent, None), *given)])
        if fault:  # with 1e30 among the terms, the modes round differently
            mild = [np.asarray(moderated(jnp.asarray(x))) for x in given]
            again = meaning(both, *mild)
            if not isinstance(again, Exception) and both_modes(
                    flat(again), along, lambda: _rounded(partial(tangent, None), *mild)):
                raise Wrong(fault)
    return "differentiated"


def both_modes(made: list[Leaf], along: list[Array], noisy: Callable[[], list[list[Leaf]]]
               ) -> str:
    """Compare the gradient along a direction with the tangent of forward mode, where both are
    finite and noise does not explain the difference."""
    with np.errstate(all="ignore"):
        terms = np.concatenate([(g.numbers.astype("f8") * v).ravel()
                                for g, v in zip(made, along)])
        tangent, size = float(made[-1].numbers), np.abs(terms).sum()
    if not np.isfinite(size) or not np.isfinite(tangent) or size > 1e30:
        return ""
    off = abs(terms.sum() - tangent)
    if off > 1e-2 * size + 1e-5 and \
            not off <= 100 * max([abs(n.numbers - tangent) for n, in noisy()], default=0.0):
        return f"reverse mode along a direction: {terms.sum()}; forward mode: {tangent}"
    return ""


# ---- the attack -------------------------------------------------------------------------------


def program_of(seed: int) -> Program:
    """Return the program of a seed."""
    return Writer(seed).program(1 + seed % 4)


@contextlib.contextmanager
def within(work: float, seconds: float) -> Iterator[None]:
    """Report a program that takes longer."""
    def handler(number: int, _: Any) -> None:
        raise Wrong(f"not done in {seconds} s" if number == signal.SIGALRM else
                    f"not done in {work} s of work")

    timers = {signal.SIGALRM: (signal.ITIMER_REAL, seconds),
              signal.SIGPROF: (signal.ITIMER_PROF, work)}
    before = {number: signal.signal(number, handler) for number in timers}
    for timer, limit in timers.values():
        signal.setitimer(timer, limit)
    try:
        yield
    finally:
        for number, (timer, _) in timers.items():
            signal.setitimer(timer, 0)
            signal.signal(number, before[number])


def attack(first: int, count: int | None, seconds: float | None, report: int = 500
           ) -> tuple[Counter[str], list[int]]:
    """Run programs from a seed on; return counts of outcomes, and the seeds that were wrong."""
    counts: Counter[str] = Counter()
    wrong: list[int] = []
    start = time.monotonic()
    seed = first
    while (count is None or seed < first + count) and \
            (seconds is None or time.monotonic() - start < seconds):
        try:
            with override(cache_dir=""), within(WORK, HANG):
                counts[check(program_of(seed))] += 1
        except (Wrong, fnx.FnxError, ArithmeticError, LookupError, TypeError, ValueError,
                AssertionError, AttributeError, RuntimeError, StopIteration, MemoryError) as e:
            wrong.append(seed)
            counts["wrong"] += 1
            print(f"seed {seed}: {type(e).__name__}: {str(e)[:1500]}")
            device: Any = get_device("cpu")
            device.queue.abort()  # so that work that never ends does not block others
            if not isinstance(e, Wrong):
                traceback.print_exc(limit=-4, file=sys.stdout)
            print(program_of(seed) if isinstance(e, Wrong) else "", flush=True)
        seed += 1
        if (seed - first) % report == 0:
            print(f"{seed - first} programs, {time.monotonic() - start:.0f} s: {dict(counts)}",
                  flush=True)
    return counts, wrong


def main() -> None:
    counts, wrong = attack(*parse_limits(__doc__, gigabytes=8))
    print(f"{sum(counts.values())} programs: {dict(counts)}; wrong seeds: {wrong}")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
