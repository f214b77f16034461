"""Time whole programs as users write them (programs/) against JAX in one process, worst first.

    python benchmarks/whole_programs.py                          all of them
    python benchmarks/whole_programs.py mlp roll --rounds 3      those with a word in their names
    python benchmarks/whole_programs.py --part 1/8               an eighth
    python benchmarks/whole_programs.py --again --above 1.5      measure the slow ones again
    python benchmarks/whole_programs.py --write                  also renews docs/benchmarks.md
    python benchmarks/whole_programs.py --under grad             their gradients (transformed.py)

Steady times are medians of rounds in which both take turns (sweep.py), by processor time over all
threads, and by the wall clock. A first call traces and compiles, with empty caches. Memory is what
each compiler plans for intermediates and results. Values and dtypes of both are compared. The
measurements are saved in the state file, a line per program with its commit; a table covers all
existing programs in it.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import numpy as np
from goals import tolerance
from run import block, leaves, load
from sweep import BUILD, RTOL, Record, agree, caller, commit, interleaved, mean, read
from transformed import KINDS, Transformed

ROUNDS = 5
SLOW, LIMIT = 1.5, 1.0  # ratios above which programs are named, or counted
DERIVED_RTOL = 0.1  # of derivatives, which sum many terms that cancel
CLOCKS = {"processor": 1, "wall": 0}


def first_call(ns: Any, f: Any, args: Any) -> tuple[list[float], Any]:
    """Return the wall and processor seconds of a call that compiles, and its result."""
    ns.jax.clear_caches()
    block(args)
    wall, cpu = time.perf_counter(), time.process_time()
    result = block(f(*args))
    return [time.perf_counter() - wall, time.process_time() - cpu], result


def planned_bytes(target: str, f: Any, args: Any, result: Any) -> int:
    """Return the bytes of intermediates, as the compiler plans them, and of results."""
    lowered = f.lower(*args)
    plan: int = lowered.arena if target == "fnx" else \
        lowered.compile().memory_analysis().temp_size_in_bytes
    return plan + sum(x.nbytes for x in leaves(result) if hasattr(x, "nbytes"))


def difference(got: Any, expected: Any, operands: Any, rtol: float = RTOL) -> str:
    """Describe what differs between two results: shapes, dtypes or values; empty if they agree.

    bfloat16 is compared loosely: JAX rounds rarely, fnx to each dtype that is written.
    """
    def narrow(x: Any) -> Any:
        return np.asarray(x.astype("float32") if str(x.dtype) == "bfloat16" else x)
    given = [x for x in leaves((got, operands)) if hasattr(x, "dtype")]
    within = max(rtol, tolerance(given, given))
    for i, (a, b) in enumerate(zip(leaves(got), leaves(expected), strict=True)):
        if (str(a.dtype), a.shape) != (str(b.dtype), b.shape):
            return f"result {i} is {a.dtype}{list(a.shape)}, of JAX {b.dtype}{list(b.shape)}"
        if not agree([narrow(a)], [narrow(b)], within, within):
            off = np.abs(narrow(a).astype("float64") - narrow(b).astype("float64"))
            return f"result {i} differs in {np.sum(off > 0)} of {off.size}, by {np.nanmax(off):.2g}"
    return ""


def measure(program: Any, spaces: dict[str, Any], rounds: int) -> Record:
    """Return the seconds of steady and of first calls, bytes, and differences or failures."""
    calls, results, errors = {}, {}, []
    found: Record = {"name": program.name, "theme": program.theme, "first": {}, "bytes": {}}
    for target, ns in spaces.items():
        try:
            f, args = program.build(ns)
            found["first"][target], results[target] = first_call(ns, f, args)
            found["bytes"][target] = planned_bytes(target, f, args, results[target])
            calls[target] = caller(f, list(args), block)
        except Exception as error:  # a program that a target cannot run must not hide the rest
            errors.append(f"{target}: {type(error).__name__}: {error}"[:300])
    if errors and results:  # what neither can do is no difference
        found["differs"] = "; ".join(errors)
    if results.keys() >= spaces.keys():
        is_derived = isinstance(program, Transformed) and program.kind != "vmap"
        found["differs"] = difference(results["fnx"], results["jax"], args,
                                      DERIVED_RTOL if is_derived else RTOL)
    results.clear()
    if calls.keys() >= spaces.keys():
        found |= {target: list(pair) for target, pair in interleaved(calls, rounds).items()}
    return found


def ratio(record: Record, what: str) -> float | None:
    """Return fnx's "processor" or "wall" time, "first call" or "memory" relative to JAX; None if
    unknown."""
    if "fnx" not in record or "jax" not in record:
        return None
    if what == "memory":
        return max(record["bytes"]["fnx"], 1) / max(record["bytes"]["jax"], 1)
    of = record["first"] if what == "first call" else record
    clock = CLOCKS.get(what, 1)
    return float(of["fnx"][clock] / of["jax"][clock])


COLUMNS = (*CLOCKS, "first call", "memory")


def line(record: Record) -> str:
    """Return the printed line of one program."""
    cells = "".join(f"{r:7.2f}" if (r := ratio(record, what)) is not None else "      -"
                    for what in COLUMNS)
    times = "  ".join(f"{t} {record[t][1] * 1e3:.3g}" for t in ("fnx", "jax") if t in record)
    note = f"  DIFFERS: {record['differs']}" if record.get("differs") else ""
    return f"{cells}  {record['theme']}: {record['name']}  ms: {times}{note}"


def table(records: list[Record]) -> str:
    """Return a table with a row per measure: the mean, percentiles, the worst; and the slow
    programs."""
    head = ["fnx to JAX", "mean", "median", "90th", "99th percentile", "worst",
            f"> {LIMIT:g}", f"> {SLOW:g}"]
    lines = [head, ["---"] * len(head)]
    for what in COLUMNS:
        found = sorted((r, x["name"]) for x in records if (r := ratio(x, what)) is not None)
        if not found:
            continue
        values = [r for r, _ in found]
        at = [values[math.ceil(p * len(values)) - 1] for p in (0.9, 0.99)]
        lines.append([what, *(f"{v:.2f}" for v in (mean(values), statistics.median(values), *at)),
                      f"{found[-1][1]} {found[-1][0]:.2f}",
                      *(str(sum(v > limit for v in values)) for limit in (LIMIT, SLOW))])
    slow = sorted(((r, x["name"]) for x in records if (r := ratio(x, "processor")) is not None
                   and r > SLOW), reverse=True)
    named = "; ".join(f"{name} {r:.2f}" for r, name in slow) or "none"
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    text += "\n\n" + textwrap.fill(f"Above {SLOW:g} by processor time: {named}.", 100)
    for x in records:
        if x.get("differs"):
            text += "\n\n" + textwrap.fill(f"{x['name']}: {x['differs']}", 100)
    return text


def part_of(text: str) -> tuple[int, int]:
    """1/8 -> (1, 8)."""
    number, _, of = text.partition("/")
    if not 1 <= int(number) <= int(of):
        raise argparse.ArgumentTypeError(f"expected a part such as 1/8, got {text}")
    return int(number), int(of)


def chosen(options: argparse.Namespace, done: dict[str, Record], now: str) -> list[Any]:
    """Return the programs to measure."""
    from programs import PROGRAMS
    number, of = options.part
    programs = [Transformed(p, options.under) if options.under else p for p in PROGRAMS.values()]
    return [p for i, p in enumerate(programs)
            if i % of == number - 1 and p.name not in options.without
            and (not options.words or any(w in f"{p.theme}: {p.name}" for w in options.words))
            and (ratio(done.get(p.name, {}), "processor") or 0.0) >= options.above
            and (options.again or done.get(p.name, {}).get("commit") != now or "+" in now)]


def options_of(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("words", nargs="*", help="parts of names or themes")
    parser.add_argument("--without", nargs="*", default=[], help="names to leave out")
    parser.add_argument("--part", type=part_of, default=(1, 1), metavar="1/8")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--again", action="store_true", help="also what this commit measured")
    parser.add_argument("--above", type=float, default=0.0, metavar="RATIO",
                        help="only what was slower than that")
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--under", choices=KINDS, help="a transform of each program")
    parser.add_argument("--state", type=Path)
    parser.add_argument("--fresh", action="store_true", help="forget what is in the state file")
    parser.add_argument("--write", action="store_true", help="renew docs/benchmarks.md")
    options = parser.parse_args(arguments)
    options.state = options.state or BUILD / f"programs{options.under or ''}.jsonl"
    return options


def run(options: argparse.Namespace) -> list[Record]:
    """Measure, and print the results of the chosen programs and of the other existing ones."""
    from programs import PROGRAMS
    if options.fresh:
        options.state.unlink(missing_ok=True)
    options.state.parent.mkdir(parents=True, exist_ok=True)
    done, now, end = read(options.state), commit(), time.monotonic() + options.seconds
    measured = []
    spaces = {target: load(target)[0] for target in ("jax", "fnx")}
    for program in chosen(options, done, now):
        if time.monotonic() > end:
            break
        record = measure(program, spaces, options.rounds) | {"commit": now}
        done[program.name] = record
        measured.append(record)
        with options.state.open("a") as file:
            file.write(json.dumps(record) + "\n")
        print(line(record), flush=True)
    print("\n" + "".join(f"{c:>7s}" for c in ("cpu", "wall", "first", "memory")))
    for record in sorted(measured, key=lambda x: -(ratio(x, "processor") or math.inf)):
        print(line(record))
    return [done[name] for name in PROGRAMS if name in done]


def main() -> int:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    options = options_of()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FNX_CACHE_DIR"] = folder
        records = run(options)
    text = table(records)
    print(f"\n{text}")
    if options.write:
        from compare import machine, write
        head = textwrap.fill(f"{machine()}; {len(records)} programs, medians of {options.rounds} "
                             "rounds.", 100)
        write(f"{head}\n\n{text}", "whole_programs.py")
    return int(any(x.get("differs") for x in records))


if __name__ == "__main__":
    sys.exit(main())
