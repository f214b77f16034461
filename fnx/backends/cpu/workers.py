"""The cpu's worker threads: native loops, as LLVM IR.

Who leads walks the commands of a submission and opens a *job* for each that has several chunks:
worker 0, which takes submissions in order, or the caller of a short one, which it runs itself
while nothing is queued (a mutex says who; a caller that does not get it runs alone). The ticket
word has the job's number, the first chunk that is left and how many are: a worker takes a chunk
by compare-and-swap, so one that is late can never take a chunk of another job, and a job's fields
change only while its ticket shows no chunks. The lead takes chunks from the front, the others
from the back: from call to call each core has the same part of the data in its caches. Sleepers
announce themselves before they look a last time, publishers look for sleepers after publishing
(both sequentially consistent), so no wake-up is lost. The abort word holds a timeline value:
submissions up to it are skipped, tested before each command and chunk.

Who has nothing to do looks for work for as long as what it did last took, then sleeps: of what a
processor does at most half is in vain. Short jobs take less than waking a worker is worth. They pay
while all workers are awake and have a processor each, and wake workers only where the last job that
could be shared ended no longer ago than this one takes. Where in one of them a worker is held up in
its chunk until the lead has to sleep, the lead runs the next short jobs alone: twice as many as
after the last such time, less one for each job since that went well.
"""

from __future__ import annotations

from fnx.backends.cpu import layout
from fnx.backends.llvm.ir_builder import IRFunction, IRValue, Variable

AWAKE = 20_000, 200_000  # nanoseconds at least and at most that a worker looks for work
_PATIENCE = 5000  # rounds of ``pause`` of the lead, which waits for the last chunks of a job
_FIRST, _MOST = 32, 1 << 14  # short jobs that the lead runs alone after it had to sleep
_MASK_WORDS = 16  # of a set of processors
_LEFT = layout.MOST_CHUNKS


def functions(pause: str, mode: int, places: bool) -> list[IRFunction]:
    """What runs on the workers; ``pause`` is an instruction, ``mode`` the float mode, ``places``
    whether the system says, and is told, where threads run."""
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
    """Take and run chunks of the open job until none is left, from the front (1) or the back."""
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
    """Wake sleepers, as many as there are and at most so many. They no longer count as asleep:
    until they run nobody pays for waking them again."""
    f = IRFunction("wake", ("queue", "most"))
    queue = f["queue"]
    lock(f, queue)
    count = f.smaller(f.load(queue, layout.SLEEPERS), f["most"])
    f.fetch_add(queue, layout.SLEEPERS, f.sub(0, count))
    f.store(queue, layout.WOKEN, f.add(f.load(queue, layout.WOKEN), count))
    f.call("make_room", queue)
    unlock(f, queue)  # first: who is woken finds it unlocked
    with f.count(count):
        call_c(f, "pthread_cond_signal", f.word(queue, layout.HELP))
    f.give(0)
    return f


def _make_room(places: bool) -> IRFunction:
    """Keep the helpers off the processor of this thread, which goes on: a sleeper may else be woken
    on it and share it, where a processor that is idle counts as lent to others (virtual ones)."""
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
    """Run one command of several chunks on all workers (called by who leads)."""
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
    """Nanoseconds of a clock that only goes on."""
    f = IRFunction("clock", ())
    now = f.space(16)
    call_c(f, "clock_gettime", 1, now)  # 1: CLOCK_MONOTONIC, as time.monotonic_ns
    f.give(f.add(f.mul(f.load(now), 1_000_000_000), f.load(now, 1)))
    return f


def _record() -> IRFunction:
    """Note when a record of a submission ran, or a chunk of it; beyond what fits only that it
    did."""
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
    """In how many chunks who leads runs a record now: short ones are shared only where the others
    are awake, or where such jobs follow one another."""
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
    """Note when a record ended that could be shared."""
    f = IRFunction("ended", ("queue", "record"))
    with f.when(f.compare("ugt", f.load(f["record"], layout.CHUNKS), 1)):
        f.store(f["queue"], layout.RECENT, f.call("clock"))
    f.give(0)
    return f


def _execute() -> IRFunction:
    """All commands of one submission."""
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
    """How long a worker looks for work: as long as what it did since then took."""
    least, most = AWAKE
    took = f.smaller(f.sub(f.call("clock"), begin), most)
    patience.set(took)
    with f.when(f.compare("ult", took, least)):
        patience.set(least)


def _idle(f: IRFunction, queue: str, since: Variable, patience: Variable, pause: str) -> None:
    """Nothing to do: leave if the queue stops, else look again, for a while."""
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
