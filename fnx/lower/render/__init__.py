"""Render a PROGRAM as source text: one module per language or calling convention.

    llvm.py                   LLVM IR; host.py and nvptx.py are its calling conventions, with loads,
                              stores and matrix units
    llvm_workarounds.py       what is printed differently because of LLVM's flaws
    c_like.py                 what OpenCL C, C11 and WGSL share
    opencl.py, c.py, wgsl.py  these languages; wgsl_functions.py holds helpers of WGSL kernels

A renderer is a table with one function per op.
"""
