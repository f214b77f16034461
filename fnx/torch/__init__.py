"""PyTorch modules, compiled and transformed by fnx.

    torch.compile(module, backend="fnx")        # needs no import of fnx
    f, params = fnx.torch.function(module)      # a pure function, which fnx transforms
    f, params = fnx.torch.load(exported)        # the same of a torch.export program

    backend      what torch.compile calls
    function     modules and exported programs as pure functions
    programs     compiled graphs on the memory of tensors
    graphs       graphs of ATen ops on Arrays
    table        the op table; its rows are in the other files, by chapters of ATen
"""

from importlib.util import find_spec

from fnx.core.support.requirements import missing

if find_spec("torch") is None:
    raise missing("torch")

from fnx.torch.function import TorchFunction, function, load

__all__ = ["TorchFunction", "function", "load"]
