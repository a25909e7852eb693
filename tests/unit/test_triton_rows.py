"""The Triton kernels, as far as a machine without a GPU can tell: what they compute, by Triton's
interpreter, and that they compile to machine code. None of them has run on a GPU."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")

CASES = Path(__file__).with_name("triton_rows_cases.py")
ROWS = {
    "logits": "*bf16",
    "stride": "i32",
    "size": "i32",
    "maximum": "*fp32",
    "token": "*i64",
    "logsumexp": "*fp32",
    "group_max": "*fp32",
    "groups": "i32",
    "GROUP": "constexpr",
    "GROUPS": "constexpr",
}
COMPARISON = {
    "logits": "*bf16",
    "stride": "i32",
    "size": "i32",
    "logsumexp": "*fp32",
    "rows": "*i64",
    "history": "*bf16",
    "history_stride": "i32",
    "history_logsumexp": "*fp32",
    "at": "*i64",
    "has_history": "*i1",
    "kept": "*i1",
    "divergence": "*fp32",
    "TILE": "constexpr",
}
MIXING = {
    "ids": "*i64",
    "ids_stride": "i32",
    "weights": "*fp32",
    "weights_stride": "i32",
    "candidates": "i32",
    "table": "*bf16",
    "table_stride": "i32",
    "local_size": "i32",
    "first_id": "i32",
    "mixed": "*fp32",
    "width": "i32",
    "CANDIDATES": "constexpr",
    "TILE": "constexpr",
}


def test_the_interpreted_kernels_compute_what_torch_does() -> None:
    """In a process of its own: Triton reads ``TRITON_INTERPRET`` when it is imported."""
    arguments = ["-m", "pytest", str(CASES), "--noconftest", "-q", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        cwd=CASES.parent.parent.parent,
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-6000:] + run.stderr[-2000:]


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize(
    "module, kernel, signature, constants",
    [
        ("triton_rows", "_scan_rows", ROWS, {"GROUP": 128, "GROUPS": 32}),
        ("triton_rows", "_compare_rows", COMPARISON, {"TILE": 4096}),
        ("triton_mixing", "_mix_rows", MIXING, {"CANDIDATES": 64, "TILE": 1024}),
    ],
)
def test_a_kernel_compiles_to_machine_code(
    module: str,
    kernel: str,
    signature: dict[str, str],
    constants: dict[str, Any],
    capability: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The interpreter runs Python; what the compiler accepts is less than that."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    function = getattr(importlib.import_module(f"remix_vllm.ops.{module}"), kernel)
    source = ASTSource(function, signature, constexprs=constants)
    compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32))
    assert compiled.asm["cubin"]
