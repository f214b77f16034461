"""The fastest call from Python into the native loop: one builtin function per command buffer.

    enter(ins, outs, temporary)  ->  True; False if the numbers of arguments are wrong

A call through ctypes takes half a microsecond, and so does writing an argument block from Python.
This function is a native builtin (Python's C API, in LLVM IR): it reads ``ptr`` of the storages
itself, writes the block on the stack and runs the commands. No block is acquired, and no exception
can occur in between. Long work releases the GIL. The workers help if there are some, if their
scratch is large enough, and if no other thread leads them.

    entry     its constants: program, numbers of inputs and outputs, words of the block, offset of
              scratch in the temporary memory, whether to keep the GIL, the name ``ptr``, address
              of a word with the queue's address (0: workers do not help), scratch of a worker,
              words of temporary memory to allocate on the stack (0: the caller allocates it)
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Sequence
from typing import Any

from fnx.backends.cpu import layout
from fnx.backends.cpu.workers import call_c
from fnx.backends.llvm.ir_builder import IRFunction, ir_function

# Functions of Python's stable ABI: name, number of arguments.
PYTHON_API = {"PyLong_AsSsize_t": 1, "PySequence_Size": 1, "PySequence_GetItem": 2,
              "PyObject_GetAttr": 2, "Py_DecRef": 1, "PyBool_FromLong": 1, "PyEval_SaveThread": 0,
              "PyEval_RestoreThread": 1, "PyErr_CheckSignals": 0, "PyErr_Clear": 0, "Py_IncRef": 1,
              "PyObject_RichCompareBool": 3, "PyObject_Vectorcall": 4, "PyObject_CallNoArgs": 1,
              "PyType_GenericAlloc": 2, "PyDict_GetItemWithError": 2, "PyDict_SetItem": 3,
              "PyCell_Get": 1, "PyIter_Next": 1, "PyTuple_New": 1, "PyTuple_SetItem": 3,
              "PyTuple_GetItem": 2, "PyTuple_Size": 1, "PyList_Size": 1}
(PROGRAM, INS, OUTS, BLOCK_WORDS, PRIVATE, KEEPS_GIL, NAME, QUEUE_PTR, SCRATCH_CAPACITY,
 STACK_WORDS, ENTRY_WORDS) = range(11)
MAX_STACK_WORDS = 2048  # of a block on the stack, and of temporary memory there
_ALIGNMENT = 64  # bytes: alignment of temporary memory that kernels expect
_FASTCALL = 0x80  # METH_FASTCALL
_FOREVER = (1 << 62) - 1
_POINTER = sys.intern("ptr")

EnterFunction = Callable[[Sequence[Any], Sequence[Any], int], bool]


def declarations() -> str:
    """Return the declarations of ``PYTHON_API``; addresses are i64."""
    return "".join(f"declare i64 @{name}({', '.join(['i64'] * count)})\n"
                   for name, count in PYTHON_API.items())


def c_int(f: IRFunction, word: str) -> str:
    """Return the C ``int`` that a function returned."""
    return f.emit(f"trunc i64 {word} to i32", "s")


@ir_function
def _pointers(f: IRFunction, storages: str, count: str, to: str, name: str) -> None:
    """Write ``ptr`` of ``count`` storages to memory; 0: done, 1: wrong count, 2: exception."""
    f.ret_if(1, "ne", f.call("PySequence_Size", storages), count)
    with f.count(count) as i:
        storage = f.call("PySequence_GetItem", storages, i)
        f.ret_if(2, "eq", storage, 0)
        pointer = f.call("PyObject_GetAttr", storage, name)
        f.call("Py_DecRef", storage)  # the caller holds it, too
        f.ret_if(2, "eq", pointer, 0)
        f.store(f.word_address(to, i), 0, f.call("PyLong_AsSsize_t", pointer))
        f.call("Py_DecRef", pointer)


@ir_function
def _try_lead(f: IRFunction, known: str) -> None:
    """Try to become leader of the workers; return the queue, or 0.

    The caller holds the GIL, as does a thread that replaces the workers, which waits for leaders to
    finish.
    """
    queue_ptr = f.load(known, QUEUE_PTR)
    f.ret_if(0, "eq", queue_ptr, 0)
    queue = f.load(queue_ptr)
    f.ret_if(0, "eq", queue, 0)
    f.ret_if(0, "ult", f.load(queue, layout.SCRATCH_CAPACITY), f.load(known, SCRATCH_CAPACITY))
    refused = call_c(f, "pthread_mutex_trylock", f.word_address(queue, layout.LEADER))
    f.ret_if(0, "ne", refused, 0, 32)
    f.fetch_add(queue, layout.LEADER_COUNT, 1)
    f.ret(queue)


@ir_function
def _enter(f: IRFunction, self: str, arguments: str, count: str) -> None:
    """The builtin function; the object that it is bound to is the address of its entry."""
    entry = f.call("PyLong_AsSsize_t", self)
    block = f.words(f.load(entry, BLOCK_WORDS))
    ins, argument_words = f.load(entry, INS), f.word_address(block, layout.ARGUMENTS)
    for i, (number, target) in enumerate((
            (ins, argument_words), (f.load(entry, OUTS), f.word_address(argument_words, ins)))):
        failed = f.call("pointers", f.load(arguments, i), number, target, f.load(entry, NAME))
        with f.when("eq", failed, 1):
            f.ret(f.call("PyBool_FromLong", 0))
        f.ret_if(0, "ne", failed, 0)
    temporary = f.call("PyLong_AsSsize_t", f.load(arguments, 2))
    f.ret_if(0, "ne", f.call("run_here", entry, block, temporary), 0)
    f.ret(f.call("PyBool_FromLong", 1))


@ir_function
def _run_here(f: IRFunction, record: str, block: str, temporary: str) -> None:
    """Run a program on a block that holds its argument addresses; return 1 on Ctrl-C, else 0."""
    memory, stack_words = f.variable(temporary), f.load(record, STACK_WORDS)
    with f.when("ne", stack_words, 0):
        memory.set(f.binary("and", f.add(f.words(stack_words), _ALIGNMENT - 1), -_ALIGNMENT))
    f.store(block, layout.SCRATCH, f.add(memory.get(), f.load(record, PRIVATE)))
    f.store(block, layout.ARENA, memory.get())
    f.store(block, layout.RESUME_AT, 0)
    queue, state = f.call("try_lead", record), f.variable(0)
    with f.when("eq", f.load(record, KEEPS_GIL), 0):
        state.set(f.call("PyEval_SaveThread"))
    f.call("run", f.load(record, PROGRAM), block, _FOREVER, queue)
    with f.when("ne", queue, 0):
        call_c(f, "pthread_mutex_unlock", f.word_address(queue, layout.LEADER))
        f.fetch_add(queue, layout.LEADER_COUNT, -1)
    with f.when("ne", state.get(), 0):
        f.call("PyEval_RestoreThread", state.get())
    # Python may have missed a signal: a thread that gave up the GIL later resets the flag that
    # tells the next one to check (``RESET_GIL_DROP_REQUEST`` in Python/ceval_gil.h).
    f.ret_if(1, "ne", c_int(f, f.call("PyErr_CheckSignals")), 0, 32)


FUNCTIONS = (_pointers, _try_lead, _run_here, _enter)


class MethodDef(ctypes.Structure):
    """PyMethodDef of Python's C API."""

    _fields_ = (("name", ctypes.c_char_p), ("function", ctypes.c_void_p),
                ("flags", ctypes.c_int), ("doc", ctypes.c_char_p))


class CallEntryFactory:
    """Creates builtin functions from the native ``enter``; must outlive all of them."""

    def __init__(self, address: int) -> None:
        self._method = MethodDef(b"enter", address, _FASTCALL, None)
        self._make: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.py_object,
                                            ctypes.c_void_p)(("PyCFunction_NewEx",
                                                              ctypes.pythonapi))

    def enter(self, program: int, ins: int, outs: int, words: int, private: int, keeps_gil: bool,
              queue_ptr: int, scratch: int, stack: int) -> tuple[EnterFunction, Any]:
        """Create the function of a program, and memory that must live as long as the function.

        ``stack`` is the size in bytes of temporary memory to allocate on the stack.
        """
        entry = (ctypes.c_int64 * ENTRY_WORDS)(program, ins, outs, words, private, keeps_gil,
                                               id(_POINTER), queue_ptr, scratch,
                                               -(-(stack + _ALIGNMENT) // 8) if stack else 0)
        function: EnterFunction = self._make(ctypes.addressof(self._method),
                                             ctypes.addressof(entry), None)
        return function, entry
