"""Layer 1: tensor graph -> kernels -> commands. One file per pass, with one entry function.

pipeline.py lists all passes, driver.py runs them, pass_reports.py says why they did what they did,
and target_lowerings.py has what depends on the kind of target:

    host        one outermost PAR range, of which a call runs lo..hi; scratch memory; LLVM text
    kernels     ``interp`` and ``null``: tiled kernels are taken as they are
    GPUs        entries made by ``gpu_lowering(render, module)``; docs/gpu.md

``config.cpu`` forces a level of instructions (core/support/config.py: INSTRUCTIONS, from the
psABI): the cpu device then has that target, with kernels of its own; an older processor is refused
by name. Ops without an instruction are expanded (``Target.fma``, ``Target.rounds``), so no kernel
calls a function of the C library. Under ``config.disable_most_optimizations`` the target says that
LLVM does not optimize (``Target.optimize``): from the same text it makes slower code with the same
bits. Tests run SSE2, AVX2 and AVX-512, and compile NEON.

Some decisions that are not obvious:

- Calls of FUNCTIONs are inlined before fusion (tensor/inline.py). Equal layers still cost one
  compilation, as their kernels are one interned node, and fusion crosses the boundary. Only a body
  with products, loops or scatters that would be there eight times is a Block of its own, whose
  commands are relocated to each call.
- A donated argument is overwritten if the plan can prove that nothing reads it afterwards
  (memory/in_place.py, memory/buffer_sharing.py) and nobody else has its memory (``is_aliased``);
  else its memory returns to the pool after the call is submitted.
- Whatever changes how a float sum associates follows from shapes and the target, never from the
  number of workers or the device that was found.

**Memory** (memory/buffer_sharing.py, memory/in_place.py). Nodes share a buffer if their live ranges
are disjoint and their sizes agree, or if a kernel reads each element no later than it writes it. A
carry is updated in place if its body allows that; other carries SWAP between two buffers. Copies
are elided if the source is not read after the copy is written, once its pure readers have run: so
``x.at[:, i].set(v)`` in a loop, or of a donated array, touches one column, whatever the axis and
the spelling. A static block is written alone, too (memory/in_place.py); updates that read
other elements of the array they update get a buffer (fusion/scatter_hazards.py). Bodies of loops
and branches are lowered to Blocks, each once (control_flow.py), and their slots are then bound
(``commands.relocate``). The alignment of rows is in the REFs of a kernel, and so in its key.
"""
