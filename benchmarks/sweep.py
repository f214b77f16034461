"""Time a thousand generated cases against JAX and PyTorch eager, in one process.

    python benchmarks/sweep.py                               all that are not in the state file
    python benchmarks/sweep.py --family norms --seconds 90   what fits into the time
    python benchmarks/sweep.py --one-core                    on one core, by processor time
    python benchmarks/sweep.py --again --above 1.1           those that were slow at other commits
    python benchmarks/sweep.py --one-core --again --alone    fnx again, against the peers' old times
    python benchmarks/sweep.py --again --errors              errors again, with the old times
    python benchmarks/sweep.py --write                       also renews docs/benchmarks.md

A case is timed in rounds in which the targets take turns; each call waits for its result, in the
same function for all. A time is the median of the rounds; a ratio is fnx's time to the better of
the others. ``cpu`` is the same by processor time, over all threads. If other processes were busy at
the same time, the case is timed again, and the quietest try counts. Results are compared with
JAX's, errors are relative to PyTorch in float64, or to JAX in float64 if PyTorch lacks the
function: medians over several draws of the operands. A target that can no longer be the better of
the others stops taking turns. The measurements are saved, a line per case with its commit, in the
state file: a run resumes where the previous one ended.

On one core each target has one thread, and a time is the least processor time of the rounds: that
is reliable on a busy machine, too, but says nothing about parallel scaling.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

COUNT, SEED = 1000, 11
ROUNDS = 7
ROUND_SECONDS = 0.006
TURNS, TURN_SECONDS = 15, 0.0008  # on one core
TRIAL, LOST = 3, 2.0  # turns after which a target leaves that takes so many times the least
PAUSE = 0.01        # between targets, so that spinning threads (PyTorch: 8 ms) have stopped
TRIES = 3           # of a case while other processes are busy
BUSY = 0.1          # share of one processor that others may take
WORST = 3           # cases of a family that the table names
LIMIT = 1.1         # ratio above which a case is counted
RTOL, ATOL = 2e-3, 2e-3
EXACT = 2.0 ** -25  # an error that counts as none: rounding once
DRAWS, MOST_DRAWS, NUMBERS = 5, 33, 256  # of operands for errors: more if there are few results
ERRORS = 2.0        # times the least error of the others, above which a case is counted
BUILD = Path(__file__).resolve().parent.parent / "build"
STATE, STATE_OF_ONE_CORE = BUILD / "sweep.jsonl", BUILD / "sweep_one_core.jsonl"

Call = Callable[[], Any]
Record = dict[str, Any]


def once(f: Call, repeats: int) -> tuple[float, float]:
    """Return the seconds of a call, by wall clock and processor time."""
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(repeats):
        f()
    return ((time.perf_counter() - wall) / repeats, (time.process_time() - cpu) / repeats)


def in_play(least: dict[str, float], calls: Iterable[str]) -> list[str]:
    """Return the targets that go on taking turns: fnx, and those not much slower than the
    fastest."""
    best = min(least.values(), default=0.0)
    return [name for name in calls if name == "fnx" or least.get(name, 0.0) <= LOST * best]


def interleaved(calls: dict[str, Call], rounds: int | None = None
                ) -> dict[str, tuple[float, float]]:
    """Return the median times of each call, in rounds in which they take turns."""
    repeats: dict[str, int] = {}
    for name, f in calls.items():
        least = min(once(f, 1)[0] for _ in range(5))
        repeats[name] = max(1, min(2000, int(ROUND_SECONDS / max(least, 1e-7))))
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    for i in range(rounds or ROUNDS):
        names = in_play({name: min(t)[0] for name, t in times.items() if i >= TRIAL}, calls)
        for name in names[i % len(names):] + names[:i % len(names)]:
            time.sleep(PAUSE)
            once(calls[name], 1)
            times[name].append(once(calls[name], repeats[name]))
    return {name: (statistics.median(t[0] for t in of), statistics.median(t[1] for t in of))
            for name, of in times.items()}


def busy_seconds() -> float:
    """Return the busy time of all processors since the machine started; 0 if it is unknown."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system = map(int, stat.read_text().split()[1:4])
    return (user + nice + system) / os.sysconf("SC_CLK_TCK")


def quietest(calls: dict[str, Call]) -> tuple[dict[str, tuple[float, float]], float]:
    """Return the times of each call, and how many processors other processes used at the same time:
    of the first try without load, or else of the one with the least."""
    tries: list[tuple[dict[str, tuple[float, float]], float]] = []
    while len(tries) < TRIES and not (tries and tries[-1][1] < BUSY):
        start, all_before, own_before = time.monotonic(), busy_seconds(), time.process_time()
        found = interleaved(calls)
        own = time.process_time() - own_before
        others = max(0.0, busy_seconds() - all_before - own) / (time.monotonic() - start)
        tries.append((found, others))
    return min(tries, key=lambda t: t[1])


def least(calls: dict[str, Call]) -> dict[str, tuple[float, float]]:
    """Return the least processor time of each call, as both of its times; targets take turns."""
    repeats, found = {}, dict[str, float]()
    for name, f in calls.items():
        once(f, 1)
        repeats[name] = max(1, min(1000, int(TURN_SECONDS / max(once(f, 1)[1], 1e-6))))
    for i in range(TURNS):
        for name in in_play(found if i >= TRIAL else {}, calls):
            found[name] = min(once(calls[name], repeats[name])[1], found.get(name, math.inf))
    return {name: (seconds, seconds) for name, seconds in found.items()}


def on_one_core(torch: Any) -> None:
    """Give this process one core, and each target one thread."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    importlib.import_module("fnx").config.workers = 1
    if torch is not None:
        torch.set_num_threads(1)


def agree(got: Any, expected: Any, relative: float = RTOL, absolute: float = ATOL) -> bool:
    """Whether results are equal, in units of their root mean square."""
    from run import leaves
    for a, b in zip(map(np.asarray, leaves(got)), map(np.asarray, leaves(expected)), strict=True):
        finite = b[np.isfinite(b)].astype("float64")
        unit = max(1.0, math.sqrt(np.mean(finite * finite))) if finite.size else 1.0
        if a.shape != b.shape or \
                not np.allclose(a, b, relative, absolute * unit, equal_nan=True):
            return False
    return True


def error_of(got: Any, reference: Any) -> float | None:
    """Return the largest error of all results; None if none is a float, or the reference is
    empty."""
    from run import leaves
    found: list[float] = []
    for a, b in zip(map(np.asarray, leaves(got)), map(np.asarray, leaves(reference)), strict=True):
        if b.dtype.kind != "f" or a.shape != b.shape:
            continue
        kept = np.isfinite(a) & np.isfinite(b)
        exact = b[kept]
        unit = math.sqrt(float(np.mean(exact * exact))) if exact.size else 0.0
        if 1e-30 < unit < 1e30:
            off = a[kept] - exact
            found.append(math.sqrt(float(np.mean(off * off))) / unit)
    return max(found, default=None)


def errors(case: Any, runs: dict[str, Callable[..., Any]], ns: Any, torch: Any
           ) -> dict[str, float]:
    """Return the median errors of all targets over draws of the operands: in a single draw an error
    may be small by chance, above all if the result is one value, or all results share a factor."""
    from run import leaves
    found: dict[str, list[float]] = {name: [] for name in runs}
    seed = numbers = 0
    while seed < DRAWS or seed < MOST_DRAWS and 0 < numbers < NUMBERS:
        operands = case.operands(seed)
        exact = in_float64(case, operands, ns, torch)
        for name, run in runs.items():
            if (off := error_of(run(operands)(), exact)) is not None:
                found[name].append(off)
                numbers += sum(np.asarray(x).size for x in leaves(exact)) if name == "fnx" else 0
        seed += 1
        if not any(found.values()):
            break
    return {name: statistics.median(each) for name, each in found.items() if each}


def in_float64(case: Any, operands: Iterable[Any], ns: Any, torch: Any) -> Any:
    """Return the results for the same operands in float64: by PyTorch, which compiles nothing, else
    by JAX."""
    given = [x.astype("float64") if x.dtype.kind == "f" else x for x in operands]
    if torch is not None and case.torch is not None:
        return case.torch(torch)(*map(torch.from_numpy, given))
    with ns.jax.enable_x64(True):
        return ns.jax.device_get(ns.jax.jit(case.of(ns))(*map(ns.jnp.asarray, given)))


def caller(of: Callable[..., Any], operands: list[Any], wait: Callable[[Any], Any]) -> Call:
    return lambda: wait(of(*operands))


def measure_alone(case: Any, ns: Any, known: Record, one_core: bool) -> Record:
    """Return the known results of a case, with fnx timed again."""
    from run import block
    calls = {"fnx": caller(ns.jax.jit(case.of(ns)), list(map(ns.jnp.asarray, case.operands())),
                           block)}
    times, others = (least(calls), 0.0) if one_core else quietest(calls)
    return known | {"others": others, "fnx": list(times["fnx"])}


def targets(case: Any, spaces: dict[str, Any], torch: Any) -> dict[str, Callable[..., Any]]:
    """Return functions of NumPy operands, which they convert."""
    from run import block

    def jitted(ns: Any) -> Callable[..., Any]:
        f = ns.jax.jit(case.of(ns))
        return lambda operands: caller(f, [ns.jnp.asarray(x) for x in operands], block)
    found = {target: jitted(ns) for target, ns in spaces.items()}
    if torch is not None and case.torch is not None:
        found["torch"] = lambda operands: caller(
            case.torch(torch), [torch.from_numpy(x) for x in operands], block)
    return found


def measure(case: Any, spaces: dict[str, Any], torch: Any, one_core: bool = False,
            known: Record | None = None) -> Record:
    """Return the seconds of each target (or known ones), whether the results agree, their errors,
    and failures."""
    operands, calls, results = case.operands(), dict[str, Call](), dict[str, Any]()
    found: Record = {}
    made = targets(case, spaces, torch)
    for target, of in made.items():
        try:
            calls[target] = of(operands)
            results[target] = calls[target]()
        except Exception as error:  # a case that a target cannot run must not hide the rest
            calls.pop(target, None)
            found.setdefault("failed", {})[target] = f"{type(error).__name__}: {error}"[:300]
    if results.keys() >= spaces.keys():
        found["agrees"] = agree(results["fnx"], results["jax"])
        found["errors"] = errors(case, {name: made[name] for name in results}, spaces["jax"], torch)
    results.clear()
    if known is not None:
        return known | found
    times, found["others"] = (least(calls), 0.0) if one_core else quietest(calls)
    return found | {name: list(pair) for name, pair in times.items()}


def ratios(record: Record, clock: int) -> float | None:
    """Return the ratio of fnx's time to the better of the others; None if nothing can be
    compared."""
    others = [record[name][clock] for name in ("jax", "torch") if name in record]
    return record["fnx"][clock] / min(others) if others and "fnx" in record else None


def error_ratio(record: Record) -> float | None:
    """Return the ratio of fnx's error to the smaller one of the others; None if there is none."""
    errors = {name: max(off, EXACT) for name, off in record.get("errors", {}).items()}
    others = [off for name, off in errors.items() if name != "fnx"]
    return errors["fnx"] / min(others) if others and "fnx" in errors else None


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean."""
    return math.exp(statistics.fmean([math.log(max(v, 1e-9)) for v in values]))


def table(records: dict[str, Record]) -> str:
    """Return a table with a row per family: mean ratios, how many are above the limit, the worst
    cases; the same for errors."""
    head = ["family", "cases", "ratio", "JAX alone", "cpu", f"> {LIMIT}", "worst", "error",
            f"> {ERRORS:g}"]
    lines = [head, ["---"] * len(head)]
    found = {name: (r, wall) for name, r in records.items() if (wall := ratios(r, 0)) is not None}
    families = sorted({r["family"] for r, _ in found.values()})
    for family in [*families, "all"]:
        mine = {n: (r, w) for n, (r, w) in found.items() if family in (r["family"], "all")}
        errors = [off for r, _ in mine.values() if (off := error_ratio(r)) is not None]
        worst = sorted(mine.items(), key=lambda item: -item[1][1])[:WORST if family != "all" else 0]
        lines.append([
            family, str(len(mine)), f"{mean([w for _, w in mine.values()]):.2f}",
            f"{mean([r['fnx'][0] / r['jax'][0] for r, _ in mine.values() if 'jax' in r]):.2f}",
            f"{mean([c for r, _ in mine.values() if (c := ratios(r, 1)) is not None]):.2f}",
            str(sum(w > LIMIT for _, w in mine.values())),
            "; ".join(f"{name} {w:.2f}" for name, (_, w) in worst),
            f"{mean(errors):.2f}" if errors else "", str(sum(e > ERRORS for e in errors))])
    wrong = [n for n, r in records.items() if r.get("agrees") is False or "fnx" not in r]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines) + \
        "".join(f"\n\nDiffers from JAX or fails: {name}." for name in wrong)


def read(state: Path) -> dict[str, Record]:
    """Return name -> measurements."""
    lines = state.read_text().splitlines() if state.exists() else []
    return {r["name"]: r for r in map(json.loads, lines)}


def eager_torch() -> Any:
    """Return the torch module, if it is installed."""
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return None
    torch.set_grad_enabled(False)
    return torch


def commit() -> str:
    """Return the commit of the sources, with a + if they have changed since; empty without git."""
    home = ["git", "-C", str(BUILD.parent)]
    try:
        found = subprocess.run([*home, "describe", "--always", "--exclude=*", "--dirty=+"],
                               capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def is_due(known: Record | None, now: str, options: argparse.Namespace) -> bool:
    """Whether a case must be measured: it never was, or not with the current sources."""
    if known is None:
        return not options.above
    if not options.again or now and known.get("commit") == now:
        return False
    return not options.above or (ratios(known, 0) or 0.0) > options.above \
        or (error_ratio(known) or 0.0) > ERRORS


def sweep(options: argparse.Namespace, done: dict[str, Record]) -> None:
    """Measure what is due, until the time is over."""
    from run import load
    from sweep_cases import FAMILIES, cases
    end, now = time.monotonic() + options.seconds, commit()
    torch = eager_torch() if options.torch and not options.alone else None
    if options.one_core:
        on_one_core(torch)
    spaces = {name: load(name)[0] for name in ("jax", "fnx") if name == "fnx" or not options.alone}
    for family, case in cases(options.count, options.seed, options.family or list(FAMILIES)):
        known = done.get(case.name)
        if options.only not in case.name or not is_due(known, now, options) \
                or options.alone and not known:
            continue
        if time.monotonic() > end:
            break
        record = {"name": case.name, "family": family} | (
            measure_alone(case, spaces["fnx"], known, options.one_core)
            if options.alone and known else measure(
                case, spaces, torch, options.one_core, known if options.errors else None)
        ) | {"commit": now}
        done[case.name] = record
        with options.state.open("a") as file:
            file.write(json.dumps(record) + "\n")
        wall, cpu = ratios(record, 0), ratios(record, 1)
        times = "  ".join(f"{n} {record[n][0] * 1e6:.0f}" for n in ("fnx", "jax", "torch")
                          if n in record)
        note = "" if record.get("agrees") else "  DIFFERS"
        if known and (before := ratios(known, 0)):
            note += f"  was {before:.2f}"
        off = error_ratio(record)
        if record["others"] > BUSY:
            note += f"  others {record['others']:.1f}"
        if off is not None and off > ERRORS:
            note += f"  error {off:.1f} times"
        print(f"{wall or math.nan:6.2f} {cpu or math.nan:6.2f}  {case.name}  us: {times}{note}",
              *record.get("failed", {}).items(), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--family", action="append", help="one of its families; may be repeated")
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--torch", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--one-core", action="store_true", help="processor time of one thread")
    parser.add_argument("--again", action="store_true", help="what other commits measured, too")
    parser.add_argument("--above", type=float, default=0.0, metavar="RATIO",
                        help="only what was above it, or less exact than the others")
    parser.add_argument("--alone", action="store_true",
                        help="time fnx, and keep what is known of the others")
    parser.add_argument("--errors", action="store_true",
                        help="compute errors again, and keep the times that are known")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--fresh", action="store_true", help="forget what is in the state file")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    options.state = options.state or (STATE_OF_ONE_CORE if options.one_core else STATE)
    options.state.parent.mkdir(parents=True, exist_ok=True)
    if options.fresh:
        options.state.unlink(missing_ok=True)
    done = read(options.state)
    sweep(options, done)
    if not done:
        return 1
    text = table(done)
    print(f"\n{text}")
    if options.write:
        from compare import machine, write
        how = f"one core, least of {TURNS} turns" if options.one_core else \
            f"medians of {ROUNDS} rounds"
        head = textwrap.fill(f"{machine()}; {len(done)} cases, {how}.", 100)
        write(f"{head}\n\n{text}", "sweep.py --one-core" if options.one_core else "sweep.py")
    return 0


if __name__ == "__main__":
    sys.exit(main())
