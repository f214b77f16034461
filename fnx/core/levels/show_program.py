"""Print programs, one instruction per line, and commands as calls of kernels on slots.

    for v7 in 0 .. 3:
      v8 = v7 * 20                         # index
      v9 = load(&x0[v8], mask=v1)          # float32x16
      store(&o3[v8], v9)

An address is printed where it is used; ``phi`` is a loop-carried value, ``last`` its final value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fnx.core.ir import accessors, build, kernel_args, ops
from fnx.core.ir.uop import UOp
from fnx.core.levels.show_text import Text, format_const, format_op
from fnx.core.support.errors import kernel_label

_TYPE_COLUMN = 40  # column of the types


def program_lines(program: UOp) -> list[str]:
    """Format a PROGRAM."""
    printer = _ProgramPrinter()
    out: list[str] = []
    depth = 0
    for node in program.src:
        if node.op in (ops.ENDFOR, ops.ENDIF):
            depth -= 1
        line = printer.line(node)
        if line:
            out.append("  " * depth + line)
        if node.op in (ops.FOR, ops.IF):
            depth += 1
    return out


class _ProgramPrinter:
    def __init__(self) -> None:
        self.names: dict[UOp, str] = {}

    def line(self, node: UOp) -> str:
        """Format an instruction; empty for an address, which is printed where it is used."""
        op = node.op
        src = [self.name_of(s) for s in node.src]
        if op is ops.ADDRESS:
            self.names[node] = f"{src[0]}[{src[1]}]" if src[0].startswith("&") else \
                f"&{src[0]}[{src[1]}]"
            return ""
        if op is ops.STORE:
            mask = f", mask={src[2]}" if len(src) > 2 else ""
            return f"{'stream' if node.arg else 'store'}({src[0]}, {src[1]}{mask})"
        if op is ops.ENDFOR:
            return f"next {', '.join(src[1:])}" if src[1:] else "next"
        if op is ops.SYNC:
            return "sync"
        if op is ops.EXTERN_CALL:
            return f"{node.arg}({', '.join(src)})"
        if op is ops.BREAK:
            return f"if {src[1]}: break"
        if op is ops.IF:
            return f"if {src[0]}:"
        if op is ops.ENDIF:
            return ""
        name = self.names[node] = f"v{len(self.names)}"
        if op is ops.FOR:
            return f"for {name} in {src[0]} .. {src[1]}:"
        return f"{f'{name} = {self.value(node, src)}':<{_TYPE_COLUMN}}  # {node.dtype}"

    def value(self, node: UOp, src: Sequence[str]) -> str:
        if node.op is ops.LOAD:
            return f"load({src[0]}{f', mask={src[1]}' if len(src) > 1 else ''})"
        if node.op is ops.PHI:
            return f"phi({src[1]})"
        if node.op is ops.LOOP_RESULT:
            return f"last({node.arg})"
        if node.op in ops.ELEMENTWISE:
            return format_op(node, [Text(s) for s in src]).text
        extra = [] if node.arg is None else [str(node.arg)]
        return f"{node.op.name.lower()}({', '.join([*src, *extra])})"

    def name_of(self, node: UOp) -> str:
        name = self.names.get(node)
        if name is not None:
            return name
        if node.op is ops.CONST:
            return format_const(node).text
        if node.op is ops.REF:
            return node.arg.name or f"x{node.arg.slot}"
        if node.op is ops.VAR:
            return node.arg.name or f"n{node.arg.slot}"
        if node.op is ops.ID:
            return str(node.arg).lower()
        if node.op is ops.PARALLEL_RANGE:
            return ("hi" if node.arg % 2 else "lo") + str(node.arg // 2 or "")
        return node.op.name.lower()


def command_lines(commands: UOp, names: Callable[[UOp], str], inputs: Sequence[str] = ()
                  ) -> list[str]:
    """Format COMMANDS: what each EXEC reads and writes, inside loops and branches."""
    return _commands(commands, names, inputs, 0)


def _commands(commands: UOp, names: Callable[[UOp], str], inputs: Sequence[str], depth: int
              ) -> list[str]:
    """Format commands inside ``depth`` loops, whose counters are i, j, ..."""
    out: list[str] = []
    for node in commands.src:
        if node.op is ops.EXEC:
            out.append(_command(node, names, inputs))
            if node.src[0].op is ops.CMD_LOOP:
                memory_names = [f"m{i}" for i in range(len(node.src) - 1)]
                out += ["  " + line for line in _commands(
                    node.with_operands(node.src[:1]), names, memory_names, 0)]
            continue
        inner = depth + (node.op is ops.CMD_LOOP)
        bodies = [_commands(s, names, inputs, inner) for s in node.src if s.op is ops.COMMANDS]
        memory = [_slot(s, inputs, inner) for s in node.src if s.op is not ops.COMMANDS]
        heads = _head_lines(node, memory, depth)
        for head, lines in zip(heads, bodies):
            out += [head, *["  " + line for line in lines]]
    return out


def _head_lines(node: UOp, memory: Sequence[str], depth: int) -> list[str]:
    """Return the head line of each of the COMMANDS in a CMD_LOOP or BRANCH."""
    where = kernel_label("", node.arg.locs)[2:-1]
    comment = f"  # {' '.join(filter(None, [node.arg.name, where]))}"
    if node.op is ops.BRANCH:
        return [f"if {memory[0]} is {i}:{comment}" for i in range(len(node.src) - 1)]
    if len(node.src) == 1:
        return [f"for {_counter(depth)} in 0 .. {node.arg.trips}:{comment}"]
    bound = "" if node.arg.trips is None else f" {node.arg.trips}"
    return [f"for {_counter(depth)} in 0 ..{bound}:{comment}", f"while {memory[0]}:"]


def _counter(depth: int) -> str:
    return "ijklmn"[depth] if depth < 6 else f"i{depth}"


def _command(execution: UOp, names: Callable[[UOp], str], inputs: Sequence[str]) -> str:
    kernel, *operands = execution.src
    written = accessors.written_slots(kernel)
    slots = [s for s in operands if s.op is not ops.CONST]
    reads = [_slot(s, inputs) for i, s in enumerate(slots) if i not in written]
    reads += [str(build.const_of(s)) for s in operands if s.op is ops.CONST]
    writes = ", ".join(_slot(s, inputs) for i, s in enumerate(slots) if i in written)
    where = kernel_label("", execution.arg.locs)[2:-1]
    name = f"host[{kernel.arg.name}]" if kernel.op is ops.CALLBACK else \
        kernel.arg.name if kernel.op in (ops.SORT, ops.FFT_STEP, ops.LINALG) else \
        f"kernel {kernel.arg.name}" if kernel.op is ops.CMD_LOOP else names(kernel)
    line = f"{name}({', '.join(reads)}) -> {writes or 'nothing'}"
    return f"{line:<64}  # {where}" if where else line


def _slot(slot: UOp, inputs: Sequence[str], depth: int = 0) -> str:
    """Format a slot as ``arena[0:64]``; one that depends on loops as ``x[8 + 12*i:+12]``, or
    ``a|b`` by i."""
    if slot.op is ops.SWAP:
        even, odd = [_slot(s, inputs) for s in slot.src]
        return f"({even}|{odd} by {_counter(slot.arg)})"
    arg: kernel_args.Slot = slot.arg
    name = inputs[arg.index] if arg.kind == "in" and arg.index < len(inputs) else \
        arg.kind if arg.kind in ("arena", "numbers") else f"{arg.kind}{arg.index}"
    if arg.strides:
        terms = [str(arg.offset)] if arg.offset else []
        terms += [f"{s}*{_counter(d)}" for d, s in enumerate(arg.strides) if s]
        return f"{name}[{' + '.join(terms).replace('+ -', '- ')}:+{arg.nbytes}]"
    is_full = arg.kind != "arena" and not arg.offset
    return name if is_full else f"{name}[{arg.offset}:{arg.offset + arg.nbytes}]"
