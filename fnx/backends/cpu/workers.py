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

AWAKE = 20_000, 200_000  # shortest and longest time in nanoseconds that an idle worker spins
_PATIENCE = 5000  # ``pause`` rounds of a leader that waits for the last chunks of a job
_FIRST, _MOST = 32, 1 << 14  # short jobs that the leader runs alone after a sleep: first, most
_MASK_WORDS = 16  # words in a CPU set
_LEFT = layout.MOST_CHUNKS


def functions(pause: str, mode: int, places: bool) -> list[IRFunction]:
    """Return the functions of the workers.

    ``pause`` is the pause instruction, ``mode`` the float mode, ``places`` whether threads can
    query and set their processors.
    """
    return [_take(), _make_room(places), _wake(), _open_job(pause), _clock(), _record(),
            _chunks(), _ended(), _execute(), _lead(pause, mode), _help(pause, mode)]


# ---- pthreads ---------------------------------------------------------------------------------


def call_c(f: IRFunction, name: str, *arguments: IRValue) -> str:
    return f.line(f"call i32 @{name}({', '.join(f'i64 {a}' for a in arguments)})", "r")


def lock(f: IRFunction, queue: str) -> None:
    call_c(f, "pthread_mutex_lock", f.word(queue, layout.MUTEX))


def unlock(f: IRFunction, queue: str) -> None:
    call_c(f, "pthread_mutex_unlock", f.word(queue, layout.MUTEX))


def sleep(f: IRFunction, queue: str, condition: int) -> None:
    call_c(f, "pthread_cond_wait", f.word(queue, condition), f.word(queue, layout.MUTEX))


# ---- jobs -------------------------------------------------------------------------------------


def _take() -> IRFunction:
    """Take and run chunks of the open job until none is left, from front (1) or back (0)."""
    f = IRFunction("take", ("queue", "scratch", "front"))
    queue = f["queue"]
    before, behind = f.sub(f["front"], 1), f.mul(f["front"], 1 << layout.FIRST_SHIFT)
    with f.loop():
        ticket = f.load(queue, layout.TICKET, "acquire")
        left = f.binary("and", ticket, _LEFT)
        with f.when(f.compare("eq", left, 0)):
            f.give(0)
        record, pointers, time = (f.load(queue, word, "monotonic") for word in (
            layout.JOB_RECORD, layout.JOB_SLOTS, layout.JOB_TIME))
        taken = f.sub(f.add(ticket, behind), 1)
        with f.when(f.swap_if(queue, layout.TICKET, ticket, taken)):
            chunks, chunk = f.load(record, layout.CHUNKS), f.load(record, layout.CHUNK)
            first = f.binary("and", f.binary("lshr", ticket, layout.FIRST_SHIFT), _LEFT)
            last = f.binary("and", before, f.sub(left, 1))
            low = f.mul(f.add(first, last), chunk)
            high = f.smaller(f.add(low, chunk), f.load(record, layout.ITERATIONS))
            with f.when(f.compare("ult", f.load(queue, layout.ABORT, "monotonic"), time)):
                events, start = f.load(queue, layout.EVENTS, "monotonic"), f.variable(0)
                with f.when(f.compare("ne", events, 0)):
                    start.set(f.call("clock"))
                f.call("kernel", record, pointers, low, high, f["scratch"])
                with f.when(f.compare("ne", events, 0)):
                    number = f.load(queue, layout.COMMAND, "monotonic")
                    f.call("record", events, time, number, start.get(), f["scratch"])
            done = f.add(f.fetch_add(queue, layout.DONE, 1), 1)
            with f.when(f.compare("eq", done, chunks)):
                waits = f.load(queue, layout.LEAD_WAITS, "seq_cst")
                with f.when(f.compare("ne", waits, 0)):
                    lock(f, queue)
                    call_c(f, "pthread_cond_signal", f.word(queue, layout.JOINED))
                    unlock(f, queue)
    f.give(0)
    return f


def _wake() -> IRFunction:
    """Wake sleepers, at most ``most``.

    They no longer count as asleep, so until they run nobody pays to wake them again.
    """
    f = IRFunction("wake", ("queue", "most"))
    queue = f["queue"]
    lock(f, queue)
    count = f.smaller(f.load(queue, layout.SLEEPERS), f["most"])
    f.fetch_add(queue, layout.SLEEPERS, f.sub(0, count))
    f.store(queue, layout.WOKEN, f.add(f.load(queue, layout.WOKEN), count))
    f.call("make_room", queue)
    unlock(f, queue)  # first: woken threads find it unlocked
    with f.count(count):
        call_c(f, "pthread_cond_signal", f.word(queue, layout.HELP))
    f.give(0)
    return f


def _make_room(places: bool) -> IRFunction:
    """Keep the helpers off the processor of this thread, which keeps running.

    Otherwise the system may wake a sleeper on the same processor, as an idle virtual processor
    counts as lent to other guests.
    """
    f = IRFunction("make_room", ("queue",))
    if not places:
        f.give(0)
        return f
    queue, mask, rest = f["queue"], f.space(8 * _MASK_WORDS), f.variable(0)
    here = f.line(f"zext i32 {f.line('call i32 @sched_getcpu()', 'r')} to i64", "z")
    with f.when(f.compare("eq", f.load(queue, layout.KEPT_FREE), f.add(here, 1))):
        f.give(0)
    f.store(queue, layout.KEPT_FREE, f.add(here, 1))
    failed = call_c(f, "sched_getaffinity", 0, 8 * _MASK_WORDS, mask)
    with f.when(f.line(f"icmp ne i32 {failed}, 0", "c")):
        f.give(0)
    with f.when(f.compare("uge", here, 64 * _MASK_WORDS)):
        f.give(0)
    word = f.word(mask, f.binary("lshr", here, 6))
    bit = f.binary("shl", 1, f.binary("and", here, 63))
    f.store(word, 0, f.binary("and", f.load(word), f.binary("xor", bit, -1)))
    with f.count(_MASK_WORDS) as i:
        rest.set(f.binary("or", rest.get(), f.load(f.word(mask, i))))
    with f.when(f.compare("eq", rest.get(), 0)):
        f.give(0)
    worker = f.variable(f.load(queue, layout.HELPERS))
    with f.count(f.load(queue, layout.HELPER_COUNT)):
        thread = f.load(worker.get(), layout.THREAD)
        call_c(f, "pthread_setaffinity_np", thread, 8 * _MASK_WORDS, mask)
        worker.set(f.word(worker.get(), layout.WORKER_WORDS))
    f.give(0)
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
    with f.when(f.compare("ne", f.load(queue, layout.SLEEPERS, "seq_cst"), 0)):
        f.call("wake", queue, f.sub(chunks, 1))
    f.call("take", queue, f["scratch"], 1)
    spins = f.variable(0)
    with f.loop():
        with f.when(f.compare("eq", f.load(queue, layout.DONE, "acquire"), chunks)):
            caution = f.load(queue, layout.CAUTION)
            with f.when(f.compare("ne", caution, 0)):
                f.store(queue, layout.CAUTION, f.sub(caution, 1))
            f.give(0)
        spins.set(f.add(spins.get(), 1))
        with f.when(f.compare("ugt", spins.get(), _PATIENCE)):
            f.leave()
        f.line(pause)
    with f.when(f.compare("ne", f.load(f["record"], layout.SHORT), 0)):
        caution = f.smaller(f.add(f.mul(f.load(queue, layout.CAUTION), 2), _FIRST), _MOST)
        f.store(queue, layout.CAUTION, caution)
        f.store(queue, layout.ALONE, caution)
    lock(f, queue)
    f.store(queue, layout.LEAD_WAITS, 1, "seq_cst")
    with f.loop():
        with f.when(f.compare("eq", f.load(queue, layout.DONE, "seq_cst"), chunks)):
            f.leave()
        sleep(f, queue, layout.JOINED)
    f.store(queue, layout.LEAD_WAITS, 0, "seq_cst")
    unlock(f, queue)
    f.give(0)
    return f


def _clock() -> IRFunction:
    """Return nanoseconds of a monotonic clock."""
    f = IRFunction("clock", ())
    now = f.space(16)
    call_c(f, "clock_gettime", 1, now)  # 1: CLOCK_MONOTONIC, as time.monotonic_ns
    f.give(f.add(f.mul(f.load(now), 1_000_000_000), f.load(now, 1)))
    return f


def _record() -> IRFunction:
    """Record an event: when a record of a submission, or a chunk of it, ran. Only count it if the
    buffer is full.
    """
    f = IRFunction("record", ("events", "time", "number", "start", "worker"))
    events, count = f["events"], f.fetch_add(f["events"], layout.EVENT_COUNT, 1)
    with f.when(f.compare("ult", count, f.load(events, layout.EVENT_LIMIT))):
        event = f.word(events, f.add(f.mul(count, layout.EVENT_WORDS), layout.FIRST_EVENT))
        stop = f.call("clock")
        for word, value in enumerate((f["time"], f["number"], f["start"], stop, f["worker"])):
            f.store(event, word, value)
    f.give(0)
    return f


def _chunks() -> IRFunction:
    """Return into how many chunks the leader splits a record now.

    Short ones are shared only if the other workers are awake, or if such jobs follow one another.
    """
    f = IRFunction("chunks", ("queue", "record"))
    queue, chunks, short = f["queue"], *(
        f.load(f["record"], word) for word in (layout.CHUNKS, layout.SHORT))
    with f.when(f.compare("ule", chunks, 1)):
        f.give(1)
    with f.when(f.compare("ne", short, 0)):
        with f.when(f.compare("ne", f.load(queue, layout.SLEEPERS, "monotonic"), 0)):
            since = f.sub(f.call("clock"), f.load(queue, layout.RECENT))
            with f.when(f.compare("ugt", since, short)):
                f.give(1)
        left = f.load(queue, layout.ALONE)
        with f.when(f.compare("ne", left, 0)):
            f.store(queue, layout.ALONE, f.sub(left, 1))
            f.give(1)
    f.give(chunks)
    return f


def _ended() -> IRFunction:
    """Note when a shareable record ended."""
    f = IRFunction("ended", ("queue", "record"))
    with f.when(f.compare("ugt", f.load(f["record"], layout.CHUNKS), 1)):
        f.store(f["queue"], layout.RECENT, f.call("clock"))
    f.give(0)
    return f


def _execute() -> IRFunction:
    """Run all commands of a submission."""
    f = IRFunction("execute", ("queue", "program", "block", "time", "scratch"))
    queue = f["queue"]
    at = f.variable(f.load(f["block"], layout.START))
    with f.when(f.compare("eq", at.get(), 0)):
        f.call("resolve", f["program"], f["block"])
    pointers = f.word(f["block"], f.load(f["program"], layout.RESOLVED))
    records, end = f.load(f["program"], layout.RECORDS), f.load(f["program"], layout.COMMANDS)
    events, start = f.load(queue, layout.EVENTS), f.variable(0)
    recorded = f.compare("ne", events, 0)
    with f.loop():
        i = at.get()
        with f.when(f.compare("uge", i, end)):
            f.leave()
        with f.when(f.compare("uge", f.load(queue, layout.ABORT, "monotonic"), f["time"])):
            f.leave()
        f.store(queue, layout.COMMAND, i, "monotonic")
        record = f.word(records, f.mul(i, layout.RECORD_WORDS))
        with f.when(f.compare("ne", f.load(record), layout.EXEC)):
            at.set(f.call("go", f["program"], f["block"], pointers, record, i))
            f.again()
        at.set(f.add(i, 1))
        with f.when(recorded):
            start.set(f.call("clock"))
        chunks = f.call("chunks", queue, record)
        with f.when(f.compare("ugt", chunks, 1)):
            f.call("open_job", queue, record, pointers, f["time"], f["scratch"])
        with f.when(f.compare("ule", chunks, 1)):
            f.call("kernel", record, pointers, 0, f.load(record, layout.ITERATIONS), f["scratch"])
        f.call("ended", queue, record)
        with f.when(recorded):
            f.call("record", events, f["time"], i, start.get(), 0)
    f.give(0)
    return f


def _lead(pause: str, mode: int) -> IRFunction:
    """The loop of worker 0: submissions in order."""
    f = IRFunction("lead", ("worker",))
    queue, since, patience = f.load(f["worker"], layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        head = f.load(queue, layout.COMPLETED)
        with f.when(f.compare("eq", f.load(queue, layout.SUBMITTED, "acquire"), head)):
            _idle(f, queue, since, patience, pause)
            _lead_sleeps(f, queue, head)
            since.set(0)
            f.again()
        since.set(0)
        begin = f.call("clock")
        entry = f.word(queue, f.mul(f.binary("urem", head, layout.CAPACITY), 2))
        time, scratch = f.add(head, 1), f.load(f["worker"], layout.PRIVATE)
        program, block = f.load(entry, layout.RING), f.load(entry, layout.RING + 1)
        call_c(f, "pthread_mutex_lock", f.word(queue, layout.LEADER))
        f.call("execute", queue, program, block, time, scratch)
        call_c(f, "pthread_mutex_unlock", f.word(queue, layout.LEADER))
        f.store(queue, layout.COMPLETED, time, "seq_cst")
        with f.when(f.compare("ne", f.load(queue, layout.WAITERS, "seq_cst"), 0)):
            lock(f, queue)
            call_c(f, "pthread_cond_broadcast", f.word(queue, layout.FINISHED))
            unlock(f, queue)
        _set_patience(f, patience, begin)
    f.give(0)
    return f


def _set_patience(f: IRFunction, patience: Variable, begin: str) -> None:
    """Let a worker spin for as long as its work since ``begin`` took."""
    least, most = AWAKE
    took = f.smaller(f.sub(f.call("clock"), begin), most)
    patience.set(took)
    with f.when(f.compare("ult", took, least)):
        patience.set(least)


def _idle(f: IRFunction, queue: str, since: Variable, patience: Variable, pause: str) -> None:
    """Return from the worker if the queue stops; else spin for a while."""
    with f.when(f.compare("ne", f.load(queue, layout.STOP, "acquire"), 0)):
        f.fetch_add(queue, layout.RETURNED, 1)
        f.give(0)
    f.line(pause)
    now = f.call("clock")
    with f.when(f.compare("eq", since.get(), 0)):
        since.set(now)
    with f.when(f.compare("ule", f.sub(now, since.get()), patience.get())):
        f.again()


def _lead_sleeps(f: IRFunction, queue: str, head: str) -> None:
    lock(f, queue)
    f.store(queue, layout.LEAD_SLEEPS, 1)
    with f.loop():
        with f.when(f.compare("ne", f.load(queue, layout.SUBMITTED), head)):
            f.leave()
        with f.when(f.compare("ne", f.load(queue, layout.STOP), 0)):
            f.leave()
        sleep(f, queue, layout.WORK)
    f.store(queue, layout.LEAD_SLEEPS, 0)
    unlock(f, queue)


def _help(pause: str, mode: int) -> IRFunction:
    """The loop of the other workers: chunks of the open job."""
    f = IRFunction("help", ("worker",))
    queue, since, patience = f.load(f["worker"], layout.QUEUE), f.variable(0), f.variable(0)
    f.call("write_mode", mode)
    with f.loop():
        left = f.binary("and", f.load(queue, layout.TICKET, "acquire"), _LEFT)
        with f.when(f.compare("ne", left, 0)):
            begin = f.call("clock")
            f.call("take", queue, f.load(f["worker"], layout.PRIVATE), 0)
            _set_patience(f, patience, begin)
            since.set(0)
            f.again()
        _idle(f, queue, since, patience, pause)
        since.set(0)
        _helper_sleeps(f, queue)
    f.give(0)
    return f


def _helper_sleeps(f: IRFunction, queue: str) -> None:
    lock(f, queue)
    f.fetch_add(queue, layout.SLEEPERS, 1)
    left = f.binary("and", f.load(queue, layout.TICKET, "seq_cst"), _LEFT)
    with f.when(f.compare("ne", left, 0)):
        f.fetch_add(queue, layout.SLEEPERS, -1)
        unlock(f, queue)
        f.again()
    with f.loop():
        with f.when(f.compare("ne", f.load(queue, layout.STOP, "seq_cst"), 0)):
            f.leave()
        woken = f.load(queue, layout.WOKEN)
        with f.when(f.compare("ne", woken, 0)):
            f.store(queue, layout.WOKEN, f.sub(woken, 1))
            f.leave()
        sleep(f, queue, layout.HELP)
    unlock(f, queue)
