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
longer ago than this one takes, or if a long one follows at once (encoding.py). If a worker is
delayed in its chunk of a short job until the leader has to sleep, the leader runs the next short
jobs alone: twice as many as after the last such event, less one for each job since that went well.
"""

from __future__ import annotations

import sys
import time

from fnx.backends.cpu import layout
from fnx.backends.llvm.ir_builder import IRFunction, IRValue, Variable, ir_function

SPIN_NS = 20_000, 200_000  # shortest and longest time in nanoseconds that an idle worker spins
_MAX_SPINS = 5000  # ``pause`` rounds of a leader that waits for the last chunks of a job
# short jobs that the leader runs alone after a sleep: first, most
_MIN_BACKOFF, _MAX_BACKOFF = 32, 1 << 14
# the clock of time.monotonic_ns; on macOS that is CLOCK_UPTIME_RAW
_MONOTONIC = 8 if sys.platform == "darwin" else time.CLOCK_MONOTONIC
_MASK_WORDS = 16  # words in a CPU set
_CHUNK_COUNT_MASK = layout.MOST_CHUNKS


def functions(pause: str, mode: int, has_affinity: bool) -> list[IRFunction]:
    """Return the functions of the workers.

    ``pause`` is the pause instruction, ``mode`` the float mode, ``has_affinity`` whether threads
    can query and set their processors.
    """
    return [_run_chunks(), _reserve_cpu(has_affinity=has_affinity), _wake_workers(),
            _open_job(pause=pause), _clock(), _record(), _chunk_count(), _note_shared_end(),
            _execute(), _leader_loop(pause=pause, mode=mode), _worker_loop(pause=pause, mode=mode)]


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


@ir_function
def _run_chunks(f: IRFunction, queue: str, scratch: str, front: str) -> None:
    """Take and run chunks of the open job until none is left, from front (1) or back (0)."""
    is_back, front_step = f.sub(front, 1), f.mul(front, 1 << layout.FIRST_SHIFT)
    with f.loop():
        ticket = f.load(queue, layout.TICKET, "acquire")
        remaining = f.binary("and", ticket, _CHUNK_COUNT_MASK)
        f.ret_if(0, "eq", remaining, 0)
        record, pointers, time = (f.load(queue, word, "monotonic") for word in (
            layout.JOB_RECORD, layout.JOB_SLOTS, layout.JOB_TIME))
        new_ticket = f.sub(f.add(ticket, front_step), 1)
        with f.if_then(f.compare_exchange(queue, layout.TICKET, ticket, new_ticket)):
            chunks, chunk = f.load(record, layout.CHUNKS), f.load(record, layout.CHUNK)
            first = f.binary("and", f.binary("lshr", ticket, layout.FIRST_SHIFT), _CHUNK_COUNT_MASK)
            last = f.binary("and", is_back, f.sub(remaining, 1))
            low = f.mul(f.add(first, last), chunk)
            high = f.umin(f.add(low, chunk), f.load(record, layout.ITERATIONS))
            with f.when("ult", f.load(queue, layout.ABORT, "monotonic"), time):
                events, start = f.load(queue, layout.EVENTS, "monotonic"), f.variable(0)
                with f.when("ne", events, 0):
                    start.set(f.call("clock"))
                f.call("kernel", record, pointers, low, high, scratch)
                with f.when("ne", events, 0):
                    number = f.load(queue, layout.COMMAND, "monotonic")
                    f.call("record", events, time, number, start.get(), scratch)
            done = f.add(f.fetch_add(queue, layout.DONE, 1), 1)
            with f.when("eq", done, chunks):
                waits = f.load(queue, layout.LEADER_WAITS, "seq_cst")
                with f.when("ne", waits, 0):
                    lock(f, queue)
                    call_c(f, "pthread_cond_signal", f.word_address(queue, layout.JOB_FINISHED))
                    unlock(f, queue)


@ir_function
def _wake_workers(f: IRFunction, queue: str, most: str) -> None:
    """Wake sleepers, at most ``most``.

    They no longer count as asleep, so until they run nobody pays to wake them again.
    """
    lock(f, queue)
    count = f.umin(f.load(queue, layout.SLEEPERS), most)
    f.fetch_add(queue, layout.SLEEPERS, f.sub(0, count))
    f.store(queue, layout.WOKEN, f.add(f.load(queue, layout.WOKEN), count))
    f.call("reserve_cpu", queue)
    unlock(f, queue)  # first: woken threads find it unlocked
    with f.count(count):
        call_c(f, "pthread_cond_signal", f.word_address(queue, layout.JOB_OPENED))


@ir_function
def _reserve_cpu(f: IRFunction, queue: str, *, has_affinity: bool) -> None:
    """Keep the helpers off the processor of this thread, which keeps running.

    Otherwise the system may wake a sleeper on the same processor, as an idle virtual processor
    counts as lent to other guests.
    """
    if not has_affinity:
        return
    mask, other_cpus = f.alloca_bytes(8 * _MASK_WORDS), f.variable(0)
    current_cpu = f.emit(f"zext i32 {f.emit('call i32 @sched_getcpu()', 'r')} to i64", "z")
    f.ret_if(0, "eq", f.load(queue, layout.RESERVED_CPU), f.add(current_cpu, 1))
    f.store(queue, layout.RESERVED_CPU, f.add(current_cpu, 1))
    failed = call_c(f, "sched_getaffinity", 0, 8 * _MASK_WORDS, mask)
    f.ret_if(0, "ne", failed, 0, 32)
    f.ret_if(0, "uge", current_cpu, 64 * _MASK_WORDS)
    word = f.word_address(mask, f.binary("lshr", current_cpu, 6))
    bit = f.binary("shl", 1, f.binary("and", current_cpu, 63))
    f.store(word, 0, f.binary("and", f.load(word), f.binary("xor", bit, -1)))
    with f.count(_MASK_WORDS) as i:
        other_cpus.set(f.binary("or", other_cpus.get(), f.load(f.word_address(mask, i))))
    f.ret_if(0, "eq", other_cpus.get(), 0)
    worker = f.variable(f.load(queue, layout.WORKERS))
    with f.count(f.load(queue, layout.WORKER_COUNT)):
        thread = f.load(worker.get(), layout.THREAD)
        call_c(f, "pthread_setaffinity_np", thread, 8 * _MASK_WORDS, mask)
        worker.set(f.word_address(worker.get(), layout.WORKER_WORDS))


@ir_function
def _open_job(f: IRFunction, queue: str, record: str, pointers: str, time: str, scratch: str, *,
              pause: str) -> None:
    """Run a command of several chunks on all workers; called by the leader."""
    chunks = f.load(record, layout.CHUNKS)
    for word, value in ((layout.JOB_RECORD, record), (layout.JOB_SLOTS, pointers),
                        (layout.JOB_TIME, time)):
        f.store(queue, word, value, "monotonic")
    f.store(queue, layout.DONE, 0, "monotonic")
    number = f.add(f.load(queue, layout.JOB_NUMBER), 1)
    f.store(queue, layout.JOB_NUMBER, number)
    ticket = f.binary("or", f.binary("shl", number, layout.NUMBER_SHIFT), chunks)
    f.store(queue, layout.TICKET, ticket, "seq_cst")
    with f.when("ne", f.load(queue, layout.SLEEPERS, "seq_cst"), 0):
        f.call("wake_workers", queue, f.sub(chunks, 1))
    f.call("run_chunks", queue, scratch, 1)
    spins = f.variable(0)
    with f.loop():
        with f.when("eq", f.load(queue, layout.DONE, "acquire"), chunks):
            caution = f.load(queue, layout.BACKOFF)
            with f.when("ne", caution, 0):
                f.store(queue, layout.BACKOFF, f.sub(caution, 1))
            f.ret(0)
        spins.set(f.add(spins.get(), 1))
        with f.when("ugt", spins.get(), _MAX_SPINS):
            f.leave()
        f.emit(pause)
    with f.when("ne", f.load(record, layout.SHORT_NS), 0):
        caution = f.umin(f.add(f.mul(f.load(queue, layout.BACKOFF), 2), _MIN_BACKOFF), _MAX_BACKOFF)
        f.store(queue, layout.BACKOFF, caution)
        f.store(queue, layout.RUN_ALONE, caution)
    lock(f, queue)
    f.store(queue, layout.LEADER_WAITS, 1, "seq_cst")
    with f.loop():
        with f.when("eq", f.load(queue, layout.DONE, "seq_cst"), chunks):
            f.leave()
        sleep(f, queue, layout.JOB_FINISHED)
    f.store(queue, layout.LEADER_WAITS, 0, "seq_cst")
    unlock(f, queue)


@ir_function
def _clock(f: IRFunction) -> None:
    """Return nanoseconds of a monotonic clock."""
    now = f.alloca_bytes(16)
    call_c(f, "clock_gettime", _MONOTONIC, now)
    f.ret(f.add(f.mul(f.load(now), 1_000_000_000), f.load(now, 1)))


@ir_function
def _record(f: IRFunction, events: str, time: str, number: str, start: str, worker: str) -> None:
    """Record an event: when a record of a submission, or a chunk of it, ran. Only count it if the
    buffer is full.
    """
    count = f.fetch_add(events, layout.EVENT_COUNT, 1)
    with f.when("ult", count, f.load(events, layout.EVENT_LIMIT)):
        event = f.word_address(events, f.add(f.mul(count, layout.EVENT_WORDS), layout.FIRST_EVENT))
        stop = f.call("clock")
        for word, value in enumerate((time, number, start, stop, worker)):
            f.store(event, word, value)


@ir_function
def _chunk_count(f: IRFunction, queue: str, record: str) -> None:
    """Return into how many chunks the leader splits a record now.

    Short ones are shared only if the other workers are awake, or if such jobs follow one another.
    """
    chunks, short = f.load(record, layout.CHUNKS), f.load(record, layout.SHORT_NS)
    f.ret_if(1, "ule", chunks, 1)
    with f.when("ne", short, 0):
        with f.when("ne", f.load(queue, layout.SLEEPERS, "monotonic"), 0):
            idle_ns = f.sub(f.call("clock"), f.load(queue, layout.LAST_SHARED_END))
            f.ret_if(1, "ugt", idle_ns, short)
        alone_jobs = f.load(queue, layout.RUN_ALONE)
        with f.when("ne", alone_jobs, 0):
            f.store(queue, layout.RUN_ALONE, f.sub(alone_jobs, 1))
            f.ret(1)
    f.ret(chunks)


@ir_function
def _note_shared_end(f: IRFunction, queue: str, record: str) -> None:
    """Note when a shareable record ended."""
    with f.when("ugt", f.load(record, layout.CHUNKS), 1):
        f.store(queue, layout.LAST_SHARED_END, f.call("clock"))


@ir_function
def _execute(f: IRFunction, queue: str, program: str, block: str, time: str, scratch: str) -> None:
    """Run all commands of a submission."""
    position = f.variable(f.load(block, layout.RESUME_AT))
    with f.when("eq", position.get(), 0):
        f.call("resolve", program, block)
    pointers = f.word_address(block, f.load(program, layout.RESOLVED))
    records, end = f.load(program, layout.RECORDS), f.load(program, layout.COMMANDS)
    events, start = f.load(queue, layout.EVENTS), f.variable(0)
    recorded = f.compare("ne", events, 0)
    with f.loop():
        i = position.get()
        with f.when("uge", i, end):
            f.leave()
        with f.when("uge", f.load(queue, layout.ABORT, "monotonic"), time):
            f.leave()
        f.store(queue, layout.COMMAND, i, "monotonic")
        record = f.word_address(records, f.mul(i, layout.RECORD_WORDS))
        with f.when("ne", f.load(record), layout.EXEC):
            position.set(f.call("execute_control", program, block, pointers, record, i))
            f.continue_loop()
        position.set(f.add(i, 1))
        with f.if_then(recorded):
            start.set(f.call("clock"))
        chunks = f.call("chunk_count", queue, record)
        with f.when("ugt", chunks, 1):
            f.call("open_job", queue, record, pointers, time, scratch)
        with f.when("ule", chunks, 1):
            f.call("kernel", record, pointers, 0, f.load(record, layout.ITERATIONS), scratch)
        f.call("note_shared_end", queue, record)
        with f.if_then(recorded):
            f.call("record", events, time, i, start.get(), 0)


@ir_function
def _leader_loop(f: IRFunction, worker: str, *, pause: str, mode: int) -> None:
    """The loop of worker 0: submissions in order."""
    queue, idle_since, spin_time = f.load(worker, layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        head = f.load(queue, layout.COMPLETED)
        with f.when("eq", f.load(queue, layout.SUBMITTED, "acquire"), head):
            _spin(f, queue, idle_since, spin_time, pause)
            _leader_sleep(f, queue, head)
            idle_since.set(0)
            f.continue_loop()
        idle_since.set(0)
        start = f.call("clock")
        entry = f.word_address(queue, f.mul(f.binary("urem", head, layout.CAPACITY), 2))
        time, scratch = f.add(head, 1), f.load(worker, layout.PRIVATE_SCRATCH)
        program, block = f.load(entry, layout.RING), f.load(entry, layout.RING + 1)
        call_c(f, "pthread_mutex_lock", f.word_address(queue, layout.LEADER))
        f.call("execute", queue, program, block, time, scratch)
        call_c(f, "pthread_mutex_unlock", f.word_address(queue, layout.LEADER))
        f.store(queue, layout.COMPLETED, time, "seq_cst")
        with f.when("ne", f.load(queue, layout.WAITERS, "seq_cst"), 0):
            lock(f, queue)
            call_c(f, "pthread_cond_broadcast", f.word_address(queue, layout.FINISHED))
            unlock(f, queue)
        _set_spin_time(f, spin_time, start)


def _set_spin_time(f: IRFunction, spin_time: Variable, start: str) -> None:
    """Let a worker spin for as long as its work since ``start`` took."""
    min_ns, max_ns = SPIN_NS
    elapsed = f.umin(f.sub(f.call("clock"), start), max_ns)
    spin_time.set(elapsed)
    with f.when("ult", elapsed, min_ns):
        spin_time.set(min_ns)


def _spin(f: IRFunction, queue: str, idle_since: Variable, spin_time: Variable, pause: str) -> None:
    """Return from the worker if the queue stops; else spin for a while."""
    with f.when("ne", f.load(queue, layout.STOP, "acquire"), 0):
        f.fetch_add(queue, layout.RETURNED, 1)
        f.ret(0)
    f.emit(pause)
    now = f.call("clock")
    with f.when("eq", idle_since.get(), 0):
        idle_since.set(now)
    with f.when("ule", f.sub(now, idle_since.get()), spin_time.get()):
        f.continue_loop()


def _leader_sleep(f: IRFunction, queue: str, head: str) -> None:
    lock(f, queue)
    f.store(queue, layout.LEADER_SLEEPS, 1)
    with f.loop():
        with f.when("ne", f.load(queue, layout.SUBMITTED), head):
            f.leave()
        with f.when("ne", f.load(queue, layout.STOP), 0):
            f.leave()
        sleep(f, queue, layout.SUBMITTED_COND)
    f.store(queue, layout.LEADER_SLEEPS, 0)
    unlock(f, queue)


@ir_function
def _worker_loop(f: IRFunction, worker: str, *, pause: str, mode: int) -> None:
    """The loop of the other workers: chunks of the open job."""
    queue, idle_since, spin_time = f.load(worker, layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        remaining = f.binary("and", f.load(queue, layout.TICKET, "acquire"), _CHUNK_COUNT_MASK)
        with f.when("ne", remaining, 0):
            start = f.call("clock")
            f.call("run_chunks", queue, f.load(worker, layout.PRIVATE_SCRATCH), 0)
            _set_spin_time(f, spin_time, start)
            idle_since.set(0)
            f.continue_loop()
        _spin(f, queue, idle_since, spin_time, pause)
        idle_since.set(0)
        _worker_sleep(f, queue)


def _worker_sleep(f: IRFunction, queue: str) -> None:
    lock(f, queue)
    f.fetch_add(queue, layout.SLEEPERS, 1)
    remaining = f.binary("and", f.load(queue, layout.TICKET, "seq_cst"), _CHUNK_COUNT_MASK)
    with f.when("ne", remaining, 0):
        f.fetch_add(queue, layout.SLEEPERS, -1)
        unlock(f, queue)
        f.continue_loop()
    with f.loop():
        with f.when("ne", f.load(queue, layout.STOP, "seq_cst"), 0):
            f.leave()
        woken = f.load(queue, layout.WOKEN)
        with f.when("ne", woken, 0):
            f.store(queue, layout.WOKEN, f.sub(woken, 1))
            f.leave()
        sleep(f, queue, layout.JOB_OPENED)
    unlock(f, queue)
