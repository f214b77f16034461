"""Dispatch of jitted calls: signatures, captures, caches, launchers, schedule search.

    call      -> native call, if all arguments are Arrays by position       (core/ir/kernel_code.py)
              -> launcher: a generated Python function of straight-line checks      (fastpath.py)
              -> CallKey: tree, Avals, statics, device, configuration              (signature.py)
    CallKey   -> traces, one for each set of captured values          (trace_cache.py, captures.py)
    trace     -> Executable, cached by FUNCTION                    (executable.py; link.py compiles)

A native call and a launcher are made together, when a trace is called for the second time, from the
same LaunchPlan; they belong to the trace and die with it. The first call of a function tries the
launchers of functions with equal code. Eager calls have a key of their own (array/eager_cache.py)
and share only the Executables' way to the queue.

What ends an entry, besides ``clear_caches``, which drops all but the last:

| entry | dies with | is evicted | does not apply while |
|---|---|---|---|
| launcher, native call | its trace | with its trace | a guard fails: argument, capture, setting |
| trace | its function | 256 CallKeys, 96 MB, 8 per key; a captured array died | a capture differs |
| trace of equal code | - | 128 code keys, 64 MB | a capture differs |
| Executable | its function; eager: - | 256 (eager 1024), 96 MB | - |
| eager call | - | 1024, 96 MB; another evaluator | - |
| form of a FUNCTION | the FUNCTION | 256, 64 MB | - |
| stored program | the disk cache | its bound | sources, target or settings differ |

Signatures are compared exactly: 1, 1.0 and True are three static values. What f reads from outside
(closure cells, named globals, through the Python functions that it calls) is compared at each call:
numbers and strings by value, everything else by identity. Another value is another trace, up to 8
per signature; ``cache_info().misses`` says why each was made. A rebound array of equal type is
another operand of the identical FUNCTION, so nothing is compiled again. Changes inside an object
(an attribute, an item of a dict, the content of a NumPy array) are not seen. Functions of equal
code that close over equal plain values share their traces (trace_cache.py), so ``jit(f)(x)`` in a
loop traces once. Inside another trace a jitted function is a CALL of its FUNCTION. Donated
arguments lose their memory with the call (signature.py).

**Disk** (program_cache.py, cache_checks.py): jitted programs by the digest of their FUNCTION, as
COMMANDS whose kernels are LINKED: the key of an object, and how it is launched. The user's lines
are stored as positions in the FUNCTION, as an equal one may come from elsewhere.

**Search** (schedule_search.py, schedule_trials.py), under ``config.search`` (seconds per jitted
function; 0: off), or by ``search=`` in the schedule of a CALL. Candidates are compiled four at a
time and timed in turns with the best so far, on two sets of data. Their results have to agree with
those of the heuristic schedule up to the order of the sums (8 units in the last place of a result,
or of the root mean square of all, and 4 for each square root of the number of terms); those of
user-written kernels bitwise. What cannot be stopped is not started: code four times as long as the
heuristic's is not compiled, a candidate that takes eight times as long in its first run is run
once. Kernels with data-dependent indices or combining stores, and those with run-time extents
(eager calls), are not searched. The setting is part of the key of every trace. The outcome is
stored by the digest of the kernel's code, in memory and on disk, even if it is the heuristic: so
later calls and processes compute the same bits. A small number such as 1e-9 uses what is stored and
searches next to nothing. ``show("schedules")`` says who chose each schedule: heuristic, search or
user.

**Limits.** machine_limits.py measures arithmetic of each type by a register tile over factors in
the L1 cache, and the read bandwidth of each level of memory by sums, on all workers;
inspect/roofline.py compares each kernel with them. A matrix unit is assumed to do all terms of a
word of each lane at once.
"""
