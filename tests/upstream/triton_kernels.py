"""vLLM's own Triton kernels, run by Triton's interpreter, on a machine without a GPU."""

import importlib.util
import sys
from types import ModuleType
from typing import Any

import triton
import triton.language as tl
from triton import knobs


def interpreted(name: str) -> ModuleType:
    """A second copy of module ``name`` whose ``triton.jit`` functions run in the interpreter.

    vLLM hands out stand-ins for `triton` where it finds no driver, which leave kernels as functions
    that cannot run; and it is when a module is executed that a decorator decides. Hence the copy.
    """
    spec = importlib.util.find_spec(name)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # The first copy brings in what the module imports, with the stand-ins.
    importlib.import_module(name)

    theirs = sys.modules["vllm.triton_utils"]
    ours: Any = ModuleType("vllm.triton_utils")
    ours.__dict__.update(theirs.__dict__, triton=triton, tl=tl)
    interpret = knobs.runtime.interpret
    sys.modules["vllm.triton_utils"] = ours
    knobs.runtime.interpret = True
    try:
        spec.loader.exec_module(module)
    finally:
        knobs.runtime.interpret = interpret
        sys.modules["vllm.triton_utils"] = theirs
    return module
