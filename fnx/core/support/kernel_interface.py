"""Kernel text whose operands are bindings of a group: let operands share bindings."""

from __future__ import annotations

import re
from collections.abc import Sequence

_STORAGE = re.compile(r"^@group\(0\) @binding\((\d+)\) var<storage.*\n", re.MULTILINE)
_UNIFORM = re.compile(r"^@group\(0\) @binding\(\d+\) var<uniform>", re.MULTILINE)
_BUFFER_NAME = re.compile(r"\bg(\d+)\b")

MAX_GROUPS_PER_AXIS = 65535  # maximum number of groups along one axis of a launch, on every device

# The abort flag, by which the host can end a kernel: the last parameter in the C dialects of
# devices, a register in LLVM IR.
ABORT_FLAG, ABORT_REGISTER = "__global const volatile int* aborted", "%aborted"


def share_bindings(text: str, pattern: Sequence[int]) -> str:
    """Rewrite a kernel so that its operand ``i`` is in binding ``pattern[i]``.

    >>> text = '''@group(0) @binding(0) var<storage, read_write> g0: array<u32>;
    ... @group(0) @binding(1) var<storage, read_write> g1: array<u32>;
    ... @group(0) @binding(2) var<uniform> P: Params;
    ... fn l1(i: i32) -> u32 { return g1[i]; }'''
    >>> print(share_bindings(text, (0, 0)))
    @group(0) @binding(0) var<storage, read_write> g0: array<u32>;
    @group(0) @binding(1) var<uniform> P: Params;
    fn l1(i: i32) -> u32 { return g0[i]; }
    """
    seen: set[int] = set()

    def declared(match: re.Match[str]) -> str:
        binding = pattern[int(match[1])]
        if binding in seen:
            return ""
        seen.add(binding)
        return match[0].replace(f"@binding({match[1]})", f"@binding({binding})")

    text = _STORAGE.sub(declared, text)
    text = _UNIFORM.sub(f"@group(0) @binding({max(pattern, default=-1) + 1}) var<uniform>", text)
    return _BUFFER_NAME.sub(lambda match: f"g{pattern[int(match[1])]}", text)
