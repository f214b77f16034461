"""The native part of the cpu queue, as LLVM IR: resolve, run, submit, wait and the worker loops.

No Python runs between the kernels of a submission. layout.py defines the data that it interprets,
workers.py what the threads do.
"""

from __future__ import annotations

import sys

from fnx.backends.cpu import call_entry, layout, native_call, workers
from fnx.backends.cpu.workers import call_c, lock, unlock
from fnx.backends.llvm.ir_builder import IRFunction

_PTHREAD = {"pthread_mutex_lock": 1, "pthread_mutex_trylock": 1, "pthread_mutex_unlock": 1,
            "pthread_cond_wait": 2, "pthread_cond_timedwait": 3, "pthread_cond_signal": 1,
            "pthread_cond_broadcast": 1, "clock_gettime": 2}  # name: number of arguments
_AFFINITY = {"sched_getcpu": 0, "sched_getaffinity": 3, "pthread_setaffinity_np": 3}
HAS_AFFINITY = sys.platform == "linux"  # whether threads can query and set their processors
IMPORTS = (*_PTHREAD, *(_AFFINITY if HAS_AFFINITY else ()), *call_entry.PYTHON_API)
EXPORTS = ("run", "submit", "wait", "abort", "stop", "lead", "help", "execute", "enter",
           "call", "know")

# Per processor: declarations, pause instruction, default float mode. The default mode rounds to
# nearest and keeps subnormal numbers, whatever other libraries have set.
_PROCESSORS = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.stmxcsr(ptr)\n"
               "declare void @llvm.x86.sse.ldmxcsr(ptr)\n",
               "call void @llvm.x86.sse2.pause()", 0x1F80),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)\ndeclare i64 @llvm.aarch64.get.fpcr()\n"
                "declare void @llvm.aarch64.set.fpcr(i64)\n",
                "call void @llvm.aarch64.hint(i32 1)", 0),
}


_NEVER_ABORTED = -1  # a timeline value that is never aborted: of work that a caller runs


def _processor(triple: str) -> str:
    return "x86_64" if triple.startswith("x86_64") else "aarch64"


def text(triple: str) -> str:
    """Return the module text: ``EXPORTS`` as functions of i64."""
    processor = _processor(triple)
    declarations, pause, mode = _PROCESSORS[processor]
    for name, arity in (_PTHREAD | _AFFINITY).items():
        declarations += f"declare i32 @{name}({', '.join(['i64'] * arity)})\n"
    declarations += call_entry.declarations() + native_call.GLOBALS
    functions = [_read_mode(processor), _write_mode(processor), _resolve(), _kernel(),
                 _update_moves(), _execute_control(), _run(mode), _submit(), _wait(), _abort(),
                 _stop(), *call_entry.functions(), *native_call.functions(),
                 *workers.functions(pause, mode, HAS_AFFINITY)]
    return declarations + "\n".join(f.text() for f in functions)


# ---- the float mode ---------------------------------------------------------------------------


def _read_mode(processor: str) -> IRFunction:
    f = IRFunction("read_mode", ())
    if processor == "x86_64":
        space = f.alloca_bytes(8)
        f.store(space, 0, 0)
        p = f.emit(f"inttoptr i64 {space} to ptr", "p")
        f.emit(f"call void @llvm.x86.sse.stmxcsr(ptr {p})")
        f.ret(f.load(space))
    else:
        f.ret(f.emit("call i64 @llvm.aarch64.get.fpcr()", "m"))
    return f


def _write_mode(processor: str) -> IRFunction:
    f = IRFunction("write_mode", ("mode",))
    if processor == "x86_64":
        space = f.alloca_bytes(8)
        f.store(space, 0, f["mode"])
        p = f.emit(f"inttoptr i64 {space} to ptr", "p")
        f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {p})")
    else:
        f.emit(f"call void @llvm.aarch64.set.fpcr(i64 {f['mode']})")
    f.ret(0)
    return f


# ---- one submission on one thread -------------------------------------------------------------


def _resolve() -> IRFunction:
    """Resolve slots (argument, offset) to pointers in the block; return their address."""
    f = IRFunction("resolve", ("program", "block"))
    table = f.load(f["program"], layout.SLOT_TABLE)
    pointers = f.word_address(f["block"], f.load(f["program"], layout.RESOLVED))
    with f.count(f.load(f["program"], layout.SLOTS)) as i:
        entry = f.word_address(table, f.mul(i, 2))
        base = f.load(f["block"], f.load(entry))
        f.store(pointers, i, f.add(base, f.load(entry, 1)))
    f.ret(pointers)
    return f


def _kernel() -> IRFunction:
    """Call the kernel of a record on the iterations low..high."""
    f = IRFunction("kernel", ("record", "pointers", "low", "high", "scratch"))
    buffers = f.word_address(f["pointers"], f.load(f["record"], layout.BUFFERS))
    code, b, s, t = (f.emit(f"inttoptr i64 {v} to ptr", "p") for v in (
        f.load(f["record"], layout.KERNEL), buffers, f.load(f["record"], layout.SCALARS),
        f["scratch"]))
    f.emit(f"call void {code}(ptr {b}, ptr {s}, i64 {f['low']}, i64 {f['high']}, ptr {t})")
    f.ret(0)
    return f


def _update_moves() -> IRFunction:
    """Recompute the pointers of slots that depend on loops, for the current iteration."""
    f = IRFunction("move", ("program", "block", "pointers", "moves", "count"))
    block, move_ptr = f["block"], f.variable(f["moves"])
    size = f.mul(f.add(f.mul(f.load(f["program"], layout.DEPTH), 2), 3), 8)  # alternative's bytes
    with f.count(f["count"]):
        move = move_ptr.get()
        swaps, chosen, alternatives = f.load(move, 1), f.variable(0), f.variable(1)
        with f.count(swaps) as i:
            register = f.load(f.word_address(move, i), 2)
            odd = f.binary("and", f.load(f.word_address(block, register)), 1)
            chosen.set(f.add(chosen.get(), f.mul(odd, alternatives.get())))
            alternatives.set(f.mul(alternatives.get(), 2))
        first = f.word_address(f.word_address(move, swaps), 2)
        alternative = f.add(first, f.mul(chosen.get(), size))
        pointer = f.variable(f.add(f.load(f.word_address(block, f.load(alternative))),
                                   f.load(alternative, 1)))
        with f.count(f.load(alternative, 2)) as i:
            term = f.word_address(alternative, f.mul(i, 2))
            steps = f.load(f.word_address(block, f.load(term, 3)))
            pointer.set(f.add(pointer.get(), f.mul(steps, f.load(term, 4))))
        f.store(f["pointers"], f.load(move), pointer.get())
        move_ptr.set(f.add(first, f.mul(alternatives.get(), size)))
    f.ret(0)
    return f


def _execute_control() -> IRFunction:
    """Execute a control-flow record (loop or branch); return the index of the next record."""
    f = IRFunction("go", ("program", "block", "pointers", "record", "number"))
    record = f["record"]
    kind, target = f.load(record), f.load(record, layout.TARGET)
    with f.if_then(f.compare("ule", kind, layout.NEXT)):
        register = f.word_address(f["block"], f.load(record, layout.REGISTER))
        finished = f.variable(0)
        with f.if_then(f.compare("eq", kind, layout.NEXT)):
            finished.set(f.add(f.load(register), 1))
        f.store(register, 0, finished.get())
        f.call("move", f["program"], f["block"], f["pointers"], f.load(record, layout.MOVES),
               f.load(record, layout.COUNT))
        continues = f.compare("ult", finished.get(), f.load(record, layout.TRIPS))
        next_kind = f.emit(f"select i1 {continues}, i64 {layout.NEXT}, i64 {layout.LOOP}", "s")
        with f.if_then(f.compare("eq", kind, next_kind)):
            f.ret(target)
        f.ret(f.add(f["number"], 1))
    with f.if_then(f.compare("eq", kind, layout.TEST)):
        pointer = f.load(f.word_address(f["pointers"], f.load(record, layout.SLOT)))
        with f.if_then(f.compare("eq", f.load_signed(pointer, 8), 0)):
            f.ret(target)
        f.ret(f.add(f["number"], 1))
    with f.if_then(f.compare("eq", kind, layout.SWITCH)):
        pointer = f.load(f.word_address(f["pointers"], f.load(record, layout.SLOT)))
        which, last = f.load_signed(pointer, 32), f.sub(f.load(record, layout.BRANCHES), 1)
        with f.if_then(f.compare("slt", which, 0)):
            f.ret(f.load(target))
        f.ret(f.load(f.word_address(target, f.umin(which, last))))
    f.ret(target)
    return f


def _run(mode: int) -> IRFunction:
    """Run a submission on the calling thread for at most ``steps`` loop steps.

    Returns 1 if the rest is left for the workers, else 0. ``queue``: the queue whose workers help
    (the caller is the leader), or 0.
    """
    f = IRFunction("run", ("program", "block", "steps", "queue"))
    f.emit("fence acquire")  # the caller has read the timeline
    saved_mode = f.call("read_mode")
    f.call("write_mode", mode)
    pointers = f.call("resolve", f["program"], f["block"])
    scratch, records = f.load(f["block"], layout.SCRATCH), f.load(f["program"], layout.RECORDS)
    end, position, steps_left = f.load(f["program"],
                                       layout.COMMANDS), f.variable(0), f.variable(f["steps"])
    with f.loop():
        i = position.get()
        with f.if_then(f.compare("uge", i, end)):
            f.leave()
        record = f.word_address(records, f.mul(i, layout.RECORD_WORDS))
        with f.if_then(f.compare("ne", f.load(record), layout.EXEC)):
            position.set(f.call("go", f["program"], f["block"], pointers, record, i))
            with f.if_then(f.compare("eq", f.load(record), layout.NEXT)):
                steps_left.set(f.sub(steps_left.get(), 1))
                with f.if_then(f.compare("eq", steps_left.get(), 0)):
                    f.store(f["block"], layout.RESUME_AT, position.get())
                    f.call("write_mode", saved_mode)
                    f.ret(1)
            f.continue_loop()
        position.set(f.add(i, 1))
        with f.if_then(f.compare("ne", f["queue"], 0)):
            chunks = f.call("chunks", f["queue"], record)
            with f.if_then(f.compare("ugt", chunks, 1)):
                f.call("open_job", f["queue"], record, pointers, _NEVER_ABORTED, scratch)
                f.call("ended", f["queue"], record)
                f.continue_loop()
        f.call("kernel", record, pointers, 0, f.load(record, layout.ITERATIONS), scratch)
        with f.if_then(f.compare("ne", f["queue"], 0)):
            f.call("ended", f["queue"], record)
    f.call("write_mode", saved_mode)
    f.ret(0)
    return f


# ---- what other threads ask of the queue --------------------------------------------------------


def _submit() -> IRFunction:
    """Append (program, block) to the ring buffer; return its timeline value, or 0 if it is full."""
    f = IRFunction("submit", ("queue", "program", "block"))
    queue = f["queue"]
    lock(f, queue)
    tail = f.load(queue, layout.SUBMITTED)
    in_use = f.sub(tail, f.load(queue, layout.COMPLETED, "acquire"))
    with f.if_then(f.compare("uge", in_use, layout.CAPACITY)):
        unlock(f, queue)
        f.ret(0)
    entry = f.word_address(queue, f.mul(f.binary("urem", tail, layout.CAPACITY), 2))
    f.store(entry, layout.RING, f["program"])
    f.store(entry, layout.RING + 1, f["block"])
    value = f.add(tail, 1)
    f.store(queue, layout.SUBMITTED, value, "release")
    with f.if_then(f.compare("ne", f.load(queue, layout.LEADER_SLEEPS), 0)):
        call_c(f, "pthread_cond_signal", f.word_address(queue, layout.SUBMITTED_COND))
    unlock(f, queue)
    f.ret(value)
    return f


def _wait() -> IRFunction:
    """Sleep until a timeline value or the timeout is reached; return 1 for the former, else 0."""
    f = IRFunction("wait", ("queue", "value", "nanoseconds"))
    queue, reached = f["queue"], f.variable(0)
    with f.if_then(f.compare("uge", f.load(queue, layout.COMPLETED, "acquire"), f["value"])):
        f.ret(1)
    deadline = f.alloca_bytes(16)
    call_c(f, "clock_gettime", 0, deadline)  # 0: CLOCK_REALTIME, the default of condition variables
    nanoseconds = f.add(f.load(deadline, 1), f["nanoseconds"])
    second = 1_000_000_000
    f.store(deadline, 0, f.add(f.load(deadline), f.binary("udiv", nanoseconds, second)))
    f.store(deadline, 1, f.binary("urem", nanoseconds, second))
    lock(f, queue)
    f.fetch_add(queue, layout.WAITERS, 1)
    with f.loop():
        completed = f.load(queue, layout.COMPLETED, "seq_cst")
        with f.if_then(f.compare("uge", completed, f["value"])):
            reached.set(1)
            f.leave()
        timed_out = call_c(f, "pthread_cond_timedwait", f.word_address(queue, layout.FINISHED),
                           f.word_address(queue, layout.MUTEX), deadline)
        with f.if_then(f.emit(f"icmp ne i32 {timed_out}, 0", "c")):
            f.leave()
    f.fetch_add(queue, layout.WAITERS, -1)
    unlock(f, queue)
    f.ret(reached.get())
    return f


def _abort() -> IRFunction:
    """Skip all work submitted so far; return the timeline value of the last of it."""
    f = IRFunction("abort", ("queue",))
    lock(f, f["queue"])
    last = f.load(f["queue"], layout.SUBMITTED)
    f.store(f["queue"], layout.ABORT, last, "release")
    unlock(f, f["queue"])
    f.ret(last)
    return f


def _stop() -> IRFunction:
    """Let the workers return once the ring buffer is empty."""
    f = IRFunction("stop", ("queue",))
    lock(f, f["queue"])
    f.store(f["queue"], layout.STOP, 1, "seq_cst")
    for condition in (layout.SUBMITTED_COND, layout.JOB_OPENED):
        call_c(f, "pthread_cond_broadcast", f.word_address(f["queue"], condition))
    unlock(f, f["queue"])
    f.ret(0)
    return f
