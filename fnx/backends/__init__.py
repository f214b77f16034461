"""Devices: storage, command buffers, queues, the disk cache.

    cpu                      the host: worker threads and a native command loop (backends/cpu)
    interp, trace, null      the NumPy interpreter; the same with a log; a recorder without memory
    opencl, cuda, webgpu     drivers below backends/gpu
    soft                     the same with threads as queues, for tests

A device encodes COMMANDS once (device/base.py); device/hcq.py has what all queues share: decoded
commands, the timeline, and what a call in flight retains; device/queues.py has what several queues
wait for: docs/queues.md. The devices other than ``soft`` have one queue, in order.

**Memory** (device/allocator.py). Large arrays of zeros are pages that the system has not provided
yet (``DeviceBase.zeros``). Memory is refused only after work in flight, garbage and free blocks are
released; unfinished work may hold ``config.flight_bytes``.

**Disk cache** (backends/disk: cache.py, private_files.py, background_writer.py). It is read only if
nobody else may write it, and stays below ``config.cache_bytes``. Writes happen after the call, on a
thread for which the end of the process waits a second. ``fnx.cache`` lists, exports and clears it.

**Ctrl-C, forks, exit.** A first Ctrl-C leaves the wait; another within 2 s, or during the same
work, aborts what is submitted; workers that do not return within 1 s are abandoned and replaced.
Around a fork work is drained for 1 s; unfinished work is refused in the child, where locks are open
and modules are complete; no thread is inside LLVM then (core/support/process.py). At exit nothing
more is compiled, and the process waits for LLVM only. ``make attack`` searches for faults in all
this.

**Profiles** (fnx/profiling.py, device/profiling.py). All open devices record. On GPUs each command
is waited for and timed by the host; the cpu's workers write events (cpu/profile_events.py), and
the queues of ``soft`` know their times. Time
that no kernel took (``gaps``, ``outside``) has rows of its own, so a table sums to the elapsed
time.
"""
