"""PyTorch modules, compiled and transformed by fnx.

    torch.compile(module, backend="fnx")
"""
