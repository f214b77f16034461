"""What lowering knows of a machine: a plain value that takes part in cache keys."""

from __future__ import annotations

from fnx.core.record import Record


class Target(Record):
    """A machine that kernels are compiled for.

    Attributes:
        name: the backend's name ("cpu", "interp", "null", ...).
        triple: LLVM's target triple.
        cpu: LLVM's name of the processor.
        features: LLVM's feature string.
        vector_bits: width of a vector register; of what a thread of a group reads at once.
        vector_registers: how many of them there are; of a thread of a group, registers of 32 bits.
        fma: whether fused multiply-add is one instruction.
        rounds: whether rounding to a whole number is one.
        permuted: bytes of the smallest elements that one instruction puts in any order.
        l1, l2: bytes of the data caches of one core.
        cores: processors that share the work. Never part of how a sum associates.
        compiler: name and version of what makes machine code of LLVM IR.
        kind: what kernels become on it, a row of lower/machines.py.
        threads: of a group, at most, where kernels are run by groups of threads.
        shared: bytes that a group has in common.
        private: bytes of a thread's own memory that a kernel should not go beyond.
        chunks: parts, at most, into which a long fold with few results is cut.
        subgroup: threads of a group, side by side, that read values of one another; 0: none do.
            Never part of how a sum associates.
        async_copies: whether threads have memory copied to what they share while they compute.
        units: names of its matrix units (core/units.py), the one to prefer first.
        buffers: that a kernel may bind; 0: as many as it likes.
        wide: whether it computes in types of 64 bits.
        steps: iterations of a thread's loops, all together, after which the driver ends them; 0:
            it does not.
        unfused: a kind of fusion that is left out (core/config.py: FUSIONS); '': none.
    """

    name: str
    triple: str = ""
    cpu: str = ""
    features: str = ""
    vector_bits: int = 512
    vector_registers: int = 32
    fma: bool = True
    l1: int = 32 << 10
    l2: int = 1 << 20
    cores: int = 1
    compiler: str = ""
    kind: str = "host"
    threads: int = 1
    shared: int = 0
    private: int = 0
    chunks: int = 64
    subgroup: int = 0
    async_copies: bool = False
    units: tuple[str, ...] = ()
    buffers: int = 0
    wide: bool = True
    steps: int = 0
    rounds: bool = True
    permuted: int = 1
    unfused: str = ""

    @property
    def has_code(self) -> bool:
        """Whether kernels are compiled for it; else the device walks or records them."""
        return self.kind != "kernels"

    def lanes(self, itemsize: int) -> int:
        """Elements of ``itemsize`` bytes in one vector register."""
        return max(1, self.vector_bits // (8 * itemsize))
