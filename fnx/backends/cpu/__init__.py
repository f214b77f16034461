"""The host as a queue device: memory, worker threads, native command loop.

A command buffer is a program of records with jumps (encoding.py, layout.py), interpreted natively
(runtime.py): an iteration of a loop takes some 15 ns in addition to its kernels. PAR ranges are
split into fixed chunks, which workers share (workers.py). The abort word is tested before each
record; a fault names the kernel, and the iteration of each loop around it.

**Where a call runs** (device.py). Work that is estimated to take up to 2 ms, and leaves no worker
idle for long, runs on the calling thread, if nothing is queued: the caller leads the workers, so
nothing is handed over and nobody has to be woken at the end. Short kernels are shared only while
workers are awake (they spin for as long as their last work took), or if one follows another. Of a
loop with a condition the first steps run inline.

**Entry.** Three ways lead into the native loop, each faster than the one before: ctypes and an
argument block written from Python; a builtin function per command buffer (call_entry.py: LLVM IR on
Python's C interface), which reads the storages' addresses and saves 1.2 us; and a native method
instead of ``Jitted.__call__`` (native_call.py), which runs no Python at all if arguments and
results are Arrays: 1.6 -> 0.45 us for a small call. The native method reads the slots of Arrays and
storages, compares variables, settings and open traces with a record (core/ir/kernel_code.py), takes
memory for results and runs the commands. Whatever matches no record (numbers, containers, traces,
an exhausted pool) goes to the method in Python, with nothing done yet. Offsets of slots are found
by looking for a value that was put there; if they are not found, or if threads run without the GIL,
all calls are Python's.
"""
