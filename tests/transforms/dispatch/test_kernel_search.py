"""search=True: schedules found by timing give the same bits and are cached."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import fnx
import fnx.kernel as k
import fnx.numpy as jnp
from fnx.core.support.config import override
from fnx.core.support.errors import ArgumentError
from fnx.core.support.target import Target
from fnx.lower.candidates import first
from fnx.lower.schedule.neighbors import neighbors
from fnx.lower.schedule.tile import tile
from fnx.transforms.dispatch import schedule_search
from fnx.transforms.dispatch.schedule_trials import measurements
from tests.laws.test_user_written_kernels import Writer
from tests.transforms.test_vmap import rows

pytestmark = pytest.mark.usefixtures("own_disk_cache")


def _near(x: Any, o: Any) -> None:
    i, j = k.range(x.shape[0], "i"), k.range(x.shape[0], "j")
    o[i] = k.sum(k.exp(-k.square(x[i] - x[j])), over=j)


def near(seconds: Any = 0.4) -> Any:
    return fnx.call(_near, name="near", out=lambda x: x, search=seconds)


plain = fnx.call(_near, name="near", out=lambda x: x)


def test_the_same_bits_in_bounded_time_and_shown() -> None:
    x = rows(700)
    began = time.perf_counter()
    got = near()(x)
    assert time.perf_counter() - began < 100  # includes compiling; a search does not run forever
    np.testing.assert_array_equal(got, plain(x))
    text = near().lower(x).text("schedules")
    assert "near: found by search among" in text and "the model's choice" in text
    assert "found by search" not in plain.lower(x).text("schedules")


def test_what_was_found_is_kept_in_the_process_and_on_disk(monkeypatch: pytest.MonkeyPatch
                                                           ) -> None:
    x = rows(300)
    kernels = [kernel.node for kernel in near().lower(x).kernels]

    def never(*args: Any) -> Any:
        raise AssertionError("searched again")

    monkeypatch.setattr(schedule_search, "_HillClimb", never)
    assert [kernel.node for kernel in near().lower(x).kernels] == kernels
    measurements.clear()  # as in another process
    assert [kernel.node for kernel in near().lower(x).kernels] == kernels
    with pytest.raises(AssertionError, match="searched again"):
        near()(rows(301))


def test_under_transforms_and_in_loops() -> None:
    x, f = rows(40), near(0.1)
    np.testing.assert_array_equal(fnx.jit(f)(x), plain(x))
    np.testing.assert_allclose(fnx.vmap(f)(x[None]), plain(x)[None], rtol=1e-6)
    np.testing.assert_allclose(fnx.grad(lambda x: f(x).sum())(x),
                               fnx.grad(lambda x: plain(x).sum())(x), rtol=1e-6)
    last, _ = fnx.lax.scan(lambda c, _: (f(c), None), x, None, length=3)
    np.testing.assert_allclose(last, plain(plain(plain(x))), rtol=1e-6)
    with override(device="interp"):
        np.testing.assert_allclose(f(x), plain(x), rtol=1e-6)


@pytest.mark.cases(5)
@pytest.mark.parametrize("seed", range(12))
def test_random_kernels_under_all_neighbours_give_the_same_bits(seed: int) -> None:
    writer = Writer(seed)
    try:
        want = fnx.call(writer, name="generated", out=writer.out)(*writer.inputs())
    except fnx.FnxError:
        return
    f = fnx.call(writer, name="generated", out=writer.out, search=0.3)
    got = f(*writer.inputs())
    for a, b in zip(got if isinstance(got, tuple) else (got,),
                    want if isinstance(want, tuple) else (want,)):
        np.testing.assert_array_equal(a, b)


def test_neighbours_leave_the_order_of_sums() -> None:
    kernel = plain.lower(jnp.ones(64)).graph.src[0].src[0].src[0]
    made, model = first(kernel, Target("cpu"))
    schedule = model.schedule
    found = list(neighbors(made, schedule))
    assert len(found) > 4

    def of_the_sum(steps: Any) -> list[Any]:
        return [step for step in steps if getattr(step, "range", "").startswith("j")]

    for other in found:
        assert of_the_sum(other) == of_the_sum(schedule)
    tile(made, schedule)


@pytest.mark.parametrize("options, match", [
    ({"search": True}, "no out="),
    ({"search": True, "out": lambda x: x, "schedule": [k.parallel("i")]}, "without schedule="),
    ({"search": 0, "out": lambda x: x}, "seconds > 0"),
    ({"search": "fast", "out": lambda x: x}, "seconds > 0"),
])
def test_wrong_options_are_refused(options: Any, match: str) -> None:
    with pytest.raises(ArgumentError, match=match):
        fnx.call(_near, **options)
