"""Data layouts, in words of 8 bytes, that Python and the native loops of the cpu share.

    program   header of a command buffer, immutable: counts, slot table, records
    record    EXEC: kernel address, first slot, scalars, iterations, chunk, chunks,
              nanoseconds if it is short, else 0
              LOOP: register, trips, moves, their count, the record after the loop
              NEXT: register, trips, moves, their count, the first record inside
              TEST: slot of a bool, the record to go to if it is false
              SWITCH: slot of an int32, number of branches, address of their first records
              JUMP: the record to go to
    move      a pointer that depends on a loop, and the slots that hold it: numbers of slots and of
              registers, the slots, the registers; their parity selects one of the alternatives
              that follow: base, offset, terms (register, bytes per iteration)
    block     of one call: scratch, arena, the record to resume at (0: not started),
              argument pointers, an iteration counter (register) per loop, resolved slots
    queue     ring buffer of (program, block), timeline values, the open job, pthread objects,
              address of the event buffer (0: none), the leader
"""

from __future__ import annotations

# program
COMMANDS, SLOTS, SLOT_TABLE, RECORDS, RESOLVED, DEPTH, PROGRAM_WORDS = range(7)
# record: its kind, then words of the kind
EXEC, LOOP, NEXT, TEST, SWITCH, JUMP = range(6)
KIND, KERNEL, BUFFERS, SCALARS, ITERATIONS, CHUNK, CHUNKS, SHORT_NS, RECORD_WORDS = range(9)
REGISTER, TRIPS, MOVES, COUNT, TARGET = range(1, 6)
SLOT, BRANCHES = 1, 2
# block
SCRATCH, ARENA, RESUME_AT, ARGUMENTS = range(4)
# worker
QUEUE, PRIVATE_SCRATCH, THREAD, WORKER_WORDS = 0, 1, 2, 8
# queue: words that different threads write are on separate cache lines (16 words: pairs of lines
# are prefetched together)
SUBMITTED, COMPLETED, ABORT, STOP, TICKET, DONE = 0, 16, 32, 40, 48, 64
JOB_RECORD, JOB_SLOTS, JOB_NUMBER, JOB_TIME = 80, 81, 82, 83
SLEEPERS, LEADER_SLEEPS, LEADER_WAITS, WAITERS, COMMAND, RETURNED = range(96, 102)
(RUN_ALONE, BACKOFF, EVENTS, SCRATCH_CAPACITY, LEADER_COUNT, LAST_SHARED_END, WOKEN, WORKERS,
 WORKER_COUNT, RESERVED_CPU) = range(102, 112)
# events of a recording: count, capacity, then for each: submission, record, start, stop, and for a
# chunk the scratch of the worker that ran it; 0 for the whole record, which follows its chunks
EVENT_COUNT, EVENT_LIMIT, FIRST_EVENT, EVENT_WORDS = 0, 1, 2, 5
MUTEX, SUBMITTED_COND, JOB_OPENED, JOB_FINISHED = 112, 128, 144, 160
FINISHED, LEADER, RING = 176, 192, 208
CAPACITY = 64
QUEUE_WORDS = RING + 2 * CAPACITY
# the ticket: job number, first remaining chunk, number of remaining chunks
NUMBER_SHIFT, FIRST_SHIFT, MOST_CHUNKS = 32, 16, (1 << 16) - 1
