"""A worker that is not of one make with its engine: the server says which, and does not start."""

import re
import shutil
import socket
from pathlib import Path

import pytest

import remix_vllm
import remix_vllm_patches
from benchmarks.server import vllm_serve
from tests.distributed.other_version import EXTENSION
from tests.distributed.ray_cluster import ray_cluster

# A server that hangs is what these are about.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(150)]

ARGUMENTS = [
    *("--tensor-parallel-size", "2", "--dtype", "float32", "--enforce-eager"),
    *("--max-model-len", "256", "--kv-cache-memory-bytes", "256M"),
]


def failure(model: Path, arguments: list[str], environment: dict[str, str]) -> str:
    """What a server says that ends before it is healthy."""
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind"} | environment
    with (
        pytest.raises(RuntimeError, match="vllm serve ended with code 1") as error,
        vllm_serve(model, [*ARGUMENTS, *arguments], environment),
    ):
        pass
    return str(error.value)


def different(said: str) -> str:
    """What the worker's error names, once it has named its host."""
    host = re.escape(socket.gethostname())
    found = re.search(
        rf"remix_vllm on host {host} is not that of the engine: (.+?)\. Install", said
    )
    assert found, said
    return found[1]


def test_a_rank_of_another_version(shipped_model: Path) -> None:
    repository = {"PYTHONPATH": str(Path(__file__).parents[2])}
    said = failure(shipped_model, ["--worker-extension-cls", EXTENSION], repository)
    assert different(said) == f"remix_vllm {remix_vllm.__version__} there, 9.9.9 here"


@pytest.mark.ray
def test_a_node_with_another_checkout_of_the_same_version(
    shipped_model: Path, tmp_path: Path
) -> None:
    """Its metadata say what the driver's say, so it passes the check of the nodes; but an option
    has another default there."""
    for package in (remix_vllm, remix_vllm_patches):
        shutil.copytree(package.__path__[0], tmp_path / package.__name__)
    config = tmp_path / "remix_vllm" / "config.py"
    text = config.read_text()
    assert '"threshold": 0.95,' in text
    config.write_text(text.replace('"threshold": 0.95,', '"threshold": 0.85,'))
    # Before Ray puts the driver's folder first on the path.
    (tmp_path / "sitecustomize.py").write_text("import remix_vllm, remix_vllm_patches")
    with ray_cluster([(1, {"PYTHONPATH": str(tmp_path)})]) as address:
        said = failure(
            shipped_model, ["--distributed-executor-backend", "ray"], {"RAY_ADDRESS": address}
        )
    value = "[0-9a-f]{16}"
    code, options = (f"{name} {value} there, {value} here" for name in ("code", "options"))
    assert re.fullmatch(f"{code}; {options}", different(said))
