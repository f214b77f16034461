"""The cpu's worker threads: native loops, as LLVM IR.

The leader walks the commands of a submission and opens a *job* for each that has several chunks.
The leader is worker 0, which takes submissions in order, or the caller of a short submission, who
runs it while nothing is queued (a mutex decides; a caller that does not get it runs alone). The
ticket word holds the job's number, the first remaining chunk and the number of remaining chunks. A
worker takes a chunk by compare-and-swap, so a late worker can never take a chunk of another job,
and the fields of a job change only while its ticket shows no chunks. The leader takes chunks from
the front, the others from the back: so each core has the same part of the data in its caches from
call to call. Sleepers announce themselves before they check for work a last time, publishers check
for sleepers after publishing (both sequentially consistent), so no wake-up is lost. The abort word
holds a timeline value: submissions up to it are skipped; it is tested before each command and
chunk.

An idle worker spins for as long as its last work took, then sleeps, so at most half of the
processor time is wasted. Waking a worker costs more than sharing a short job saves. So a short job
is shared while all workers are awake, and wakes workers only if the last shareable job ended no
longer ago than this one takes. If a worker is delayed in its chunk of a short job until the leader
has to sleep, the leader runs the next short jobs alone: twice as many as after the last such event,
less one for each job since that went well.
"""

from __future__ import annotations

from fnx.backends.cpu import layout
from fnx.backends.llvm.ir_builder import IRFunction, IRValue, Variable

SPIN_NS = 20_000, 200_000  # shortest and longest time in nanoseconds that an idle worker spins
_MAX_SPINS = 5000  # ``pause`` rounds of a leader that waits for the last chunks of a job
# short jobs that the leader runs alone after a sleep: first, most
_MIN_BACKOFF, _MAX_BACKOFF = 32, 1 << 14
_MASK_WORDS = 16  # words in a CPU set
_CHUNK_COUNT_MASK = layout.MOST_CHUNKS


def functions(pause: str, mode: int, has_affinity: bool) -> list[IRFunction]:
    """Return the functions of the workers.

    ``pause`` is the pause instruction, ``mode`` the float mode, ``has_affinity`` whether threads
    can query and set their processors.
    """
    return [_run_chunks(), _reserve_cpu(has_affinity), _wake_workers(), _open_job(pause), _clock(),
            _record(), _chunk_count(), _note_shared_end(), _execute(), _leader_loop(pause, mode),
            _worker_loop(pause, mode)]


# ---- pthreads ---------------------------------------------------------------------------------


def call_c(f: IRFunction, name: str, *arguments: IRValue) -> str:
    return f.emit(f"call i32 @{name}({', '.join(f'i64 {a}' for a in arguments)})", "r")


def lock(f: IRFunction, queue: str) -> None:
    call_c(f, "pthread_mutex_lock", f.word_address(queue, layout.MUTEX))


def unlock(f: IRFunction, queue: str) -> None:
    call_c(f, "pthread_mutex_unlock", f.word_address(queue, layout.MUTEX))


def sleep(f: IRFunction, queue: str, condition: int) -> None:
    call_c(f, "pthread_cond_wait", f.word_address(queue, condition),
           f.word_address(queue, layout.MUTEX))


# ---- jobs -------------------------------------------------------------------------------------


def _run_chunks() -> IRFunction:
    """Take and run chunks of the open job until none is left, from front (1) or back (0)."""
    f = IRFunction("take", ("queue", "scratch", "front"))
    queue = f["queue"]
    is_back, front_step = f.sub(f["front"], 1), f.mul(f["front"], 1 << layout.FIRST_SHIFT)
    with f.loop():
        ticket = f.load(queue, layout.TICKET, "acquire")
        remaining = f.binary("and", ticket, _CHUNK_COUNT_MASK)
        with f.if_then(f.compare("eq", remaining, 0)):
            f.ret(0)
        record, pointers, time = (f.load(queue, word, "monotonic") for word in (
            layout.JOB_RECORD, layout.JOB_SLOTS, layout.JOB_TIME))
        new_ticket = f.sub(f.add(ticket, front_step), 1)
        with f.if_then(f.compare_exchange(queue, layout.TICKET, ticket, new_ticket)):
            chunks, chunk = f.load(record, layout.CHUNKS), f.load(record, layout.CHUNK)
            first = f.binary("and", f.binary("lshr", ticket, layout.FIRST_SHIFT), _CHUNK_COUNT_MASK)
            last = f.binary("and", is_back, f.sub(remaining, 1))
            low = f.mul(f.add(first, last), chunk)
            high = f.umin(f.add(low, chunk), f.load(record, layout.ITERATIONS))
            with f.if_then(f.compare("ult", f.load(queue, layout.ABORT, "monotonic"), time)):
                events, start = f.load(queue, layout.EVENTS, "monotonic"), f.variable(0)
                with f.if_then(f.compare("ne", events, 0)):
                    start.set(f.call("clock"))
                f.call("kernel", record, pointers, low, high, f["scratch"])
                with f.if_then(f.compare("ne", events, 0)):
                    number = f.load(queue, layout.COMMAND, "monotonic")
                    f.call("record", events, time, number, start.get(), f["scratch"])
            done = f.add(f.fetch_add(queue, layout.DONE, 1), 1)
            with f.if_then(f.compare("eq", done, chunks)):
                waits = f.load(queue, layout.LEADER_WAITS, "seq_cst")
                with f.if_then(f.compare("ne", waits, 0)):
                    lock(f, queue)
                    call_c(f, "pthread_cond_signal", f.word_address(queue, layout.JOB_FINISHED))
                    unlock(f, queue)
    f.ret(0)
    return f


def _wake_workers() -> IRFunction:
    """Wake sleepers, at most ``most``.

    They no longer count as asleep, so until they run nobody pays to wake them again.
    """
    f = IRFunction("wake", ("queue", "most"))
    queue = f["queue"]
    lock(f, queue)
    count = f.umin(f.load(queue, layout.SLEEPERS), f["most"])
    f.fetch_add(queue, layout.SLEEPERS, f.sub(0, count))
    f.store(queue, layout.WOKEN, f.add(f.load(queue, layout.WOKEN), count))
    f.call("make_room", queue)
    unlock(f, queue)  # first: woken threads find it unlocked
    with f.count(count):
        call_c(f, "pthread_cond_signal", f.word_address(queue, layout.JOB_OPENED))
    f.ret(0)
    return f


def _reserve_cpu(has_affinity: bool) -> IRFunction:
    """Keep the helpers off the processor of this thread, which keeps running.

    Otherwise the system may wake a sleeper on the same processor, as an idle virtual processor
    counts as lent to other guests.
    """
    f = IRFunction("make_room", ("queue",))
    if not has_affinity:
        f.ret(0)
        return f
    queue, mask, other_cpus = f["queue"], f.alloca_bytes(8 * _MASK_WORDS), f.variable(0)
    current_cpu = f.emit(f"zext i32 {f.emit('call i32 @sched_getcpu()', 'r')} to i64", "z")
    with f.if_then(f.compare("eq", f.load(queue, layout.RESERVED_CPU), f.add(current_cpu, 1))):
        f.ret(0)
    f.store(queue, layout.RESERVED_CPU, f.add(current_cpu, 1))
    failed = call_c(f, "sched_getaffinity", 0, 8 * _MASK_WORDS, mask)
    with f.if_then(f.emit(f"icmp ne i32 {failed}, 0", "c")):
        f.ret(0)
    with f.if_then(f.compare("uge", current_cpu, 64 * _MASK_WORDS)):
        f.ret(0)
    word = f.word_address(mask, f.binary("lshr", current_cpu, 6))
    bit = f.binary("shl", 1, f.binary("and", current_cpu, 63))
    f.store(word, 0, f.binary("and", f.load(word), f.binary("xor", bit, -1)))
    with f.count(_MASK_WORDS) as i:
        other_cpus.set(f.binary("or", other_cpus.get(), f.load(f.word_address(mask, i))))
    with f.if_then(f.compare("eq", other_cpus.get(), 0)):
        f.ret(0)
    worker = f.variable(f.load(queue, layout.WORKERS))
    with f.count(f.load(queue, layout.WORKER_COUNT)):
        thread = f.load(worker.get(), layout.THREAD)
        call_c(f, "pthread_setaffinity_np", thread, 8 * _MASK_WORDS, mask)
        worker.set(f.word_address(worker.get(), layout.WORKER_WORDS))
    f.ret(0)
    return f


def _open_job(pause: str) -> IRFunction:
    """Run a command of several chunks on all workers; called by the leader."""
    f = IRFunction("open_job", ("queue", "record", "pointers", "time", "scratch"))
    queue, chunks = f["queue"], f.load(f["record"], layout.CHUNKS)
    for word, value in ((layout.JOB_RECORD, f["record"]), (layout.JOB_SLOTS, f["pointers"]),
                        (layout.JOB_TIME, f["time"])):
        f.store(queue, word, value, "monotonic")
    f.store(queue, layout.DONE, 0, "monotonic")
    number = f.add(f.load(queue, layout.JOB_NUMBER), 1)
    f.store(queue, layout.JOB_NUMBER, number)
    ticket = f.binary("or", f.binary("shl", number, layout.NUMBER_SHIFT), chunks)
    f.store(queue, layout.TICKET, ticket, "seq_cst")
    with f.if_then(f.compare("ne", f.load(queue, layout.SLEEPERS, "seq_cst"), 0)):
        f.call("wake", queue, f.sub(chunks, 1))
    f.call("take", queue, f["scratch"], 1)
    spins = f.variable(0)
    with f.loop():
        with f.if_then(f.compare("eq", f.load(queue, layout.DONE, "acquire"), chunks)):
            caution = f.load(queue, layout.BACKOFF)
            with f.if_then(f.compare("ne", caution, 0)):
                f.store(queue, layout.BACKOFF, f.sub(caution, 1))
            f.ret(0)
        spins.set(f.add(spins.get(), 1))
        with f.if_then(f.compare("ugt", spins.get(), _MAX_SPINS)):
            f.leave()
        f.emit(pause)
    with f.if_then(f.compare("ne", f.load(f["record"], layout.SHORT_NS), 0)):
        caution = f.umin(f.add(f.mul(f.load(queue, layout.BACKOFF), 2), _MIN_BACKOFF), _MAX_BACKOFF)
        f.store(queue, layout.BACKOFF, caution)
        f.store(queue, layout.RUN_ALONE, caution)
    lock(f, queue)
    f.store(queue, layout.LEADER_WAITS, 1, "seq_cst")
    with f.loop():
        with f.if_then(f.compare("eq", f.load(queue, layout.DONE, "seq_cst"), chunks)):
            f.leave()
        sleep(f, queue, layout.JOB_FINISHED)
    f.store(queue, layout.LEADER_WAITS, 0, "seq_cst")
    unlock(f, queue)
    f.ret(0)
    return f


def _clock() -> IRFunction:
    """Return nanoseconds of a monotonic clock."""
    f = IRFunction("clock", ())
    now = f.alloca_bytes(16)
    call_c(f, "clock_gettime", 1, now)  # 1: CLOCK_MONOTONIC, as time.monotonic_ns
    f.ret(f.add(f.mul(f.load(now), 1_000_000_000), f.load(now, 1)))
    return f


def _record() -> IRFunction:
    """Record an event: when a record of a submission, or a chunk of it, ran. Only count it if the
    buffer is full.
    """
    f = IRFunction("record", ("events", "time", "number", "start", "worker"))
    events, count = f["events"], f.fetch_add(f["events"], layout.EVENT_COUNT, 1)
    with f.if_then(f.compare("ult", count, f.load(events, layout.EVENT_LIMIT))):
        event = f.word_address(events, f.add(f.mul(count, layout.EVENT_WORDS), layout.FIRST_EVENT))
        stop = f.call("clock")
        for word, value in enumerate((f["time"], f["number"], f["start"], stop, f["worker"])):
            f.store(event, word, value)
    f.ret(0)
    return f


def _chunk_count() -> IRFunction:
    """Return into how many chunks the leader splits a record now.

    Short ones are shared only if the other workers are awake, or if such jobs follow one another.
    """
    f = IRFunction("chunks", ("queue", "record"))
    queue, chunks, short = f["queue"], *(
        f.load(f["record"], word) for word in (layout.CHUNKS, layout.SHORT_NS))
    with f.if_then(f.compare("ule", chunks, 1)):
        f.ret(1)
    with f.if_then(f.compare("ne", short, 0)):
        with f.if_then(f.compare("ne", f.load(queue, layout.SLEEPERS, "monotonic"), 0)):
            idle_ns = f.sub(f.call("clock"), f.load(queue, layout.LAST_SHARED_END))
            with f.if_then(f.compare("ugt", idle_ns, short)):
                f.ret(1)
        alone_jobs = f.load(queue, layout.RUN_ALONE)
        with f.if_then(f.compare("ne", alone_jobs, 0)):
            f.store(queue, layout.RUN_ALONE, f.sub(alone_jobs, 1))
            f.ret(1)
    f.ret(chunks)
    return f


def _note_shared_end() -> IRFunction:
    """Note when a shareable record ended."""
    f = IRFunction("ended", ("queue", "record"))
    with f.if_then(f.compare("ugt", f.load(f["record"], layout.CHUNKS), 1)):
        f.store(f["queue"], layout.LAST_SHARED_END, f.call("clock"))
    f.ret(0)
    return f


def _execute() -> IRFunction:
    """Run all commands of a submission."""
    f = IRFunction("execute", ("queue", "program", "block", "time", "scratch"))
    queue = f["queue"]
    position = f.variable(f.load(f["block"], layout.RESUME_AT))
    with f.if_then(f.compare("eq", position.get(), 0)):
        f.call("resolve", f["program"], f["block"])
    pointers = f.word_address(f["block"], f.load(f["program"], layout.RESOLVED))
    records, end = f.load(f["program"], layout.RECORDS), f.load(f["program"], layout.COMMANDS)
    events, start = f.load(queue, layout.EVENTS), f.variable(0)
    recorded = f.compare("ne", events, 0)
    with f.loop():
        i = position.get()
        with f.if_then(f.compare("uge", i, end)):
            f.leave()
        with f.if_then(f.compare("uge", f.load(queue, layout.ABORT, "monotonic"), f["time"])):
            f.leave()
        f.store(queue, layout.COMMAND, i, "monotonic")
        record = f.word_address(records, f.mul(i, layout.RECORD_WORDS))
        with f.if_then(f.compare("ne", f.load(record), layout.EXEC)):
            position.set(f.call("go", f["program"], f["block"], pointers, record, i))
            f.continue_loop()
        position.set(f.add(i, 1))
        with f.if_then(recorded):
            start.set(f.call("clock"))
        chunks = f.call("chunks", queue, record)
        with f.if_then(f.compare("ugt", chunks, 1)):
            f.call("open_job", queue, record, pointers, f["time"], f["scratch"])
        with f.if_then(f.compare("ule", chunks, 1)):
            f.call("kernel", record, pointers, 0, f.load(record, layout.ITERATIONS), f["scratch"])
        f.call("ended", queue, record)
        with f.if_then(recorded):
            f.call("record", events, f["time"], i, start.get(), 0)
    f.ret(0)
    return f


def _leader_loop(pause: str, mode: int) -> IRFunction:
    """The loop of worker 0: submissions in order."""
    f = IRFunction("lead", ("worker",))
    queue, idle_since, spin_time = f.load(f["worker"], layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        head = f.load(queue, layout.COMPLETED)
        with f.if_then(f.compare("eq", f.load(queue, layout.SUBMITTED, "acquire"), head)):
            _spin(f, queue, idle_since, spin_time, pause)
            _leader_sleep(f, queue, head)
            idle_since.set(0)
            f.continue_loop()
        idle_since.set(0)
        start = f.call("clock")
        entry = f.word_address(queue, f.mul(f.binary("urem", head, layout.CAPACITY), 2))
        time, scratch = f.add(head, 1), f.load(f["worker"], layout.PRIVATE_SCRATCH)
        program, block = f.load(entry, layout.RING), f.load(entry, layout.RING + 1)
        call_c(f, "pthread_mutex_lock", f.word_address(queue, layout.LEADER))
        f.call("execute", queue, program, block, time, scratch)
        call_c(f, "pthread_mutex_unlock", f.word_address(queue, layout.LEADER))
        f.store(queue, layout.COMPLETED, time, "seq_cst")
        with f.if_then(f.compare("ne", f.load(queue, layout.WAITERS, "seq_cst"), 0)):
            lock(f, queue)
            call_c(f, "pthread_cond_broadcast", f.word_address(queue, layout.FINISHED))
            unlock(f, queue)
        _set_spin_time(f, spin_time, start)
    f.ret(0)
    return f


def _set_spin_time(f: IRFunction, spin_time: Variable, start: str) -> None:
    """Let a worker spin for as long as its work since ``start`` took."""
    min_ns, max_ns = SPIN_NS
    elapsed = f.umin(f.sub(f.call("clock"), start), max_ns)
    spin_time.set(elapsed)
    with f.if_then(f.compare("ult", elapsed, min_ns)):
        spin_time.set(min_ns)


def _spin(f: IRFunction, queue: str, idle_since: Variable, spin_time: Variable, pause: str) -> None:
    """Return from the worker if the queue stops; else spin for a while."""
    with f.if_then(f.compare("ne", f.load(queue, layout.STOP, "acquire"), 0)):
        f.fetch_add(queue, layout.RETURNED, 1)
        f.ret(0)
    f.emit(pause)
    now = f.call("clock")
    with f.if_then(f.compare("eq", idle_since.get(), 0)):
        idle_since.set(now)
    with f.if_then(f.compare("ule", f.sub(now, idle_since.get()), spin_time.get())):
        f.continue_loop()


def _leader_sleep(f: IRFunction, queue: str, head: str) -> None:
    lock(f, queue)
    f.store(queue, layout.LEADER_SLEEPS, 1)
    with f.loop():
        with f.if_then(f.compare("ne", f.load(queue, layout.SUBMITTED), head)):
            f.leave()
        with f.if_then(f.compare("ne", f.load(queue, layout.STOP), 0)):
            f.leave()
        sleep(f, queue, layout.SUBMITTED_COND)
    f.store(queue, layout.LEADER_SLEEPS, 0)
    unlock(f, queue)


def _worker_loop(pause: str, mode: int) -> IRFunction:
    """The loop of the other workers: chunks of the open job."""
    f = IRFunction("help", ("worker",))
    queue, idle_since, spin_time = f.load(f["worker"], layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        remaining = f.binary("and", f.load(queue, layout.TICKET, "acquire"), _CHUNK_COUNT_MASK)
        with f.if_then(f.compare("ne", remaining, 0)):
            start = f.call("clock")
            f.call("take", queue, f.load(f["worker"], layout.PRIVATE_SCRATCH), 0)
            _set_spin_time(f, spin_time, start)
            idle_since.set(0)
            f.continue_loop()
        _spin(f, queue, idle_since, spin_time, pause)
        idle_since.set(0)
        _worker_sleep(f, queue)
    f.ret(0)
    return f


def _worker_sleep(f: IRFunction, queue: str) -> None:
    lock(f, queue)
    f.fetch_add(queue, layout.SLEEPERS, 1)
    remaining = f.binary("and", f.load(queue, layout.TICKET, "seq_cst"), _CHUNK_COUNT_MASK)
    with f.if_then(f.compare("ne", remaining, 0)):
        f.fetch_add(queue, layout.SLEEPERS, -1)
        unlock(f, queue)
        f.continue_loop()
    with f.loop():
        with f.if_then(f.compare("ne", f.load(queue, layout.STOP, "seq_cst"), 0)):
            f.leave()
        woken = f.load(queue, layout.WOKEN)
        with f.if_then(f.compare("ne", woken, 0)):
            f.store(queue, layout.WOKEN, f.sub(woken, 1))
            f.leave()
        sleep(f, queue, layout.JOB_OPENED)
    unlock(f, queue)
