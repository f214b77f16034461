"""The native part of the cpu queue, as LLVM IR: resolve, run, submit, wait and the worker loops.

No Python runs between the kernels of a submission. layout.py defines the data that it interprets,
workers.py what the threads do.
"""

from __future__ import annotations

import sys

from fnx.backends.cpu import call_entry, layout, native_call, workers
from fnx.backends.cpu.workers import call_c, lock, unlock
from fnx.backends.llvm.ir_builder import IRFunction, ir_function

_PTHREAD = {"pthread_mutex_lock": 1, "pthread_mutex_trylock": 1, "pthread_mutex_unlock": 1,
            "pthread_cond_wait": 2, "pthread_cond_timedwait": 3, "pthread_cond_signal": 1,
            "pthread_cond_broadcast": 1, "clock_gettime": 2}  # name: number of arguments
_AFFINITY = {"sched_getcpu": 0, "sched_getaffinity": 3, "pthread_setaffinity_np": 3}
HAS_AFFINITY = sys.platform == "linux"  # whether threads can query and set their processors
IMPORTS = (*_PTHREAD, *(_AFFINITY if HAS_AFFINITY else ()), *call_entry.PYTHON_API)
EXPORTS = ("run", "submit", "wait", "abort", "stop", "leader_loop", "worker_loop", "execute",
           "enter", "call", "set_constants")

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


def text(triple: str) -> str:
    """Return the module text: ``EXPORTS`` as functions of i64."""
    processor = "x86_64" if triple.startswith("x86_64") else "aarch64"
    declarations, pause, mode = _PROCESSORS[processor]
    for name, arity in (_PTHREAD | _AFFINITY).items():
        declarations += f"declare i32 @{name}({', '.join(['i64'] * arity)})\n"
    declarations += call_entry.declarations() + native_call.GLOBALS
    functions = [_read_mode(processor=processor), _write_mode(processor=processor), _resolve(),
                 _kernel(), _update_moves(), _execute_control(), _run(mode=mode), _submit(),
                 _wait(), _abort(), _stop(),
                 *[build() for build in (*call_entry.FUNCTIONS, *native_call.FUNCTIONS)],
                 *workers.functions(pause, mode, HAS_AFFINITY)]
    return declarations + "\n".join(f.text() for f in functions)


# ---- the float mode ---------------------------------------------------------------------------


@ir_function
def _read_mode(f: IRFunction, *, processor: str) -> None:
    if processor == "x86_64":
        space = f.alloca_bytes(8)
        f.store(space, 0, 0)
        p = f.emit(f"inttoptr i64 {space} to ptr", "p")
        f.emit(f"call void @llvm.x86.sse.stmxcsr(ptr {p})")
        f.ret(f.load(space))
    else:
        f.ret(f.emit("call i64 @llvm.aarch64.get.fpcr()", "m"))


@ir_function
def _write_mode(f: IRFunction, mode: str, *, processor: str) -> None:
    if processor == "x86_64":
        space = f.alloca_bytes(8)
        f.store(space, 0, mode)
        p = f.emit(f"inttoptr i64 {space} to ptr", "p")
        f.emit(f"call void @llvm.x86.sse.ldmxcsr(ptr {p})")
    else:
        f.emit(f"call void @llvm.aarch64.set.fpcr(i64 {mode})")
    f.ret(0)


# ---- one submission on one thread -------------------------------------------------------------


@ir_function
def _resolve(f: IRFunction, program: str, block: str) -> None:
    """Resolve slots (argument, offset) to pointers in the block; return their address."""
    table = f.load(program, layout.SLOT_TABLE)
    pointers = f.word_address(block, f.load(program, layout.RESOLVED))
    with f.count(f.load(program, layout.SLOTS)) as i:
        entry = f.word_address(table, f.mul(i, 2))
        base = f.load(block, f.load(entry))
        f.store(pointers, i, f.add(base, f.load(entry, 1)))
    f.ret(pointers)


@ir_function
def _kernel(f: IRFunction, record: str, pointers: str, low: str, high: str, scratch: str) -> None:
    """Call the kernel of a record on the iterations low..high."""
    buffers = f.word_address(pointers, f.load(record, layout.BUFFERS))
    code, b, s, t = (f.emit(f"inttoptr i64 {v} to ptr", "p") for v in (
        f.load(record, layout.KERNEL), buffers, f.load(record, layout.SCALARS),
        scratch))
    f.emit(f"call void {code}(ptr {b}, ptr {s}, i64 {low}, i64 {high}, ptr {t})")


@ir_function
def _update_moves(f: IRFunction, program: str, block: str, pointers: str, moves: str,
                  count: str) -> None:
    """Recompute the pointers of slots that depend on loops, for the current iteration."""
    move_ptr = f.variable(moves)
    size = f.mul(f.add(f.mul(f.load(program, layout.DEPTH), 2), 3), 8)  # alternative's bytes
    with f.count(count):
        move = move_ptr.get()
        copies, swaps = f.load(move), f.load(move, 1)
        slots, chosen, alternatives = f.word_address(move, 2), f.variable(0), f.variable(1)
        registers = f.word_address(slots, copies)
        with f.count(swaps) as i:
            register = f.load(f.word_address(registers, i))
            odd = f.binary("and", f.load(f.word_address(block, register)), 1)
            chosen.set(f.add(chosen.get(), f.mul(odd, alternatives.get())))
            alternatives.set(f.mul(alternatives.get(), 2))
        first = f.word_address(registers, swaps)
        alternative = f.add(first, f.mul(chosen.get(), size))
        pointer = f.variable(f.add(f.load(f.word_address(block, f.load(alternative))),
                                   f.load(alternative, 1)))
        with f.count(f.load(alternative, 2)) as i:
            term = f.word_address(alternative, f.mul(i, 2))
            steps = f.load(f.word_address(block, f.load(term, 3)))
            pointer.set(f.add(pointer.get(), f.mul(steps, f.load(term, 4))))
        with f.count(copies) as i:
            f.store(pointers, f.load(f.word_address(slots, i)), pointer.get())
        move_ptr.set(f.add(first, f.mul(alternatives.get(), size)))


@ir_function
def _execute_control(f: IRFunction, program: str, block: str, pointers: str, record: str,
                     number: str) -> None:
    """Execute a control-flow record (loop or branch); return the index of the next record."""
    kind, target = f.load(record), f.load(record, layout.TARGET)
    with f.when("ule", kind, layout.NEXT):
        register = f.word_address(block, f.load(record, layout.REGISTER))
        finished = f.variable(0)
        with f.when("eq", kind, layout.NEXT):
            finished.set(f.add(f.load(register), 1))
        f.store(register, 0, finished.get())
        f.call("update_moves", program, block, pointers, f.load(record, layout.MOVES),
               f.load(record, layout.COUNT))
        continues = f.compare("ult", finished.get(), f.load(record, layout.TRIPS))
        next_kind = f.emit(f"select i1 {continues}, i64 {layout.NEXT}, i64 {layout.LOOP}", "s")
        f.ret_if(target, "eq", kind, next_kind)
        f.ret(f.add(number, 1))
    with f.when("eq", kind, layout.TEST):
        pointer = f.load(f.word_address(pointers, f.load(record, layout.SLOT)))
        f.ret_if(target, "eq", f.load_signed(pointer, 8), 0)
        f.ret(f.add(number, 1))
    with f.when("eq", kind, layout.SWITCH):
        pointer = f.load(f.word_address(pointers, f.load(record, layout.SLOT)))
        which, last = f.load_signed(pointer, 32), f.sub(f.load(record, layout.BRANCHES), 1)
        with f.when("slt", which, 0):
            f.ret(f.load(target))
        f.ret(f.load(f.word_address(target, f.umin(which, last))))
    f.ret(target)


@ir_function
def _run(f: IRFunction, program: str, block: str, steps: str, queue: str, *, mode: int) -> None:
    """Run a submission on the calling thread for at most ``steps`` loop steps.

    Returns 1 if the rest is left for the workers, else 0. ``queue``: the queue whose workers help
    (the caller is the leader), or 0.
    """
    f.emit("fence acquire")  # the caller has read the timeline
    saved_mode = f.call("read_mode")
    f.call("write_mode", mode)
    pointers = f.call("resolve", program, block)
    scratch, records = f.load(block, layout.SCRATCH), f.load(program, layout.RECORDS)
    end, position, steps_left = f.load(program,
                                       layout.COMMANDS), f.variable(0), f.variable(steps)
    with f.loop():
        i = position.get()
        with f.when("uge", i, end):
            f.leave()
        record = f.word_address(records, f.mul(i, layout.RECORD_WORDS))
        with f.when("ne", f.load(record), layout.EXEC):
            position.set(f.call("execute_control", program, block, pointers, record, i))
            with f.when("eq", f.load(record), layout.NEXT):
                steps_left.set(f.sub(steps_left.get(), 1))
                with f.when("eq", steps_left.get(), 0):
                    f.store(block, layout.RESUME_AT, position.get())
                    f.call("write_mode", saved_mode)
                    f.ret(1)
            f.continue_loop()
        position.set(f.add(i, 1))
        with f.when("ne", queue, 0):
            chunks = f.call("chunk_count", queue, record)
            with f.when("ugt", chunks, 1):
                f.call("open_job", queue, record, pointers, _NEVER_ABORTED, scratch)
                f.call("note_shared_end", queue, record)
                f.continue_loop()
        f.call("kernel", record, pointers, 0, f.load(record, layout.ITERATIONS), scratch)
        with f.when("ne", queue, 0):
            f.call("note_shared_end", queue, record)
    f.call("write_mode", saved_mode)
    f.ret(0)


# ---- what other threads ask of the queue --------------------------------------------------------


@ir_function
def _submit(f: IRFunction, queue: str, program: str, block: str) -> None:
    """Append (program, block) to the ring buffer; return its timeline value, or 0 if it is full."""
    lock(f, queue)
    tail = f.load(queue, layout.SUBMITTED)
    in_use = f.sub(tail, f.load(queue, layout.COMPLETED, "acquire"))
    with f.when("uge", in_use, layout.CAPACITY):
        unlock(f, queue)
        f.ret(0)
    entry = f.word_address(queue, f.mul(f.binary("urem", tail, layout.CAPACITY), 2))
    f.store(entry, layout.RING, program)
    f.store(entry, layout.RING + 1, block)
    value = f.add(tail, 1)
    f.store(queue, layout.SUBMITTED, value, "release")
    with f.when("ne", f.load(queue, layout.LEADER_SLEEPS), 0):
        call_c(f, "pthread_cond_signal", f.word_address(queue, layout.SUBMITTED_COND))
    unlock(f, queue)
    f.ret(value)


@ir_function
def _wait(f: IRFunction, queue: str, value: str, nanoseconds: str) -> None:
    """Sleep until a timeline value or the timeout is reached; return 1 for the former, else 0."""
    reached = f.variable(0)
    f.ret_if(1, "uge", f.load(queue, layout.COMPLETED, "acquire"), value)
    deadline = f.alloca_bytes(16)
    call_c(f, "clock_gettime", 0, deadline)  # 0: CLOCK_REALTIME, the default of condition variables
    nanoseconds = f.add(f.load(deadline, 1), nanoseconds)
    second = 1_000_000_000
    f.store(deadline, 0, f.add(f.load(deadline), f.binary("udiv", nanoseconds, second)))
    f.store(deadline, 1, f.binary("urem", nanoseconds, second))
    lock(f, queue)
    f.fetch_add(queue, layout.WAITERS, 1)
    with f.loop():
        completed = f.load(queue, layout.COMPLETED, "seq_cst")
        with f.when("uge", completed, value):
            reached.set(1)
            f.leave()
        timed_out = call_c(f, "pthread_cond_timedwait", f.word_address(queue, layout.FINISHED),
                           f.word_address(queue, layout.MUTEX), deadline)
        with f.when("ne", timed_out, 0, 32):
            f.leave()
    f.fetch_add(queue, layout.WAITERS, -1)
    unlock(f, queue)
    f.ret(reached.get())


@ir_function
def _abort(f: IRFunction, queue: str) -> None:
    """Skip all work submitted so far; return the timeline value of the last of it."""
    lock(f, queue)
    last = f.load(queue, layout.SUBMITTED)
    f.store(queue, layout.ABORT, last, "release")
    unlock(f, queue)
    f.ret(last)


@ir_function
def _stop(f: IRFunction, queue: str) -> None:
    """Let the workers return once the ring buffer is empty."""
    lock(f, queue)
    f.store(queue, layout.STOP, 1, "seq_cst")
    for condition in (layout.SUBMITTED_COND, layout.JOB_OPENED):
        call_c(f, "pthread_cond_broadcast", f.word_address(queue, condition))
    unlock(f, queue)
