"""One Ray cluster for all tests."""

from collections.abc import Iterator

import pytest

from tests.distributed.ray_cluster import ray_cluster

# What the Pythons of two more nodes begin with, whose installations are thereby others. (Ray puts
# the driver's folder first on their paths, where this repository's own metadata are.)
ANOTHER_VERSION = """
from importlib import metadata

version = metadata.version
metadata.version = lambda name: "9.9.9" if name == "remix_vllm" else version(name)
"""
NO_PLUGIN = """
from importlib import metadata

version = metadata.version

def without(name):
    if name == "remix_vllm":
        raise metadata.PackageNotFoundError(name)
    return version(name)

metadata.version = without
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a cluster of two nodes with a CPU each, and two without."""
    others: list[tuple[int, dict[str, str]]] = [(1, {})]
    for start in (ANOTHER_VERSION, NO_PLUGIN):
        folder = tmp_path_factory.mktemp("python")
        (folder / "sitecustomize.py").write_text(start)
        others.append((0, {"PYTHONPATH": str(folder)}))
    with ray_cluster(others) as address:
        yield address
