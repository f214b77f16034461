"""The native half of the cpu queue: resolve, run, submit, wait and the workers' loops, as LLVM IR.

No Python runs between the kernels of a submission. Memory is words of 8 bytes:

    program   header of a command buffer, immutable: counts, slot table, records
    record    EXEC: kernel address, first slot, scalars, iterations, chunk, chunks
              LOOP: register, trips, moves, how many, the record behind
              NEXT: register, trips, moves, how many, the first record inside
              TEST: slot of a bool, the record to go to where it is false
              CHOOSE: slot of an int32, how many branches, where their first records are
              JUMP: the record to go to
    move      a slot that a loop moves: slot, registers whose parity chooses among the places
              that follow: base, offset, terms (register, bytes an iteration)
    block     one call's: scratch, arena, the record to go on at (0: nothing was done yet),
              argument pointers, a register a loop that counts its iterations, then the resolved
              slots
    queue     ring of (program, block), timeline values, the open job, pthread objects

Worker 0 leads: it takes submissions in order, walks their commands and opens a *job* for each
that has several chunks. The ticket word is (job number << 32 | chunks left): a worker takes a
chunk by compare-and-swap, so one that is late can never take a chunk of another job, and a
job's fields change only while its ticket shows no chunks. Sleepers announce themselves before
they look a last time, publishers look for sleepers after publishing (both sequentially
consistent), so no wake-up is lost. The abort word holds a timeline value: submissions up to it
are skipped, tested before each command and chunk.
"""

from __future__ import annotations

from fnx.backends.llvm.ir_builder import IRFunction, IRValue, Variable

# program
COMMANDS, SLOTS, TABLE, RECORDS, RESOLVED, DEPTH, PROGRAM_WORDS = range(7)
# record: its kind, then words of the kind
EXEC, LOOP, NEXT, TEST, CHOOSE, JUMP = range(6)
KIND, KERNEL, BUFFERS, SCALARS, ITERATIONS, CHUNK, CHUNKS, RECORD_WORDS = range(8)
REGISTER, TRIPS, MOVES, COUNT, TARGET = range(1, 6)
SLOT, BRANCHES = 1, 2
# block
SCRATCH, ARENA, START, ARGUMENTS = range(4)
# worker
QUEUE, PRIVATE, WORKER_WORDS = 0, 1, 8
# queue: words that different threads write are on cache lines of their own (16 words: pairs
# of lines are prefetched together)
SUBMITTED, COMPLETED, ABORT, STOP, TICKET, DONE = 0, 16, 32, 40, 48, 64
JOB_RECORD, JOB_SLOTS, JOB_NUMBER, JOB_TIME = 80, 81, 82, 83
SLEEPERS, LEAD_SLEEPS, LEAD_WAITS, WAITERS, COMMAND, RETURNED = range(96, 102)
MUTEX, WORK, HELP, JOINED, FINISHED, RING = 112, 128, 144, 160, 176, 192
CAPACITY = 64
QUEUE_WORDS = RING + 2 * CAPACITY

SPINS = 1000  # rounds of ``pause`` (some 10 to 50 us) before a worker sleeps
_LEFT = 0xFFFFFFFF
_THREADS = {"pthread_mutex_lock": 1, "pthread_mutex_unlock": 1, "pthread_cond_wait": 2,
            "pthread_cond_timedwait": 3, "pthread_cond_signal": 1, "pthread_cond_broadcast": 1,
            "clock_gettime": 2}  # name: number of arguments
IMPORTS = tuple(_THREADS)
EXPORTS = ("run", "submit", "wait", "abort", "stop", "lead", "help", "execute")

# Processor: (declarations, pause, read the float mode, write it, default mode). The default
# mode rounds to nearest and keeps subnormal numbers, whatever other libraries have set.
_PROCESSORS = {
    "x86_64": ("declare void @llvm.x86.sse2.pause()\ndeclare void @llvm.x86.sse.stmxcsr(ptr)\n"
               "declare void @llvm.x86.sse.ldmxcsr(ptr)\n",
               "call void @llvm.x86.sse2.pause()", 0x1F80),
    "aarch64": ("declare void @llvm.aarch64.hint(i32)\ndeclare i64 @llvm.aarch64.get.fpcr()\n"
                "declare void @llvm.aarch64.set.fpcr(i64)\n",
                "call void @llvm.aarch64.hint(i32 1)", 0),
}


def _processor(triple: str) -> str:
    return "x86_64" if triple.startswith("x86_64") else "aarch64"


def text(triple: str) -> str:
    """The module: ``EXPORTS`` as functions of i64."""
    processor = _processor(triple)
    declarations, pause, mode = _PROCESSORS[processor]
    for name, arity in _THREADS.items():
        declarations += f"declare i32 @{name}({', '.join(['i64'] * arity)})\n"
    functions = [_read_mode(processor), _write_mode(processor), _resolve(), _kernel(), _move(),
                 _go(), _run(mode), _submit(), _wait(), _abort(), _stop(), _take(),
                 _open_job(pause), _execute(), _lead(pause, mode), _help(pause, mode)]
    return declarations + "\n".join(f.text() for f in functions)


# ---- the float mode ---------------------------------------------------------------------------


def _read_mode(processor: str) -> IRFunction:
    f = IRFunction("read_mode", ())
    if processor == "x86_64":
        space = f.space(8)
        f.store(space, 0, 0)
        p = f.line(f"inttoptr i64 {space} to ptr", "p")
        f.line(f"call void @llvm.x86.sse.stmxcsr(ptr {p})")
        f.give(f.load(space))
    else:
        f.give(f.line("call i64 @llvm.aarch64.get.fpcr()", "m"))
    return f


def _write_mode(processor: str) -> IRFunction:
    f = IRFunction("write_mode", ("mode",))
    if processor == "x86_64":
        space = f.space(8)
        f.store(space, 0, f["mode"])
        p = f.line(f"inttoptr i64 {space} to ptr", "p")
        f.line(f"call void @llvm.x86.sse.ldmxcsr(ptr {p})")
    else:
        f.line(f"call void @llvm.aarch64.set.fpcr(i64 {f['mode']})")
    f.give(0)
    return f


# ---- one submission on one thread -------------------------------------------------------------


def _resolve() -> IRFunction:
    """Slots (argument, offset) become pointers in the block; gives their address."""
    f = IRFunction("resolve", ("program", "block"))
    table = f.load(f["program"], TABLE)
    pointers = f.word(f["block"], f.load(f["program"], RESOLVED))
    with f.count(f.load(f["program"], SLOTS)) as i:
        entry = f.word(table, f.mul(i, 2))
        base = f.load(f["block"], f.load(entry))
        f.store(pointers, i, f.add(base, f.load(entry, 1)))
    f.give(pointers)
    return f


def _kernel() -> IRFunction:
    """Call the kernel of a record on iterations low..high."""
    f = IRFunction("kernel", ("record", "pointers", "low", "high", "scratch"))
    buffers = f.word(f["pointers"], f.load(f["record"], BUFFERS))
    code, b, s, t = (f.line(f"inttoptr i64 {v} to ptr", "p") for v in (
        f.load(f["record"], KERNEL), buffers, f.load(f["record"], SCALARS), f["scratch"]))
    f.line(f"call void {code}(ptr {b}, ptr {s}, i64 {f['low']}, i64 {f['high']}, ptr {t})")
    f.give(0)
    return f


def _move() -> IRFunction:
    """The pointers of slots that follow loops, in this iteration."""
    f = IRFunction("move", ("program", "block", "pointers", "moves", "count"))
    block, at = f["block"], f.variable(f["moves"])
    size = f.mul(f.add(f.mul(f.load(f["program"], DEPTH), 2), 3), 8)  # of a place, in bytes
    with f.count(f["count"]):
        move = at.get()
        swaps, chosen, places = f.load(move, 1), f.variable(0), f.variable(1)
        with f.count(swaps) as i:
            register = f.load(f.word(move, i), 2)
            odd = f.binary("and", f.load(f.word(block, register)), 1)
            chosen.set(f.add(chosen.get(), f.mul(odd, places.get())))
            places.set(f.mul(places.get(), 2))
        first = f.word(f.word(move, swaps), 2)
        place = f.add(first, f.mul(chosen.get(), size))
        pointer = f.variable(f.add(f.load(f.word(block, f.load(place))), f.load(place, 1)))
        with f.count(f.load(place, 2)) as i:
            term = f.word(place, f.mul(i, 2))
            steps = f.load(f.word(block, f.load(term, 3)))
            pointer.set(f.add(pointer.get(), f.mul(steps, f.load(term, 4))))
        f.store(f["pointers"], f.load(move), pointer.get())
        at.set(f.add(first, f.mul(places.get(), size)))
    f.give(0)
    return f


def _go() -> IRFunction:
    """Do what a record of a loop or a branch says; gives the number of the next record."""
    f = IRFunction("go", ("program", "block", "pointers", "record", "number"))
    record = f["record"]
    kind, target = f.load(record), f.load(record, TARGET)
    with f.when(f.compare("ule", kind, NEXT)):
        register = f.word(f["block"], f.load(record, REGISTER))
        ended = f.variable(0)
        with f.when(f.compare("eq", kind, NEXT)):
            ended.set(f.add(f.load(register), 1))
        f.store(register, 0, ended.get())
        f.call("move", f["program"], f["block"], f["pointers"], f.load(record, MOVES),
               f.load(record, COUNT))
        goes_on = f.compare("ult", ended.get(), f.load(record, TRIPS))
        into = f.line(f"select i1 {goes_on}, i64 {NEXT}, i64 {LOOP}", "s")
        with f.when(f.compare("eq", kind, into)):
            f.give(target)
        f.give(f.add(f["number"], 1))
    with f.when(f.compare("eq", kind, TEST)):
        pointer = f.load(f.word(f["pointers"], f.load(record, SLOT)))
        with f.when(f.compare("eq", f.small(pointer, 8), 0)):
            f.give(target)
        f.give(f.add(f["number"], 1))
    with f.when(f.compare("eq", kind, CHOOSE)):
        pointer = f.load(f.word(f["pointers"], f.load(record, SLOT)))
        which, last = f.small(pointer, 32), f.sub(f.load(record, BRANCHES), 1)
        with f.when(f.compare("slt", which, 0)):
            f.give(f.load(target))
        f.give(f.load(f.word(target, f.smaller(which, last))))
    f.give(target)
    return f


def _run(mode: int) -> IRFunction:
    """A submission on the calling thread, of at most so many steps of loops; gives whether some
    are left for the workers."""
    f = IRFunction("run", ("program", "block", "steps"))
    f.line("fence acquire")  # the caller has looked at the timeline
    before = f.call("read_mode")
    f.call("write_mode", mode)
    pointers = f.call("resolve", f["program"], f["block"])
    scratch, records = f.load(f["block"], SCRATCH), f.load(f["program"], RECORDS)
    end, at, left = f.load(f["program"], COMMANDS), f.variable(0), f.variable(f["steps"])
    with f.loop():
        i = at.get()
        with f.when(f.compare("uge", i, end)):
            f.leave()
        record = f.word(records, f.mul(i, RECORD_WORDS))
        with f.when(f.compare("ne", f.load(record), EXEC)):
            at.set(f.call("go", f["program"], f["block"], pointers, record, i))
            with f.when(f.compare("eq", f.load(record), NEXT)):
                left.set(f.sub(left.get(), 1))
                with f.when(f.compare("eq", left.get(), 0)):
                    f.store(f["block"], START, at.get())
                    f.call("write_mode", before)
                    f.give(1)
            f.again()
        f.call("kernel", record, pointers, 0, f.load(record, ITERATIONS), scratch)
        at.set(f.add(i, 1))
    f.call("write_mode", before)
    f.give(0)
    return f


# ---- what other threads ask of the queue --------------------------------------------------------


def _c(f: IRFunction, name: str, *arguments: IRValue) -> str:
    return f.line(f"call i32 @{name}({', '.join(f'i64 {a}' for a in arguments)})", "r")


def _lock(f: IRFunction, queue: str) -> None:
    _c(f, "pthread_mutex_lock", f.word(queue, MUTEX))


def _unlock(f: IRFunction, queue: str) -> None:
    _c(f, "pthread_mutex_unlock", f.word(queue, MUTEX))


def _sleep(f: IRFunction, queue: str, condition: int) -> None:
    _c(f, "pthread_cond_wait", f.word(queue, condition), f.word(queue, MUTEX))


def _submit() -> IRFunction:
    """Append (program, block) to the ring; gives its timeline value, 0 where the ring is full."""
    f = IRFunction("submit", ("queue", "program", "block"))
    queue = f["queue"]
    _lock(f, queue)
    tail = f.load(queue, SUBMITTED)
    used = f.sub(tail, f.load(queue, COMPLETED, "acquire"))
    with f.when(f.compare("uge", used, CAPACITY)):
        _unlock(f, queue)
        f.give(0)
    entry = f.word(queue, f.mul(f.binary("urem", tail, CAPACITY), 2))
    f.store(entry, RING, f["program"])
    f.store(entry, RING + 1, f["block"])
    value = f.add(tail, 1)
    f.store(queue, SUBMITTED, value, "release")
    with f.when(f.compare("ne", f.load(queue, LEAD_SLEEPS), 0)):
        _c(f, "pthread_cond_signal", f.word(queue, WORK))
    _unlock(f, queue)
    f.give(value)
    return f


def _wait() -> IRFunction:
    """Sleep until a timeline value is reached or some time is over; gives whether it was."""
    f = IRFunction("wait", ("queue", "value", "nanoseconds"))
    queue, reached = f["queue"], f.variable(0)
    with f.when(f.compare("uge", f.load(queue, COMPLETED, "acquire"), f["value"])):
        f.give(1)
    until = f.space(16)
    _c(f, "clock_gettime", 0, until)  # 0: CLOCK_REALTIME, what a condition's time is by default
    nanoseconds = f.add(f.load(until, 1), f["nanoseconds"])
    second = 1_000_000_000
    f.store(until, 0, f.add(f.load(until), f.binary("udiv", nanoseconds, second)))
    f.store(until, 1, f.binary("urem", nanoseconds, second))
    _lock(f, queue)
    f.fetch_add(queue, WAITERS, 1)
    with f.loop():
        completed = f.load(queue, COMPLETED, "seq_cst")
        with f.when(f.compare("uge", completed, f["value"])):
            reached.set(1)
            f.leave()
        late = _c(f, "pthread_cond_timedwait", f.word(queue, FINISHED), f.word(queue, MUTEX), until)
        with f.when(f.line(f"icmp ne i32 {late}, 0", "c")):
            f.leave()
    f.fetch_add(queue, WAITERS, -1)
    _unlock(f, queue)
    f.give(reached.get())
    return f


def _abort() -> IRFunction:
    """Skip all that is submitted so far; gives the timeline value of the last of it."""
    f = IRFunction("abort", ("queue",))
    _lock(f, f["queue"])
    last = f.load(f["queue"], SUBMITTED)
    f.store(f["queue"], ABORT, last, "release")
    _unlock(f, f["queue"])
    f.give(last)
    return f


def _stop() -> IRFunction:
    """Let the workers return once the ring is empty."""
    f = IRFunction("stop", ("queue",))
    _lock(f, f["queue"])
    f.store(f["queue"], STOP, 1, "seq_cst")
    for condition in (WORK, HELP):
        _c(f, "pthread_cond_broadcast", f.word(f["queue"], condition))
    _unlock(f, f["queue"])
    f.give(0)
    return f


# ---- workers ----------------------------------------------------------------------------------


def _take() -> IRFunction:
    """Take and run chunks of the open job until none is left."""
    f = IRFunction("take", ("queue", "scratch"))
    queue = f["queue"]
    with f.loop():
        ticket = f.load(queue, TICKET, "acquire")
        left = f.binary("and", ticket, _LEFT)
        with f.when(f.compare("eq", left, 0)):
            f.give(0)
        record, pointers, time = (f.load(queue, word, "monotonic")
                                  for word in (JOB_RECORD, JOB_SLOTS, JOB_TIME))
        with f.when(f.swap_if(queue, TICKET, ticket, f.sub(ticket, 1))):
            chunks, chunk = f.load(record, CHUNKS), f.load(record, CHUNK)
            low = f.mul(f.sub(chunks, left), chunk)
            high = f.smaller(f.add(low, chunk), f.load(record, ITERATIONS))
            with f.when(f.compare("ult", f.load(queue, ABORT, "monotonic"), time)):
                f.call("kernel", record, pointers, low, high, f["scratch"])
            done = f.add(f.fetch_add(queue, DONE, 1), 1)
            last = f.compare("eq", done, chunks)
            with f.when(last), f.when(f.compare("ne", f.load(queue, LEAD_WAITS, "seq_cst"), 0)):
                _lock(f, queue)
                _c(f, "pthread_cond_signal", f.word(queue, JOINED))
                _unlock(f, queue)
    f.give(0)
    return f


def _open_job(pause: str) -> IRFunction:
    """Run one command of several chunks on all workers (called by worker 0)."""
    f = IRFunction("open_job", ("queue", "record", "pointers", "time", "scratch"))
    queue, chunks = f["queue"], f.load(f["record"], CHUNKS)
    for word, value in ((JOB_RECORD, f["record"]), (JOB_SLOTS, f["pointers"]),
                        (JOB_TIME, f["time"])):
        f.store(queue, word, value, "monotonic")
    f.store(queue, DONE, 0, "monotonic")
    number = f.add(f.load(queue, JOB_NUMBER), 1)
    f.store(queue, JOB_NUMBER, number)
    ticket = f.binary("or", f.binary("shl", number, 32), chunks)
    f.store(queue, TICKET, ticket, "seq_cst")
    sleepers = f.load(queue, SLEEPERS, "seq_cst")
    with f.when(f.compare("ne", sleepers, 0)):
        _lock(f, queue)
        with f.count(f.smaller(sleepers, f.sub(chunks, 1))):
            _c(f, "pthread_cond_signal", f.word(queue, HELP))
        _unlock(f, queue)
    f.call("take", queue, f["scratch"])
    spins = f.variable(0)
    with f.loop():
        with f.when(f.compare("eq", f.load(queue, DONE, "acquire"), chunks)):
            f.give(0)
        spins.set(f.add(spins.get(), 1))
        with f.when(f.compare("ugt", spins.get(), SPINS)):
            f.leave()
        f.line(pause)
    _lock(f, queue)
    f.store(queue, LEAD_WAITS, 1, "seq_cst")
    with f.loop():
        with f.when(f.compare("eq", f.load(queue, DONE, "seq_cst"), chunks)):
            f.leave()
        _sleep(f, queue, JOINED)
    f.store(queue, LEAD_WAITS, 0, "seq_cst")
    _unlock(f, queue)
    f.give(0)
    return f


def _execute() -> IRFunction:
    """All commands of one submission."""
    f = IRFunction("execute", ("queue", "program", "block", "time", "scratch"))
    queue = f["queue"]
    at = f.variable(f.load(f["block"], START))
    with f.when(f.compare("eq", at.get(), 0)):
        f.call("resolve", f["program"], f["block"])
    pointers = f.word(f["block"], f.load(f["program"], RESOLVED))
    records, end = f.load(f["program"], RECORDS), f.load(f["program"], COMMANDS)
    with f.loop():
        i = at.get()
        with f.when(f.compare("uge", i, end)):
            f.leave()
        with f.when(f.compare("uge", f.load(queue, ABORT, "monotonic"), f["time"])):
            f.leave()
        f.store(queue, COMMAND, i, "monotonic")
        record = f.word(records, f.mul(i, RECORD_WORDS))
        with f.when(f.compare("ne", f.load(record), EXEC)):
            at.set(f.call("go", f["program"], f["block"], pointers, record, i))
            f.again()
        at.set(f.add(i, 1))
        chunks = f.load(record, CHUNKS)
        with f.when(f.compare("ugt", chunks, 1)):
            f.call("open_job", queue, record, pointers, f["time"], f["scratch"])
        with f.when(f.compare("ule", chunks, 1)):
            f.call("kernel", record, pointers, 0, f.load(record, ITERATIONS), f["scratch"])
    f.give(0)
    return f


def _lead(pause: str, mode: int) -> IRFunction:
    """The loop of worker 0: submissions in order."""
    f = IRFunction("lead", ("worker",))
    queue, spins = f.load(f["worker"], QUEUE), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        head = f.load(queue, COMPLETED)
        with f.when(f.compare("eq", f.load(queue, SUBMITTED, "acquire"), head)):
            _idle(f, queue, spins, pause)
            _lead_sleeps(f, queue, head)
            spins.set(0)
            f.again()
        spins.set(0)
        entry = f.word(queue, f.mul(f.binary("urem", head, CAPACITY), 2))
        time, scratch = f.add(head, 1), f.load(f["worker"], PRIVATE)
        f.call("execute", queue, f.load(entry, RING), f.load(entry, RING + 1), time, scratch)
        f.store(queue, COMPLETED, time, "seq_cst")
        with f.when(f.compare("ne", f.load(queue, WAITERS, "seq_cst"), 0)):
            _lock(f, queue)
            _c(f, "pthread_cond_broadcast", f.word(queue, FINISHED))
            _unlock(f, queue)
    f.give(0)
    return f


def _idle(f: IRFunction, queue: str, spins: Variable, pause: str) -> None:
    """Nothing to do: leave if the queue stops, else spin on, for a while."""
    with f.when(f.compare("ne", f.load(queue, STOP, "acquire"), 0)):
        f.fetch_add(queue, RETURNED, 1)
        f.give(0)
    spins.set(f.add(spins.get(), 1))
    with f.when(f.compare("ule", spins.get(), SPINS)):
        f.line(pause)
        f.again()


def _lead_sleeps(f: IRFunction, queue: str, head: str) -> None:
    _lock(f, queue)
    f.store(queue, LEAD_SLEEPS, 1)
    with f.loop():
        with f.when(f.compare("ne", f.load(queue, SUBMITTED), head)):
            f.leave()
        with f.when(f.compare("ne", f.load(queue, STOP), 0)):
            f.leave()
        _sleep(f, queue, WORK)
    f.store(queue, LEAD_SLEEPS, 0)
    _unlock(f, queue)


def _help(pause: str, mode: int) -> IRFunction:
    """The loop of the other workers: chunks of the open job."""
    f = IRFunction("help", ("worker",))
    queue, spins = f.load(f["worker"], QUEUE), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        left = f.binary("and", f.load(queue, TICKET, "acquire"), _LEFT)
        with f.when(f.compare("ne", left, 0)):
            f.call("take", queue, f.load(f["worker"], PRIVATE))
            spins.set(0)
            f.again()
        _idle(f, queue, spins, pause)
        spins.set(0)
        _helper_sleeps(f, queue)
    f.give(0)
    return f


def _helper_sleeps(f: IRFunction, queue: str) -> None:
    _lock(f, queue)
    f.fetch_add(queue, SLEEPERS, 1)
    with f.loop():
        left = f.binary("and", f.load(queue, TICKET, "seq_cst"), _LEFT)
        with f.when(f.compare("ne", left, 0)):
            f.leave()
        with f.when(f.compare("ne", f.load(queue, STOP, "seq_cst"), 0)):
            f.leave()
        _sleep(f, queue, HELP)
    f.fetch_add(queue, SLEEPERS, -1)
    _unlock(f, queue)
