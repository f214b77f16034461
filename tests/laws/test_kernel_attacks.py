"""Generated faults in user-written kernels: each is rejected with the user's line.

A correct kernel gets one fault: an out-of-bounds read, an index written twice (by two iterations or
by two stores), a read of an output, a value that escapes its loop or its kernel. Random schedules
are either rejected or do not change the results (no two workers write one index).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
from fnx.core.support.config import override
from fnx.core.support.errors import KernelError, MutationError, OutOfBoundsError, SpecError
from tests.laws.test_user_written_kernels import Writer

Fault = Callable[[random.Random, Any, Any, Any, Any], Any]
LEAKED: list[Any] = []


def outside(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    rows, columns = x.shape
    at = rng.choice([(i + 1, j), (i - 1, j), (i, j + rng.randint(1, 4)), (2 * i, j), (rows, j),
                     (i, -1), (i, columns - j), (i + j, j), (i, 3 * j - 1)])
    o[i, j] = x[at] if rng.random() < 0.7 else x.load(*at, valid=x[i, j] > 0)


def stored_outside(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    at = rng.choice([(i + 1, j), (i, j - 1), (i, x.shape[1] - j)])
    if rng.random() < 0.5:
        o[at] = x[i, j]
    else:
        o.combine("add", at, x[i, j])


def written_twice(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    d = k.range(rng.choice((2, 3)))
    at = rng.choice([(i, j), (i, j // 2), (i // 2, j), (i * 0, j), (i, 0)])
    value = x[at] + d if at == (i, j) or rng.random() < 0.5 else x[i, j]
    if at[0] is i and at[1] is j:
        value = x[i, j] + d
    o[at] = value


def two_stores(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = x[i, j]
    rows, columns = x.shape
    at = rng.choice([(rows - 1 - i, j), (i, columns - 1 - j), (0, j)])
    if at[0] == 0 if isinstance(at[0], int) else False:
        o.store(0, j, value=x[i, j], valid=i < 1)
        o.store(0, columns - 1 - j, value=x[i, j], valid=i < 1)
    else:
        o[at] = 2 * x[i, j]


def own_result(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = x[i, j]
    o[i, j] = o[i, j] + 1 if rng.random() < 0.5 else o.load(i, j)


def input_written(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = x[i, j]
    if rng.random() < 0.5:
        x[i, j] = 0
    else:
        x.combine("add", (i, j), 1)


def value_after_its_loop(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    kept: list[Any] = []

    def step(t: Any, s: Any) -> Any:
        kept.append(rng.choice((t, s)) if rng.random() < 0.5 else s + 1)
        return s + x[i, j]

    last = k.loop(3, step, 0)
    o[i, j] = last + kept[-1]


def from_another_kernel(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    LEAKED[:] = [x, i, x[i, j], o]
    o[i, j] = x[i, j]


def ragged(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    c = k.range(i + 1) if rng.random() < 0.5 else k.range(k.cast(x[0, 0], "int32"))
    o[i, j] = k.sum(x[i, c % x.shape[1]], over=c)


def iterated(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = sum((row for row in x), start=0) if rng.random() < 0.5 else max(*x)


def asked_for_its_value(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = rng.choice((float, int, bool, np.asarray, np.float32))(x[i, j])


def computed_with_arrays(rng: random.Random, x: Any, o: Any, i: Any, j: Any) -> None:
    o[i, j] = rng.choice((fnx.numpy.sin, fnx.nn.relu, fnx.numpy.asarray))(
        rng.choice((x[i, j], x, i)))


FAULTS: dict[Fault, tuple[type[Exception], ...]] = {
    outside: (OutOfBoundsError,), stored_outside: (OutOfBoundsError,),
    written_twice: (KernelError,), two_stores: (KernelError,), own_result: (KernelError,),
    input_written: (MutationError,), value_after_its_loop: (KernelError,), ragged: (KernelError,),
    iterated: (KernelError,), asked_for_its_value: (KernelError,),
    computed_with_arrays: (KernelError,)}


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
def test_a_fault_is_refused_at_its_line(fault: Fault, seed: int) -> None:
    shape = random.Random(seed).choice(((4, 6), (5, 3), (17, 8)))

    def kernel(x: Any, o: Any) -> None:
        rng = random.Random(seed)
        i, j = k.range(shape[0], "i"), k.range(shape[1], "j")
        fault(rng, x, o, i, j)

    for wrap in (fnx.call(kernel, out=lambda x: x), fnx.jit(fnx.call(kernel, out=lambda x: x))):
        with pytest.raises(FAULTS[fault]) as found:
            wrap(np.ones(shape, "float32"))
        error = found.value
        assert isinstance(error, fnx.FnxError)
        assert error.loc is not None and error.loc[0] == __file__
        assert "expected" in error.message and "  Fix: " in str(error)


def test_nothing_of_a_kernel_is_used_after_it() -> None:
    @fnx.call(out=lambda x: x)
    def kernel(x: Any, o: Any) -> None:
        i, j = k.range(2), k.range(3)
        from_another_kernel(random.Random(0), x, o, i, j)

    kernel(np.ones((2, 3), "float32"))
    x, i, value, o = LEAKED
    uses: list[Callable[[], Any]] = [
        lambda: x[0, 0], lambda: value + 1, lambda: i + 1, lambda: o.store(0, 0, value=1.0),
        lambda: fnx.numpy.sin(value), lambda: float(value), lambda: np.asarray(value),
        lambda: fnx.numpy.asarray(x), lambda: bool(i), lambda: k.sum(value, over=i)]
    for use in uses:
        with pytest.raises((fnx.FnxError, TypeError)):
            use()

    def second(y: Any, p: Any) -> None:
        r = k.range(2)
        p[r, 0] = y[r, 0] + value

    with pytest.raises(KernelError, match="kernel 'kernel'.*used inside it"):
        fnx.call(second, out=lambda y: fnx.ShapeDtypeStruct((2, 1), y.dtype))(
            np.ones((2, 1), "float32"))


def random_schedule(rng: random.Random, names: list[str]) -> list[Any]:
    """Draw loop transforms that may or may not be legal together."""
    left, lanes, steps = list(names), list[str](), list[Any]()
    for name in names:
        if rng.random() < 0.5:
            factor = rng.choice((2, 3, 4, 8, 16))
            steps.append(k.split(name, factor))
            left[left.index(name):left.index(name) + 1] = [f"{name}o", f"{name}i"]
            lanes.append(f"{name}i")
    if rng.random() < 0.6:
        rng.shuffle(left)
        steps.append(k.order(*left))
    if rng.random() < 0.6:
        steps.append(k.parallel(left[0]))
    for name in lanes:
        if name != left[0] and rng.random() < 0.6:
            steps.append(rng.choice((k.vectorize, k.unroll))(name))
    if rng.random() < 0.2:
        steps.append(k.stage(rng.choice(("x", "y", 0)), at=rng.choice((None, left[0])),
                             space=rng.choice(("PRIV", "GLOBAL"))))
    return steps


def run_scheduled(seed: int) -> bool:
    """Return whether a random schedule of a random kernel was legal."""
    writer = Writer(seed)
    writer.dtype = "int32"
    args = writer.inputs()
    try:
        plain = fnx.call(writer, name="generated", out=writer.out)
        with override(device="interp"):
            want = [np.asarray(o) for o in fnx.tree.leaves(plain(*args))]
        kernel = plain.lower(*args).graph.src[0].src[0].src[0]
    except fnx.FnxError:
        return False
    assert kernel.arg.order is not None
    rng = random.Random(seed)
    names = [f"r{n}" for n in range(len(kernel.arg.order))]
    f = fnx.call(writer, name="generated", out=writer.out, schedule=random_schedule(rng, names))
    try:
        got = fnx.tree.leaves(f(*args))
    except KernelError as refused:
        assert not isinstance(refused, SpecError)
        assert "two iterations write" not in refused.message
        return False
    for a, b in zip(got, want):
        np.testing.assert_array_equal(a, b)
    return True


@pytest.mark.cases(1)
@pytest.mark.parametrize("part", range(4))
def test_a_schedule_is_refused_or_changes_nothing(part: int) -> None:
    assert sum(run_scheduled(seed) for seed in range(25 * part, 25 * part + 25)) >= 1
