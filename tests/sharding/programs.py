"""Random shard_map programs as data, which fnx and JAX can both run.

    program = draw(seed)             meshes, specs, and the steps of a body with collectives
    run(library, program)            values, tangents and cotangents, or the error at a stage

``python scripts/compare_shards.py 500`` compares them live with JAX on 8 CPU devices; the suite
compares some with what JAX gave (tests/golden/shards.json, recorded by ``--record``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

MESHES: tuple[dict[str, int], ...] = ({"a": 8}, {"a": 4, "b": 2}, {"a": 2, "b": 2, "c": 2})
_LENGTHS = 8, 8, 8, 8, 16, 16, 16, 16, 4, 6


class Program(NamedTuple):
    """A program: its mesh, the shape and spec of its two arguments, its steps, the result's spec.

    Each step is a name of ``STEPS`` with its arguments.
    """

    seed: int
    mesh: dict[str, int]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    in_specs: tuple[tuple[Any, ...], tuple[Any, ...]]
    out_spec: tuple[Any, ...]
    steps: tuple[tuple[Any, ...], ...]


def _groups(rng: np.random.Generator, names: list[str]) -> Any:
    """Draw an axis of the mesh, or a tuple of some."""
    count = int(rng.integers(1, len(names) + 1)) if rng.random() < 0.35 else 1
    chosen = [str(n) for n in rng.permutation(names)[:count]]
    return chosen[0] if count == 1 else tuple(chosen)


def _spec(rng: np.random.Generator, names: list[str], ndim: int) -> tuple[Any, ...]:
    free, out = [str(n) for n in rng.permutation(names)], []
    for _ in range(ndim):
        count = int(rng.choice([0, 1, 1, 2])) if free else 0
        part, free = tuple(free[:count]), free[count:]
        out.append(None if not part else part[0] if len(part) == 1 else part)
    return tuple(out)


def _out_spec(rng: np.random.Generator, names: list[str]) -> tuple[Any, ...]:
    """Draw a spec, which mostly has all axes of the mesh."""
    if rng.random() < 0.3:
        return _spec(rng, names, 2)
    order = [str(n) for n in rng.permutation(names)]
    at = int(rng.integers(len(order) + 1))
    return tuple([tuple(part) or None for part in (order[:at], order[at:])])


def draw(seed: int) -> Program:
    """Return the program of a seed."""
    rng = np.random.default_rng(seed)
    mesh = MESHES[rng.integers(len(MESHES))]
    names = list(mesh)
    shapes = tuple([tuple([int(rng.choice(_LENGTHS)) for _ in range(2)]) for _ in range(2)])
    steps = []
    for _ in range(int(rng.integers(1, 5))):
        name = str(rng.choice(list(STEPS)))
        axis = _groups(rng, names)
        steps.append((name, axis, int(rng.integers(2)), int(rng.integers(1 << 16))))
    return Program(seed, mesh, shapes, (_spec(rng, names, 2), _spec(rng, names, 2)),
                   _out_spec(rng, names), tuple(steps))


# Each takes (library, x, y, axis name, an axis of x, a number) and returns the next x. All arrays
# have two axes.
def _permutation(kind: str) -> Callable[..., Any]:
    def step(lib: Any, x: Any, y: Any, name: Any, k: int, n: int) -> Any:
        size = lib.lax.axis_size(name)
        order = [int(i) for i in np.random.default_rng(n).permutation(size)]
        if kind == "pshuffle":
            return lib.lax.pshuffle(x, name, order)
        pairs = list(zip(range(size), order))
        return lib.lax.ppermute(x, name, pairs if n % 3 else pairs[:-1])
    return step


def _untiled_gather(lib: Any, x: Any, y: Any, name: Any, k: int, n: int) -> Any:
    rows = lib.lax.all_gather(x, name, axis=k)
    return rows.sum(k) if n % 2 else rows.max(k)


def _loop(lib: Any, x: Any, y: Any, name: Any, k: int, n: int) -> Any:
    return lib.lax.fori_loop(0, 3, lambda i, c: lib.numpy.sin(c) + 0.1 * i, x)


def _scan_of_collectives(lib: Any, x: Any, y: Any, name: Any, k: int, n: int) -> Any:
    size = lib.lax.axis_size(name)
    ring = [(i, (i + 1) % size) for i in range(size)]

    def step(c: Any, _: Any) -> Any:
        c = lib.lax.ppermute(c, name, ring) * 0.5 + x
        return c, c.sum()
    total, sums = lib.lax.scan(step, x, None, length=2)
    return total + sums.mean()


STEPS: dict[str, Callable[..., Any]] = {
    "affine": lambda lib, x, y, name, k, n: 1.5 * x - 0.25,
    "sin": lambda lib, x, y, name, k, n: lib.numpy.sin(x),
    "square": lambda lib, x, y, name, k, n: x * x,
    "other": lambda lib, x, y, name, k, n: x + y.mean() * y[:1, :1],
    "product": lambda lib, x, y, name, k, n: x @ (x.T @ x) * 0.05,
    "transpose": lambda lib, x, y, name, k, n: x.T,
    "psum": lambda lib, x, y, name, k, n: lib.lax.psum(x, name),
    "pmean": lambda lib, x, y, name, k, n: x - lib.lax.pmean(x, name),
    "pmax": lambda lib, x, y, name, k, n: lib.lax.pmax(x, name),
    "pmin": lambda lib, x, y, name, k, n: lib.lax.pmin(x, name),
    "count": lambda lib, x, y, name, k, n: x / lib.lax.psum(2, name),
    "index": lambda lib, x, y, name, k, n: x + 0.1 * lib.lax.axis_index(name),
    "all_gather": lambda lib, x, y, name, k, n: lib.lax.all_gather(x, name, axis=k, tiled=True),
    "untiled": _untiled_gather,
    "psum_scatter": lambda lib, x, y, name, k, n: lib.lax.psum_scatter(
        x, name, scatter_dimension=k, tiled=True),
    "all_to_all": lambda lib, x, y, name, k, n: lib.lax.all_to_all(x, name, k, n % 2, tiled=True),
    "ppermute": _permutation("ppermute"), "pshuffle": _permutation("pshuffle"),
    "loop": _loop, "scan": _scan_of_collectives,
}


class Outcome(NamedTuple):
    """What a program gave: an array for each stage, or the class of its error and the message."""

    arrays: dict[str, Any]
    errors: dict[str, tuple[str, str]]


def mapped(lib: Any, program: Program, check: bool = True) -> Callable[..., Any]:
    """Return the function of two arrays that a program is."""
    def body(x: Any, y: Any) -> Any:
        for name, *args in program.steps:
            x = STEPS[name](lib, x, y, *args)
        return x

    spec = lib.P
    mesh = lib.make_mesh(tuple(program.mesh.values()), tuple(program.mesh),
                         axis_types=(lib.sharding.AxisType.Auto,) * len(program.mesh))
    f: Callable[..., Any] = lib.shard_map(body, mesh=mesh, check_vma=check,
                                          in_specs=tuple([spec(*s) for s in program.in_specs]),
                                          out_specs=spec(*program.out_spec))
    return f


def run(lib: Any, program: Program, check: bool = True) -> Outcome:
    """Run a program in a library with JAX's names (``jax`` or ``fnx``)."""
    rng = np.random.default_rng(program.seed)
    x, y, dx, dy = [rng.standard_normal(shape).astype(np.float32)
                    for shape in (*program.shapes, *program.shapes)]

    f = lib.jit(mapped(lib, program, check))
    out = Outcome({}, {})

    def stage(name: str, compute: Callable[[], Any]) -> bool:
        try:
            for i, part in enumerate(compute()):
                out.arrays[f"{name}{i}"] = np.asarray(part)
        except Exception as error:
            out.errors[name] = next(c.__name__ for c in type(error).__mro__
                                    if c.__module__ == "builtins"), str(error)
            return False
        return True

    if stage("value", lambda: [f(x, y)]):
        weights = np.cos(np.arange(out.arrays["value0"].size, dtype=np.float32)).reshape(
            out.arrays["value0"].shape)
        stage("tangent", lambda: [lib.jvp(f, (x, y), (dx, dy))[1]])
        stage("cotangent", lambda: lib.jit(lib.grad(
            lambda x, y: (f(x, y) * weights).sum(), argnums=(0, 1)))(x, y))
    return out


def peak(lib: Any, program: Program) -> float:
    """Return the largest absolute value after any of the steps of a program."""
    everywhere: tuple[Any, ...] = (tuple(program.mesh), None)
    out = 0.0
    for n in range(len(program.steps)):
        partial = run(lib, program._replace(steps=program.steps[:n], out_spec=everywhere), False)
        out = max(out, *[float(np.abs(x).max(initial=0)) for x in partial.arrays.values()])
    return out


def differences(ours: Outcome, theirs: Outcome, unchecked: Outcome | None, peak: float = 0.0
                ) -> list[str]:
    """Return in which stages fnx is wrong by JAX, with rounding errors of values up to ``peak``.

    ``unchecked`` is what JAX gives without its check of replication, where that check refused the
    program: fnx may prove that a result is replicated where the types of JAX do not.
    """
    wrong = []
    if "value" in theirs.errors and "value" not in ours.errors and unchecked is not None:
        theirs = unchecked
    for stage, (kind, message) in ours.errors.items():
        if stage not in theirs.errors:
            wrong.append(f"{stage}: only fnx raises: {kind}: {message}")
    for stage, (kind, message) in theirs.errors.items():
        is_missing_rule = kind in ("NotImplementedError", "KeyError")
        if stage not in ours.errors and not is_missing_rule:
            wrong.append(f"{stage}: only JAX raises: {kind}: {message[:300]}")
    for name in ours.arrays.keys() & theirs.arrays.keys():
        a, b = ours.arrays[name], theirs.arrays[name]
        scale = max(float(np.abs(b).max(initial=0)), 1.0)
        atol = max(2e-5 * scale, 1e-6 * peak)
        if a.shape != b.shape or not np.allclose(a, b, rtol=2e-4, atol=atol):
            wrong.append(f"{name}: {np.abs(a - b).max() if a.shape == b.shape else b.shape} apart "
                         f"of {scale}")
    return wrong


def _projections(outcome: Outcome) -> dict[str, list[Any]]:
    """Return the shape and a weighted sum of each array."""
    return {name: [*x.shape, float((x.astype(np.float64).ravel() * np.cos(
        np.arange(x.size))).sum())] for name, x in outcome.arrays.items()}


def summary(theirs: Outcome, unchecked: Outcome | None = None) -> list[Any]:
    """Return the classes of errors and the sums of arrays, with and without the check."""
    kinds = {stage: kind for stage, (kind, _) in theirs.errors.items()}
    return [kinds, _projections(theirs), None if unchecked is None else summary(unchecked)]
