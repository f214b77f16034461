"""Render a PROGRAM as source text: one module per language or calling convention.

    llvm.py                   LLVM IR; host.py and nvptx.py are its calling conventions
    host_memory.py            loads and stores of the host; masked ones never leave their buffer
    host_matrix_units.py      LLVM's intrinsics of the host's matrix units
    c_like.py                 what OpenCL C, C11 and WGSL share
    opencl.py, c.py, wgsl.py  these languages; wgsl_functions.py holds helpers of WGSL kernels

A renderer is a table with one function per op.
"""
