"""The levels of the graph: legality rules, NumPy interpreter, printers.

    level     a node is                            legality           interpreted by
    tensor    an array                             spec.py            interp.py
    kernel    a scalar over RANGEs                 spec_kernel.py     interp_kernel.py
    program   a line, with explicit vectors        spec_program.py    (tests/lower/emulator.py)
    command   a command on memory slots            spec_command.py    backends/interp.py

The interpreter is the definition of every op, and the oracle of the tests.

- ``evaluate(roots, env) -> list[np.ndarray]``, tensor level: ``env`` maps PARAM, LEAF and BUFFER
  nodes to arrays; a BUFFER that is not in it is read through its handle's ``view``.
- ``run_kernel(kernel, buffers, scalars)``, kernel level: ``buffers[slot]`` are NumPy arrays,
  written in place; ``scalars[slot]`` are the values of VARs. Each RANGE is a NumPy axis; a REDUCE
  of more than 64 MB is computed in chunks. An access out of bounds, and two iterations that write
  one element, raise KernelError.

Printed (show*.py): tensor graphs as formulas of one element, with movements in the index; kernels
as loops, each name in the innermost loop that it depends on; programs line by line. ``to_python``
is the exact form: Python code that rebuilds the identical node.
"""
