"""A small builder of LLVM IR text for the queue's native loops: 64-bit integers and control flow.

Every value is an i64 (addresses too); memory is words of 8 bytes at (address, index). Local
variables are stack slots; ``with`` statements create blocks:

>>> @ir_function
... def count(f: IRFunction, limit: str) -> None:
...     i = f.variable(0)
...     with f.loop():
...         f.ret_if(i.get(), "uge", i.get(), limit)
...         i.set(f.add(i.get(), 1))
>>> print(count().text().splitlines()[0])
define i64 @count(i64 %limit) nounwind {
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any

IRValue = str | int  # an SSA name or a constant


class Variable:
    """A local variable of an IRFunction."""

    __slots__ = ("_function", "_slot")

    def __init__(self, function: IRFunction, slot: str) -> None:
        self._function, self._slot = function, slot

    def get(self) -> str:
        """Load its current value."""
        return self._function.emit(f"load i64, ptr {self._slot}", "v")

    def set(self, value: IRValue) -> None:
        """Assign a value."""
        self._function.emit(f"store i64 {value}, ptr {self._slot}")


class IRFunction:
    """A function under construction."""

    def __init__(self, name: str, params: Sequence[str]) -> None:
        self.name, self.params = name, tuple(params)
        self._slots: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self._is_terminated = False  # whether the current block has its terminator
        self._exits: list[tuple[str, str]] = []  # (next iteration, exit) of each open loop

    def text(self) -> str:
        """The function as LLVM IR."""
        params = ", ".join(f"i64 %{p}" for p in self.params)
        body = "\n".join(["entry:", *self._slots, *self._lines])
        return f"define i64 @{self.name}({params}) nounwind {{\n{body}\n}}\n"

    # ---- straight code ----------------------------------------------------------------------

    def _fresh(self, hint: str) -> str:
        self._count += 1
        return f"{hint}{self._count}"

    def emit(self, text: str, hint: str = "") -> str:
        """Append an instruction. With a hint its result gets a name, which is returned."""
        if self._is_terminated:
            return "poison"  # code after a terminator is unreachable
        name = f"%{self._fresh(hint)}" if hint else ""
        self._lines.append(f"  {name} = {text}" if hint else f"  {text}")
        return name

    def variable(self, value: IRValue) -> Variable:
        """Declare a local variable with an initial value."""
        slot = f"%{self._fresh('slot')}"
        self._slots.append(f"  {slot} = alloca i64")
        variable = Variable(self, slot)
        variable.set(value)
        return variable

    def alloca_bytes(self, nbytes: int) -> str:
        """Allocate bytes on the stack; return their address."""
        slot = f"%{self._fresh('space')}"
        self._slots.append(f"  {slot} = alloca [{nbytes} x i8], align 16")
        return self.emit(f"ptrtoint ptr {slot} to i64", "a")

    def words(self, count: IRValue) -> str:
        """Allocate a number of words that is known at run time only; return their address."""
        space = self.emit(f"alloca i64, i64 {count}, align 16", "space")
        return self.emit(f"ptrtoint ptr {space} to i64", "a")

    def binary(self, op: str, a: IRValue, b: IRValue) -> str:
        """Append an integer instruction."""
        return self.emit(f"{op} i64 {a}, {b}", "b")

    def add(self, a: IRValue, b: IRValue) -> str:
        return self.binary("add", a, b)

    def sub(self, a: IRValue, b: IRValue) -> str:
        return self.binary("sub", a, b)

    def mul(self, a: IRValue, b: IRValue) -> str:
        return self.binary("mul", a, b)

    def compare(self, relation: str, a: IRValue, b: IRValue, bits: int = 64) -> str:
        """Compare integers of so many bits, for ``if_then``."""
        return self.emit(f"icmp {relation} i{bits} {a}, {b}", "c")

    def when(self, relation: str, a: IRValue, b: IRValue, bits: int = 64
             ) -> AbstractContextManager[None]:
        """Run the block if a comparison holds."""
        return self.if_then(self.compare(relation, a, b, bits))

    def ret_if(self, value: IRValue, relation: str, a: IRValue, b: IRValue, bits: int = 64) -> None:
        """Return a value from the function if a comparison holds."""
        with self.when(relation, a, b, bits):
            self.ret(value)

    def umin(self, a: IRValue, b: IRValue) -> str:
        """Return the smaller of two unsigned values."""
        truth = self.compare("ult", a, b)
        return self.emit(f"select i1 {truth}, i64 {a}, i64 {b}", "m")

    # ---- memory -----------------------------------------------------------------------------

    def word_address(self, address: IRValue, index: IRValue = 0) -> str:
        """Return the address of a word."""
        return self.add(address, self.mul(index, 8) if isinstance(index, str) else index * 8)

    def _pointer(self, address: IRValue, index: IRValue) -> str:
        return self.emit(f"inttoptr i64 {self.word_address(address, index)} to ptr", "p")

    def load(self, address: IRValue, index: IRValue = 0, order: str = "") -> str:
        """Load a word; ``order`` makes the access atomic."""
        p = self._pointer(address, index)
        kind = "load atomic" if order else "load"
        return self.emit(f"{kind} i64, ptr {p} {order}, align 8", "l")

    def load_signed(self, address: IRValue, bits: int) -> str:
        """Load a signed integer of a few bits."""
        p = self._pointer(address, 0)
        n = self.emit(f"load i{bits}, ptr {p}, align {bits // 8}", "n")
        return self.emit(f"sext i{bits} {n} to i64", "l")

    def store(self, address: IRValue, index: IRValue, value: IRValue, order: str = "") -> None:
        """Store a word; ``order`` makes the access atomic."""
        p = self._pointer(address, index)
        kind = "store atomic" if order else "store"
        self.emit(f"{kind} i64 {value}, ptr {p} {order}, align 8")

    def fetch_add(self, address: IRValue, index: IRValue, value: IRValue) -> str:
        """Add atomically; return the previous value."""
        p = self._pointer(address, index)
        return self.emit(f"atomicrmw add ptr {p}, i64 {value} seq_cst", "f")

    def compare_exchange(self, address: IRValue, index: IRValue, old: IRValue, new: IRValue) -> str:
        """Compare and swap: write ``new`` if the word is ``old``; return whether it was."""
        p = self._pointer(address, index)
        pair = self.emit(f"cmpxchg ptr {p}, i64 {old}, i64 {new} seq_cst seq_cst", "x")
        return self.emit(f"extractvalue {{i64, i1}} {pair}, 1", "c")

    # ---- control ----------------------------------------------------------------------------

    def _jump(self, label: str) -> None:
        self.emit(f"br label %{label}")
        self._is_terminated = True

    def _block(self, label: str) -> None:
        if not self._is_terminated:
            self._jump(label)
        self._lines.append(f"{label}:")
        self._is_terminated = False

    @contextlib.contextmanager
    def if_then(self, truth: str) -> Iterator[None]:
        """Run the block if ``truth`` holds."""
        then, exit_label = self._fresh("then"), self._fresh("behind")
        self.emit(f"br i1 {truth}, label %{then}, label %{exit_label}")
        self._is_terminated = True
        self._block(then)
        yield
        self._block(exit_label)

    @contextlib.contextmanager
    def loop(self) -> Iterator[None]:
        """Repeat the block until ``leave``."""
        head, exit_label = self._fresh("loop"), self._fresh("behind")
        self._block(head)
        self._exits.append((head, exit_label))
        yield
        if not self._is_terminated:
            self._jump(head)
        self._exits.pop()
        self._block(exit_label)

    def leave(self) -> None:
        """Leave the innermost loop."""
        self._jump(self._exits[-1][1])

    def continue_loop(self) -> None:
        """Continue with the next iteration of the innermost loop."""
        self._jump(self._exits[-1][0])

    @contextlib.contextmanager
    def count(self, limit: IRValue) -> Iterator[str]:
        """Repeat the block for i = 0 .. limit - 1 (no ``again`` inside)."""
        counter = self.variable(0)
        with self.loop():
            i = counter.get()
            with self.if_then(self.compare("uge", i, limit)):
                self.leave()
            yield i
            counter.set(self.add(i, 1))

    def call(self, name: str, *arguments: IRValue) -> str:
        """Call a function of this module that takes and returns i64."""
        return self.emit(f"call i64 @{name}({', '.join(f'i64 {a}' for a in arguments)})", "r")

    def ret(self, value: IRValue) -> None:
        """Return from the function."""
        self.emit(f"ret i64 {value}")
        self._is_terminated = True


def ir_function(emit: Callable[..., None]) -> Callable[..., IRFunction]:
    """Return a builder of the function that ``emit`` writes, with its name and parameters.

    The keyword-only parameters of ``emit`` are known when it is built. Where it does not return, it
    returns 0.
    """
    @functools.wraps(emit)
    def build(**known: Any) -> IRFunction:
        params = emit.__code__.co_varnames[1:emit.__code__.co_argcount]
        f = IRFunction(emit.__name__.removeprefix("_"), params)
        emit(f, *[f"%{param}" for param in params], **known)
        f.ret(0)
        return f
    return build
