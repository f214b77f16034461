"""The target description for lowering: a plain value that is part of cache keys."""

from __future__ import annotations

from fnx.core.support.record import Record


class Target(Record):
    """A machine that kernels are compiled for.

    Attributes:
        name: the backend's name ("cpu", "interp", "null", ...).
        triple: LLVM's target triple.
        cpu: LLVM's name of the processor.
        features: LLVM's feature string.
        vector_bits: width of a vector register; on a GPU, of the widest load of a thread.
        vector_registers: number of vector registers; on a GPU, of 32-bit registers per thread.
        fma: whether fused multiply-add is one instruction.
        has_round: whether rounding to an integer is one instruction.
        permute_bytes: size in bytes of the smallest elements that one instruction can permute
            freely.
        l1, l2: bytes of the data caches of one core.
        cores: processors that share the work. Never affects how a sum associates.
        compiler: name and version of the compiler of LLVM IR.
        kind: the kind of target, an entry of lower/target_lowerings.py.
        threads: maximum number of threads per group, if kernels run in groups of threads.
        shared: bytes of shared memory per group.
        private: bytes of private memory per thread that a kernel should not exceed.
        max_chunks: maximum number of parts into which a long reduction with few results is split.
        subgroup: number of neighboring threads that can exchange values; 0: not supported. Never
            affects how a sum associates.
        branch_barriers: whether threads may meet at a barrier inside a branch on memory.
        async_copies: whether the target has asynchronous copies to shared memory.
        unit_names: names of its matrix units (core/ir/matrix_units.py), the preferred one first.
        max_buffers: maximum number of buffers that a kernel binds; 0: no limit.
        has_64bit: whether it computes in 64-bit types.
        has_host: whether the host computes what no kernel does, as a factorization by LAPACK; it
            does not for files.
        max_steps: total loop iterations per thread after which the driver aborts a kernel;
            0: never.
        unfused: a kind of fusion that is disabled (core/support/config.py: FUSIONS); '': none.
        optimize: whether LLVM optimizes kernels, which takes more than half of its time.
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
    max_chunks: int = 64
    subgroup: int = 0
    branch_barriers: bool = True
    async_copies: bool = False
    unit_names: tuple[str, ...] = ()
    max_buffers: int = 0
    has_64bit: bool = True
    has_host: bool = True
    max_steps: int = 0
    has_round: bool = True
    permute_bytes: int = 1
    unfused: str = ""
    optimize: bool = True

    @property
    def has_mask_registers(self) -> bool:
        """Whether some lanes of a vector are stored as fast as all of them: AVX-512 on x86."""
        return self.vector_bits >= 512

    @property
    def is_compiled(self) -> bool:
        """Whether kernels are compiled for it; else the device interprets or records them."""
        return self.kind != "kernels"

    def vector_lanes(self, itemsize: int) -> int:
        """Return the number of elements of ``itemsize`` bytes in a vector register."""
        return max(1, self.vector_bits // (8 * itemsize))
