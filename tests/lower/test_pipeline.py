"""The driver checks the input and output of every pass against the spec, and reports to
observers."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fnx.core.ir import build, build_calls, dtypes, ops
from fnx.core.ir.uop import UOp
from fnx.core.support.config import override
from fnx.core.support.errors import SpecError
from fnx.core.support.target import Target
from fnx.lower import driver, pipeline
from fnx.lower.driver import Driver, Pass, PassTrace, find_features, find_graphs
from fnx.lower.fusion.kernel_steps import KernelStep
from fnx.lower.fusion.kernelize import Fusion
from fnx.lower.memory.commands import Block, Launches
from fnx.lower.pipeline import lower, passes
from fnx.lower.target_lowerings import ScheduledKernels, ScheduleInput

F = dtypes.float32
HOST = Target("cpu", triple="x86_64")


def layer() -> UOp:
    """relu(x @ w) and its largest value: two kernels, one of them a contraction."""
    x, w = build.param(0, F, (40, 30)), build.param(1, F, (30, 50))
    product = build.mul(*[build.expand(build.reshape(a, shape), (40, 30, 50))
                          for a, shape in ((x, (40, 30, 1)), (w, (1, 30, 50)))])
    y = build.maximum(build.reduce(product, ops.ADD, [1]), build.const(0, F, (40, 50)))
    return build.function([y, build.reduce(build.exp(y), ops.MAX, [0, 1])], 2, "layer")


def variety() -> list[UOp]:
    """Functions with and without what passes look for: masks, slices, parts, rows, loops."""
    x = build.param(0, F, (24, 40))
    rows = build.reduce(build.exp(x), ops.ADD, [1])
    (total,), sums = build_calls.build_scan(
        lambda consts, carries, row: ([build.add(carries[0], row[0])], [build.exp(carries[0])]),
        24, [], [build.const(0, F, (40,))], [x])
    outs = ([build.exp(build.pad(x, [(1, 2), (0, 3)]))],
            [build.shrink(x, [(n, n + 1), (0, 40)]) for n in (3, 5)],
            [build.neg(build.concat([build.exp(x), build.log(x)], 0))],
            [build.div(x, build.expand(build.reshape(rows, (24, 1)), (24, 40)))],
            [total, *sums])
    return [layer(), *[build.function(out, 1) for out in outs]]


def history(target: Target = HOST, fn: UOp | None = None, **options: Any) -> list[PassTrace]:
    out: list[PassTrace] = []
    lower(layer() if fn is None else fn, target, on_pass=out.append, **options)
    return out


@cache
def varied_runs() -> list[PassTrace]:
    return [ran for fn in variety() for ran in history(fn=fn)]


@cache
def last_run(name: str) -> PassTrace:
    return {ran.name: ran for ran in history()}[name]


# ---- a mutated graph between passes --------------------------------------------------------------


def mutated(state: Any) -> Any:
    """Return the input or output of a pass, with one illegal node in it."""
    if isinstance(state, list):
        return [mutated(state[0]), *state[1:]]
    if isinstance(state, Fusion):
        return Fusion(mutated(state.fn))
    if isinstance(state, KernelStep):
        return KernelStep(mutated(state.kernel), state.operands, state.writes, state.schedule, ())
    if isinstance(state, ScheduleInput):
        return state.replace(kernel=mutated(state.kernel))
    if isinstance(state, ScheduledKernels):
        return state.replace(parts=(*state.parts[:-1], state.parts[-1].replace(
            kernel=mutated(state.parts[-1].kernel))))
    if isinstance(state, Launches):
        last = state.launches[-1]
        return state.replace(launches=[last.replace(kernel=mutated(last.kernel))])
    if isinstance(state, Block):
        return state.replace(commands=mutated(state.commands))
    assert isinstance(state, UOp)
    return ILLEGAL[state.op](state)


def with_wrong_dtype(fn: UOp) -> UOp:
    out = fn.src[0]
    return fn.replace(src=(UOp(ops.CMPLT, F, (out, out)), *fn.src[1:]))


ILLEGAL = {
    ops.FUNCTION: with_wrong_dtype,
    ops.KERNEL: lambda kernel: kernel.replace(src=(*kernel.src, kernel.src[0].src[1])),
    ops.PROGRAM: lambda program: program.replace(src=program.src[1:]),
    ops.COMMANDS: lambda commands: commands.replace(src=(*commands.src, commands.src[0].src[1])),
}


@pytest.mark.parametrize("step", passes(HOST), ids=lambda step: step.name)
def test_a_mutated_graph_is_refused_before_each_pass(step: Pass) -> None:
    with pytest.raises(SpecError, match=f"before pass {step.name}: {step.before} level: "
                                        r"expected .*; got <"):
        Driver(HOST).run([step], mutated(last_run(step.name).before))


@pytest.mark.parametrize("step", [p for p in passes(HOST) if p.after != "text"],
                         ids=lambda step: step.name)
def test_a_pass_that_breaks_the_spec_is_named(step: Pass) -> None:
    before, after = last_run(step.name).before, mutated(last_run(step.name).after)
    broken = step.replace(run=lambda *given: after, features=None, needs=None)
    with pytest.raises(SpecError, match=f"after pass {step.name}: {step.after} level: "
                                        r"expected .*; got <"):
        Driver(HOST).run([broken], before)


@pytest.mark.parametrize("step", [p for p in passes(HOST) if p.features or p.needs],
                         ids=lambda step: step.name)
def test_what_a_pass_is_passed_by_with_it_would_not_change(step: Pass) -> None:
    for ran in varied_runs():
        if ran.name == step.name and \
                not step.is_relevant(ran.before, find_features(ran.before)):
            made = step.run(ran.before, HOST) if step.takes_target else step.run(ran.before)
            assert list(find_graphs(made)) == list(find_graphs(ran.before))
            assert ran.after is ran.before


def test_what_is_not_checked_runs() -> None:
    step = next(p for p in passes(HOST) if p.name == "inline")
    wrong = with_wrong_dtype(layer())
    with override(check_spec=False):
        assert Driver(HOST).run([step], wrong) is not None
    with pytest.raises(SpecError):
        Driver(HOST).run([step], wrong)


# ---- observers -----------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [HOST, Target("interp", kind="kernels")], ids=lambda t: t.kind)
@pytest.mark.parametrize("fixed_lengths", [None, frozenset()])
def test_every_pass_is_seen_in_order(target: Target, fixed_lengths: frozenset[int] | None) -> None:
    names = [ran.name for ran in history(target, fixed_lengths=fixed_lengths)]
    assert list(dict.fromkeys(names)) == [p.name for p in passes(target)]
    assert names.count("kernelize") == 1 < names.count("tile") == names.count("coalesce")


def test_levels_follow_one_another() -> None:
    """The output of a pass is the input of the next one, at the level that it declares."""
    for before, after in zip(passes(HOST), passes(HOST)[1:]):
        assert before.after == after.before or before.after == "text"
    ran = history()
    for a, b in zip(ran, ran[1:]):
        if (a.name, b.name) in {(p.name, q.name) for p, q in
                                zip(pipeline.TENSOR_PASSES, pipeline.TENSOR_PASSES[1:])}:
            assert a.after is b.before


def test_times_are_those_of_the_passes() -> None:
    ran: list[PassTrace] = []
    lowered = lower(layer(), HOST, on_pass=ran.append)
    assert list(lowered.milliseconds) == list(dict.fromkeys(r.name for r in ran))
    for name, total in lowered.milliseconds.items():
        np.testing.assert_allclose(total, sum(r.milliseconds for r in ran if r.name == name))


def test_equal_kernels_are_taken_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_results", driver.Cache[Any, Any]("results", 4096))
    first, second = lower(layer(), HOST), lower(layer(), HOST)
    assert "tile" in first.milliseconds and "tile" not in second.milliseconds
    assert first.block == second.block and first.code.keys() == second.code.keys()
    assert [first.code[k] for k in first.code] == [second.code[k] for k in second.code]


def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    few = driver.Cache[Any, Any]("results", 3)
    monkeypatch.setattr(driver, "_results", few)
    lower(layer(), HOST)
    assert len(few) == 3


def test_nothing_is_printed_before_it_is_asked_for() -> None:
    lowered = lower(layer(), Target("cpu", triple="x86_64", l1=12345))
    assert "render" not in lowered.milliseconds
    for code in lowered.code.values():
        assert code.text().startswith(f"define void @{code.symbol}(")
    assert "render" in lowered.milliseconds


def test_kernels_are_handed_on_as_soon_as_they_are_ready() -> None:
    seen: list[str] = []
    lower(layer(), HOST, on_pass=lambda ran: seen.append(ran.name),
          on_kernel_ready=lambda code: seen.append("ready"))
    first = seen.index("ready")
    assert "coalesce" in seen[first:], "before the next kernel is begun"


def test_a_block_says_where_results_are() -> None:
    x = build.param(0, F, (4,))
    y = build.neg(x)
    fn = build.function([build.reshape(y, (2, 2)), x, y], 1)
    block = lower(fn, HOST).block
    assert block.results == (("out", 0), ("in", 0), ("out", 0))
    assert [(o.shape, o.dtype) for o in block.outs] == [((4,), F)]
    assert find_graphs(block) == (block.commands,)


# ---- the map -----------------------------------------------------------------------------------


def test_the_map_names_each_pass_in_order() -> None:
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    figure = text.partition("## Lowering")[2].partition("\n\nEach step")[0]
    assert re.findall(r"-(\w+)->", figure) == [step.name for step in passes(HOST)]
