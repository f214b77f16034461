"""Regret: the time of what the compiler chose, by the best of its legal alternatives.

    python -m tests.attack.regret --count 2000 --seed 1 --seconds 600
    python -m tests.attack.regret --cpu x86-64-v2        as on another machine
    python -m tests.attack.regret --above 1.3            those that were worse, again
    python -m tests.attack.regret --programs             fused against unfused only

A seed is a random graph (graphs.py). Its program is compared with itself without each kind of
fusion (``config.unfused``), and each kernel of it with other schedules (lower/candidates.py): those
that are predicted to be the best, and some of the others. What takes less than 50 us is left out:
there the call is timed. All must have the same values.

They take turns, by processor time on one core: of threads on other cores, some systems count it
late. A time is the median. What seems slower than an alternative is timed again, in pairs, and if
it stays above the limit, once more in a new process, where addresses and what ran before differ.
The measurements are saved, a line for each program and kernel: a run resumes where the previous one
ended. CI uses the compiler's prediction instead of the clock (``predicted_regrets``), as it is
deterministic.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

import fnx
import fnx.numpy as jnp
from benchmarks.sweep import BUILD, in_play, mean, on_one_core, once
from fnx.core.ir import accessors, ops
from fnx.core.support.config import FUSIONS, config, override
from fnx.core.support.target import Target
from fnx.lower import candidates
from fnx.lower.pipeline import lower
from fnx.lower.schedule import cost_model
from fnx.transforms import link
from fnx.transforms.dispatch.schedule_trials import Trials, call_of_kernel
from tests.attack.graphs import LARGE, Graph

LIMIT = 1.3      # maximum regret
AGAIN = 1.1      # regret above which it is timed again, in pairs
LEAST = 5e-5     # processor seconds below which the call overhead dominates
ALTERNATIVES = 12
RANKED = 8       # of them, schedules that are predicted to be the best
TURNS, PAIRS = 9, 25
TURN_SECONDS = 1e-3
TRIAL = 3        # turns after which an alternative leaves that is far slower
TARGET = Target("cpu", kind="kernels", cores=2)  # of predictions
CHOSEN = "fnx"   # the name of what the compiler chose

Call = Callable[[], Any]
Record = dict[str, Any]


# ---- times --------------------------------------------------------------------------------------


def in_turns(calls: dict[str, Call]) -> dict[str, float]:
    """Return the median processor seconds of each call; they take turns."""
    repeats, times = {}, dict[str, list[float]]()
    for name, f in calls.items():
        once(f, 1)
        repeats[name] = max(1, min(1000, int(TURN_SECONDS / max(once(f, 1)[1], 1e-6))))
    for i in range(TURNS):
        least = {name: min(t) for name, t in times.items()} if i >= TRIAL else {}
        for name in in_play(least, calls):
            times.setdefault(name, []).append(once(calls[name], repeats[name])[1])
    return {name: statistics.median(of) for name, of in times.items()}


def paired(ours: Call, theirs: Call) -> float:
    """Return the median ratio of two calls, timed one after the other."""
    repeats = max(1, min(1000, int(TURN_SECONDS / max(once(ours, 1)[1], 1e-6))))
    ratios = []
    for _ in range(PAIRS):
        one, other = (once(f, repeats)[1] for f in (ours, theirs))
        ratios.append(one / max(other, 1e-9))
    return statistics.median(ratios)


def regret(calls: dict[str, Call], same: Iterable[str]) -> Record | None:
    """Return the regret of the first call, and of the calls whose results have its bits (``same``);
    None if it takes too little time."""
    if once(calls[CHOSEN], 1) and once(calls[CHOSEN], 3)[1] < LEAST / 2:
        return None
    times = in_turns(calls)
    if times[CHOSEN] < LEAST:
        return None
    ratios = {name: times[CHOSEN] / t for name, t in times.items() if name != CHOSEN}
    for name in [name for name, ratio in ratios.items() if ratio > AGAIN]:
        ratios[name] = paired(calls[CHOSEN], calls[name])
    best = max(ratios, key=lambda name: ratios[name], default=CHOSEN)
    return {"us": round(times[CHOSEN] * 1e6, 1), "alternatives": len(calls) - 1, "best": best,
            "regret": round(max([1.0, *ratios.values()]), 3),
            "same_bits": round(max([1.0, *[ratios[n] for n in same if n in ratios]]), 3)}


# ---- programs and their kinds of fusion ---------------------------------------------------------


def programs(graph: Graph) -> tuple[dict[str, Call], list[str]]:
    """Return the calls of a graph with each kind of fusion disabled, as far as their programs
    differ, and which have the same bits. All must have the same values."""
    given = [jnp.asarray(p) for p in graph.parameters]
    calls, seen, same = dict[str, Call](), list[Any](), list[str]()
    wanted: list[Any] = []
    for kind in ("", *FUSIONS):
        f = fnx.jit(graph.function())
        with override(unfused=kind):
            made = f.lower(*given).commands
            if made in seen:
                continue
            got = [np.asarray(v) for v in fnx.tree.leaves(f(*given))]
        seen.append(made)
        name = f"without {kind}" if kind else CHOSEN
        calls[name] = _caller(f, given, kind)
        wanted = wanted or got
        for a, b in zip(got, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3 * float(np.abs(b).max() + 1),
                                       err_msg=name)
        if all(map(np.array_equal, got, wanted)):
            same.append(name)
    return calls, same


def _caller(f: Callable[..., Any], given: Sequence[Any], kind: str) -> Call:
    def call() -> None:
        with override(unfused=kind):
            fnx.block_until_ready(f(*given))
    return call


# ---- kernels and their schedules ----------------------------------------------------------------


def kernels(graph: Graph) -> dict[str, Any]:
    """Return the generated kernels of a graph's program by name."""
    device, found = link.get_device("cpu"), list[Any]()
    fn = fnx.jit(graph.function()).lower(*map(jnp.asarray, graph.parameters)).graph
    lower(link.preprocess(fn, device), link.target_of(device), schedules=found.append)
    return {f"{i} {kernel.arg.name}": kernel for i, kernel in enumerate(dict.fromkeys(found))}


def drawn(kernel: Any, target: Target) -> tuple[Any, dict[str, Any]]:
    """Return the canonical kernel and its schedules by name: the heuristic one, those predicted to
    be the best, and some of the others."""
    kernel, _ = candidates.first(kernel, target)
    first, *others = candidates.candidates(kernel, target)
    others = [c for c in others if c.schedule != first.schedule]
    rest = others[RANKED:]
    others = others[:RANKED] + random.Random(len(others)).sample(
        rest, min(len(rest), ALTERNATIVES - RANKED))
    by_name = {_knobs(c): c.schedule for c in others}
    return kernel, {CHOSEN: first.schedule, **by_name}


def _knobs(candidate: Any) -> str:
    plan = candidate.plan
    return ", ".join(f"{name}={value}" for name in type(plan).__annotations__
                     if (value := getattr(plan, name)) is not None)


def schedules(kernel: Any) -> tuple[dict[str, Call], list[str], str]:
    """Return the calls of a kernel under its schedules, which have the same bits, and the digest of
    its code. Nothing if its data cannot be made up."""
    device, call = link.get_device("cpu"), call_of_kernel(kernel)
    if call is None:
        return {}, [], ""
    kernel, by_name = drawn(kernel, device.target)
    trials = Trials(call, kernel, device, link._make_start(device))
    chosen = trials.start_compile(by_name[CHOSEN])()
    key = hashlib.sha256(b"".join(sorted(c.key for c in chosen.lowered.code.values()))).hexdigest()
    calls, same, wanted = {CHOSEN: _runner(chosen, trials)}, list[str](), trials.results(chosen)
    if once(calls[CHOSEN], 3)[1] < LEAST / 2:
        return {}, [], key
    for name, schedule in by_name.items():
        try:
            program = trials.start_compile(schedule, chosen)()
        except fnx.errors.KernelError:  # illegal
            continue
        got = trials.results(program)
        if not trials.agree(got, wanted, same_bits=False):  # a search leaves it out, too
            print(f"{kernel.arg.name}, {name}: other values", flush=True)
            continue
        if name != CHOSEN and not trials.is_hopeless(program, chosen):
            calls[name] = _runner(program, trials)
            same += [name] * all(map(np.array_equal, got, wanted))
    return calls, same, key


def _runner(program: Any, trials: Trials) -> Call:
    inputs = trials.inputs()[0]

    def call() -> None:
        for storage in program.run(inputs):
            storage.wait()
    return call


# ---- the attack ---------------------------------------------------------------------------------


def units(seed: int, largest: int = LARGE, with_kernels: bool = True,
          ) -> Iterator[tuple[str, dict[str, Call], list[str], str]]:
    """Yield the program of a graph and its kernels: names, calls, which have the same bits, and
    digests of kernels."""
    yield "program", *programs(Graph(seed, largest)), ""
    if not with_kernels:
        return
    for name, kernel in kernels(Graph(seed, largest)).items():
        yield name, *schedules(kernel)


def measured(seed: int, known: set[str], with_kernels: bool = True) -> list[Record]:
    """Return the measurements of a graph; kernels with a known digest are left out."""
    records: list[Record] = []
    for name, calls, same, key in units(seed, with_kernels=with_kernels):
        if key in known or len(calls) < 2:
            continue
        known |= {key} - {""}
        record = regret(calls, same)
        if record is not None:
            if record["regret"] > LIMIT:
                record["regret"] = in_new_process(seed, name, record["best"]) or record["regret"]
                record["same_bits"] = min(record["same_bits"], record["regret"])
            records.append({"seed": seed, "unit": name, **record})
    return records


def in_new_process(seed: int, unit: str, alternative: str) -> float | None:
    """Return the ratio to an alternative in a new process; None if it fails there."""
    done = subprocess.run(
        [sys.executable, "-c", "from tests.attack import regret; "
         f"regret.again({seed}, {unit!r}, {alternative!r}, {config.cpu!r})"],
        text=True, capture_output=True)
    return None if done.returncode else float(done.stdout.split()[-1])


def again(seed: int, unit: str, alternative: str, cpu: str) -> None:
    """Print the ratio of a program or kernel to an alternative."""
    on_one_core(None)
    config.cpu = cpu
    calls = next(calls for name, calls, *_ in units(seed) if name == unit)
    print(round(max(1.0, paired(calls[CHOSEN], calls[alternative])), 3))


def table(records: Sequence[Record]) -> str:
    """Return means, 99th percentiles and the worst of programs, kernels and all."""
    lines = []
    groups = {"fusion of programs": [r for r in records if r["unit"] == "program"],
              "schedules of kernels": [r for r in records if r["unit"] != "program"],
              "all": records}
    for name, group in groups.items():
        for kind, key in (("", "regret"), (", same bits", "same_bits")):
            values = sorted(r[key] for r in group)
            if not values:
                continue
            worst = max(group, key=lambda r: r[key])
            at = values[min(len(values) - 1, math.ceil(0.99 * len(values)) - 1)]
            lines.append(
                f"{name}{kind}: {len(values)}, mean {mean(values):.3f}, 99th percentile {at:.2f}, "
                f"{sum(v > LIMIT for v in values)} above {LIMIT}, worst {worst[key]:.2f}: "
                f"seed {worst['seed']}, {worst['unit']} ({worst['us']:.0f} us), {worst['best']}")
    return "\n".join(lines)


def run(options: argparse.Namespace) -> list[Record]:
    """Measure the seeds that are due until the time is over; return all records."""
    lines = options.state.read_text().splitlines() if options.state.exists() else []
    known = {record["seed"]: record["units"] for record in map(json.loads, lines)}
    digests, end = set[str](), time.monotonic() + options.seconds
    for seed in range(options.seed, options.seed + options.count):
        worst = max([r["regret"] for r in known.get(seed, ())], default=1.0)
        if seed in known and not 0.0 < options.above < worst:
            continue
        if time.monotonic() > end:
            break
        known[seed] = measured(seed, digests, not options.programs)
        with options.state.open("a") as file:
            file.write(json.dumps({"seed": seed, "units": known[seed]}) + "\n")
        for r in known[seed]:
            if r["regret"] > AGAIN:
                print(f"{r['regret']:5.2f} {r['same_bits']:5.2f}  seed {seed}  {r['unit']}  "
                      f"{r['us']:.0f} us  {r['best']}", flush=True)
    return [r for seed, records in known.items() for r in records
            if options.seed <= seed < options.seed + options.count]


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--cpu", default="", help="a level of instructions, as config.cpu")
    parser.add_argument("--above", type=float, default=0.0, metavar="REGRET",
                        help="also seeds that were above it, again")
    parser.add_argument("--programs", action="store_true",
                        help="fused against unfused, without schedules of kernels")
    parser.add_argument("--state", type=Path, help="the file of the measurements")
    parser.add_argument("--fresh", action="store_true", help="forget what is in the state file")
    options = parser.parse_args()
    on_one_core(None)
    config.cpu = options.cpu
    options.state = options.state or BUILD / f"regret{options.cpu and '_' + options.cpu}.jsonl"
    options.state.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.state.unlink(missing_ok=True)
    records = run(options)
    print(table(records))
    return int(any(r["regret"] > LIMIT for r in records))


# ---- predictions --------------------------------------------------------------------------------


def predicted(fn: Any, kind: str = "") -> float:
    """Predict the cycles of a FUNCTION with a kind of fusion left out."""
    block = lower(fn, TARGET.replace(unfused=kind)).block
    return sum(cost_model.kernel_cycles(e.src[0], TARGET)
               for e in accessors.all_execs(block.commands)
               if e.src[0].op is ops.KERNEL)


def predicted_regrets(seed: int, largest: int) -> dict[str, float]:
    """Return the predicted regret against each kind of fusion left out that is too large."""
    graph = Graph(seed, largest)
    fn = fnx.jit(graph.function()).lower(*map(jnp.asarray, graph.parameters)).graph
    fused = predicted(fn)
    ratios = {kind: fused / predicted(fn, kind) for kind in FUSIONS}
    return {kind: ratio for kind, ratio in ratios.items() if ratio > LIMIT}


def predicted_schedule_regret(kernel: Any, target: Target) -> float:
    """Return the predicted cycles of a kernel by the least of its schedules."""
    kernel, _ = candidates.first(kernel, target)
    first, second = (cost_model.predict_cycles(kernel, c.schedule, target)
                     for c in islice(candidates.candidates(kernel, target), 2))
    return first / second


if __name__ == "__main__":
    sys.exit(main())
