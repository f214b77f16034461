"""Lists of calls of a driver's C functions, run by machine code: Python enters it once per replay.

    word = calls.store(2)                          a word for memory[2] of each run
    calls.call("set", set_address, 1, word, if_changed=True)
    calls.call("start", start_address, calls.word(5))
    calls.run(memory)

``if_changed``: the call is left out if no store since the call before it changed its word; the
first run has changed all. A call whose status is not 0 ends the run.

    store     its kind, bytes to the next record, address of the word, number of memory, offset
    call      address of the function, bytes to the next record, whether only if changed, mask of
              what has changed for the calls after it, number of memory and the word of the record
              that becomes it, number of the memory that becomes the handle that the function
              returns, mask of the status, a spare word, arguments
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from ctypes import addressof, c_int32, c_int64

from fnx.backends.llvm.binding import host_target
from fnx.backends.llvm.ir_builder import IRFunction, ir_function
from fnx.backends.llvm.kernel_cache import compile_cached

(_FUNCTION, _NBYTES, _IF_CHANGED, _CHANGED_MASK, _MEMORY, _PLACE, _RETURNS, _STATUS_MASK, _SPARE,
 _ARGUMENTS) = range(10)
_WORD, _NUMBER, _OFFSET, _STORE_WORDS = range(2, 6)  # of a store
_STORE64, _STORE32 = 0, 1  # kinds of stores; addresses of functions are larger
_MAX_ARGUMENTS = 9  # of a function; it ignores those that it does not take
_UNUSED, _EXTRA_MEMORY = 0, 1  # memory after that of the caller: an unused result
_STATE = -1  # the word ahead of the first record: a status, or whether words have changed


@ir_function
def _run_store(f: IRFunction, record: str, memory: str) -> None:
    """Write a word; return whether it changed."""
    word = f.load(record, _WORD)
    value = f.add(f.load(f.word_address(memory, f.load(record, _NUMBER))), f.load(record, _OFFSET))
    with f.when("eq", f.load(record, _FUNCTION), _STORE64):
        f.ret_if(0, "eq", f.load(word), value)
        f.store(word, 0, value)
        f.ret(1)
    low = f.emit(f"trunc i64 {value} to i32", "n")
    f.ret_if(0, "eq", f.load_signed(word, 32), f.emit(f"sext i32 {low} to i64", "n"))
    f.emit(f"store i32 {low}, ptr {f.emit(f'inttoptr i64 {word} to ptr', 'p')}, align 4")
    f.ret(1)


@ir_function
def _run_calls(f: IRFunction, first: str, end: str, memory: str) -> None:
    """Run the records from ``first`` to ``end``; return the address of the one that failed, or 0.
    """
    at, changed = f.variable(first), f.variable(f.load(first, _STATE))
    with f.loop():
        record = at.get()
        with f.when("eq", record, end):
            f.leave()
        at.set(f.add(record, f.load(record, _NBYTES)))
        function = f.load(record, _FUNCTION)
        with f.when("ule", function, _STORE32):
            changed.set(f.binary("or", changed.get(), f.call("run_store", record, memory)))
            f.continue_loop()
        with f.when("ugt", f.load(record, _IF_CHANGED), changed.get()):
            f.continue_loop()
        changed.set(f.binary("and", changed.get(), f.load(record, _CHANGED_MASK)))
        f.store(f.word_address(record, f.load(record, _PLACE)), 0,
                f.load(f.word_address(memory, f.load(record, _MEMORY))))
        arguments = [f.load(record, _ARGUMENTS + i) for i in range(_MAX_ARGUMENTS)]
        pointer = f.emit(f"inttoptr i64 {function} to ptr", "p")
        code = f.emit(f"call i64 {pointer}({', '.join(f'i64 {a}' for a in arguments)})", "r")
        f.store(f.word_address(memory, f.load(record, _RETURNS)), 0, code)
        low = f.emit(f"trunc i64 {code} to i32", "n")  # a status has no more bits
        status = f.binary("and", f.emit(f"sext i32 {low} to i64", "s"),
                          f.load(record, _STATUS_MASK))
        with f.when("ne", status, 0):
            f.store(first, _STATE, status)
            f.ret(record)
    f.store(first, _STATE, changed.get())


class CallRunner:
    """The native loop, which releases the GIL."""

    def __init__(self) -> None:
        text = _run_store().text() + _run_calls().text()
        self._library = compile_cached(text, ["run_calls"], host_target(), {})
        self.run: Callable[[int, int, int], int] = ctypes.CFUNCTYPE(*[c_int64] * 4)(
            self._library.addresses["run_calls"])


class CallList:
    """A list of calls. One thread at a time may run it.

    Args:
        runner: the loop.
        count: words of stores and constants.
        numbers: how many pieces of memory ``run`` gets.
        word: the type of words.

    Attributes:
        words: the words in order.
        used: how many of them the calls and stores so far use.
    """

    __slots__ = ("_closed", "_generation", "_memory", "_names", "_numbers", "_range", "_records",
                 "_runner", "_stored", "used", "words")

    def __init__(self, runner: CallRunner, count: int, numbers: int,
                 word: type[c_int32 | c_int64] = c_int64) -> None:
        self.words = (word * count)()
        self._memory = (c_int64 * (numbers + _EXTRA_MEMORY))()
        self._runner, self._closed, self._numbers = runner, (c_int64 * 0)(), numbers
        self.used = self._generation = 0
        self._stored: list[int] = []
        self._records: list[int] = [1]  # the state: all words have changed
        self._names: dict[int, str] = {}
        self._range: tuple[int, int, int] | None = None

    def word(self, value: int) -> int:
        """Add a constant word; return its address."""
        self.words[self.used] = value
        self.used += 1
        return addressof(self.words) + ctypes.sizeof(self.words._type_) * (self.used - 1)

    def store(self, number: int, offset: int = 0) -> int:
        """Add a store of memory by number, plus an offset; return the address of the word."""
        self._stored.append(self.used)
        word = self.word(0)
        kind = _STORE64 if self.words._type_ is c_int64 else _STORE32
        self._records += kind, 8 * _STORE_WORDS, word, number, offset
        return word

    def add(self, values: Iterable[int]) -> None:
        """Add constant words."""
        for value in values:
            self.word(value)

    def add_stores(self, places: Iterable[tuple[int, int]]) -> None:
        """Add stores of memory by number, plus an offset each."""
        for number, offset in places:
            self.store(number, offset)

    def call(self, name: str, function: int, *arguments: int, if_changed: bool = False,
             keeps_changed: bool = False, memory: tuple[int, int] | None = None,
             returns: int | None = None, has_status: bool = True) -> None:
        """Add a call of the function at an address.

        Args:
            name: of the function.
            function: its address.
            arguments: its arguments.
            if_changed: whether it is called only if a store since the last call changed its word.
            keeps_changed: whether the next call sees the changes, too.
            memory: a piece of memory by number, and which argument it becomes in each run.
            returns: the memory, by number, that becomes what it returns.
            has_status: whether it returns a status.
        """
        self._names[function] = name
        unused = self._numbers + _UNUSED
        number, argument = (unused, _SPARE - _ARGUMENTS) if memory is None else memory
        self._records += (function, 8 * (_ARGUMENTS + len(arguments)), if_changed, -keeps_changed,
                          number, _ARGUMENTS + argument, unused if returns is None else returns,
                          -(has_status and returns is None), 0, *arguments)

    def address_of(self, number: int) -> int:
        """Return where the handle of memory with this number is."""
        return addressof(self._memory) + ctypes.sizeof(c_int64) * number

    def handle(self, number: int) -> int:
        """Return the memory with this number, in the last run."""
        return self._memory[number]

    def run(self, memory: list[int], generation: int = 0) -> tuple[str, int] | None:
        """Run all calls; return the name and the status of one that failed, or None.

        In a new ``generation`` all memory differs from what had the same handles.
        """
        if generation != self._generation:
            self._forget_words()
            self._generation = generation
        self._memory[:self._numbers] = memory  # type: ignore[assignment]  # ints are converted
        failed = self._runner.run(*(self._range or self._close()))
        if not failed:
            return None
        self._forget_words()
        return self._names[c_int64.from_address(failed).value], self._closed[0]

    def _forget_words(self) -> None:
        """Let the next stores count as changes."""
        for word in self._stored:
            self.words[word] = 0

    @property
    def has_changed(self) -> bool:
        """Whether the last runs changed words after their last call."""
        return bool(self._closed[0])

    @has_changed.setter
    def has_changed(self, value: bool) -> None:
        self._closed[0] = value

    def _close(self) -> tuple[int, int, int]:
        """Move the records to memory; arguments beyond the last are read, so there must be some."""
        self._closed = (c_int64 * (len(self._records) + _MAX_ARGUMENTS))(*self._records)
        first = addressof(self._closed)
        self._range = first + 8, first + 8 * len(self._records), addressof(self._memory)
        return self._range


class ArgumentWords:
    """The arguments of launches as words of one block, filled in for the memory of each call.

    Args:
        runner: of lists of calls.
        rows: of each launch, words, memory by number with an offset, and further words.
        numbers: how many pieces of memory a call has.
        word: the type of words.
        alignment: bytes of which the words of a launch begin at a multiple.

    Attributes:
        starts: where the words of each launch begin, in bytes.
        nbytes: bytes of all.
        address: where they are.
        calls: the stores that fill them in; a driver adds the calls that use them.
    """

    def __init__(self, runner: CallRunner,
                 rows: Sequence[tuple[Sequence[int], Sequence[tuple[int, int]], Sequence[int]]],
                 numbers: int, word: type[c_int32 | c_int64] = c_int64, alignment: int = 8) -> None:
        size = ctypes.sizeof(word)
        self.starts, self.nbytes = list[int](), 0
        for row in rows:
            self.starts.append(self.nbytes)
            self.nbytes += -(-size * sum(map(len, row)) // alignment) * alignment
        self.calls = CallList(runner, self.nbytes // size, numbers, word)
        self.address = addressof(self.calls.words)
        for start, (before, places, behind) in zip(self.starts, rows):
            self.calls.used = start // size
            self.calls.add(before)
            self.calls.add_stores(places)
            self.calls.add(behind)
