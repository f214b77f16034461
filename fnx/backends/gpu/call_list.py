"""Lists of calls of a driver's C functions, run by machine code: Python enters it once per replay.

    word = calls.store(2)                          a word for memory[2] of each run
    calls.call("set", set_address, 1, word, if_changed=True)
    calls.call("start", start_address, calls.word(5))
    calls.run(memory)

``if_changed``: the call is left out if no store since the call before it changed its word. A call
whose status is not 0 ends the run.

    store     0, bytes to the next record, address of the word, number
    call      address of the function, bytes to the next record, whether only if changed, arguments
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import addressof, c_int64

from fnx.backends.llvm.binding import host_target
from fnx.backends.llvm.ir_builder import IRFunction, ir_function
from fnx.backends.llvm.kernel_cache import compile_cached

_FUNCTION, _NBYTES, _IF_CHANGED, _ARGUMENTS = range(4)
_WORD, _NUMBER = 2, 3  # of a store
_MAX_ARGUMENTS = 9  # of a function; it ignores those that it does not take
_STATUS = -1  # the word ahead of the first record


@ir_function
def _run_calls(f: IRFunction, first: str, end: str, memory: str) -> None:
    """Run the records from ``first`` to ``end``; return the address of the one that failed, or 0.
    """
    at, changed = f.variable(first), f.variable(0)
    with f.loop():
        record = at.get()
        f.ret_if(0, "eq", record, end)
        at.set(f.add(record, f.load(record, _NBYTES)))
        function = f.load(record, _FUNCTION)
        with f.when("eq", function, 0):
            word = f.load(record, _WORD)
            value = f.load(f.word_address(memory, f.load(record, _NUMBER)))
            with f.when("ne", f.load(word), value):
                f.store(word, 0, value)
                changed.set(1)
            f.continue_loop()
        with f.when("ugt", f.load(record, _IF_CHANGED), changed.get()):
            f.continue_loop()
        changed.set(0)
        arguments = [f.load(record, _ARGUMENTS + i) for i in range(_MAX_ARGUMENTS)]
        pointer = f.emit(f"inttoptr i64 {function} to ptr", "p")
        status = f.emit(f"call i32 {pointer}({', '.join(f'i64 {a}' for a in arguments)})", "r")
        with f.when("ne", status, 0, 32):
            f.store(first, _STATUS, f.emit(f"sext i32 {status} to i64", "s"))
            f.ret(record)


class CallRunner:
    """The native loop, which releases the GIL."""

    def __init__(self) -> None:
        function = _run_calls()
        self._library = compile_cached(function.text(), [function.name], host_target(), {})
        self.run: Callable[[int, int, int], int] = ctypes.CFUNCTYPE(*[c_int64] * 4)(
            self._library.addresses[function.name])


class CallList:
    """A list of calls. One thread at a time may run it.

    Args:
        runner: the loop.
        count: words of stores and constants.
        numbers: how many pieces of memory ``run`` gets.
    """

    __slots__ = ("_closed", "_generation", "_memory", "_names", "_range", "_records", "_runner",
                 "_stored", "_used", "_words")

    def __init__(self, runner: CallRunner, count: int, numbers: int) -> None:
        self._words, self._memory = (c_int64 * count)(), (c_int64 * numbers)()
        self._runner, self._closed = runner, (c_int64 * 0)()
        self._used = self._generation = 0
        self._stored: list[int] = []
        self._records: list[int] = [0]
        self._names: dict[int, str] = {}
        self._range: tuple[int, int, int] | None = None

    def word(self, value: int) -> int:
        """Add a constant word; return its address."""
        self._words[self._used] = value
        self._used += 1
        return addressof(self._words) + 8 * self._used - 8

    def store(self, number: int) -> int:
        """Add a store of the memory with this number; return the address of the word."""
        self._stored.append(self._used)
        word = self.word(0)
        self._records += 0, 8 * (_NUMBER + 1), word, number
        return word

    def call(self, name: str, function: int, *arguments: int, if_changed: bool = False) -> None:
        """Add a call of the function at an address."""
        self._names[function] = name
        self._records += function, 8 * (_ARGUMENTS + len(arguments)), if_changed, *arguments

    def run(self, memory: list[int], generation: int = 0) -> tuple[str, int] | None:
        """Run all calls; return the name and the status of one that failed, or None.

        In a new ``generation`` all memory differs from what had the same handles.
        """
        if generation != self._generation:
            for word in self._stored:
                self._words[word] = 0
            self._generation = generation
        self._memory[:] = memory  # type: ignore[assignment]  # ints are converted
        failed = self._runner.run(*(self._range or self._close()))
        if not failed:
            return None
        return self._names[c_int64.from_address(failed).value], self._closed[0]

    def _close(self) -> tuple[int, int, int]:
        """Move the records to memory; arguments beyond the last are read, so there must be some."""
        self._closed = (c_int64 * (len(self._records) + _MAX_ARGUMENTS))(*self._records)
        first = addressof(self._closed)
        self._range = first + 8, first + 8 * len(self._records), addressof(self._memory)
        return self._range
