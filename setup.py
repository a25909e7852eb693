"""Packaging of `remix_vllm` and, from the directory `patches/`, of `remix_vllm_patches`."""

from setuptools import find_packages, setup

PATCHES = "remix_vllm_patches"

setup(
    name="remix_vllm",
    version="0.1.0",
    description="ReMix decoding for masked diffusion language models in vLLM",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=[
        *find_packages(include=["remix_vllm", "remix_vllm.*"]),
        PATCHES,
        *(f"{PATCHES}.{name}" for name in find_packages("patches")),
    ],
    # The patches live at the top of the repository, where a reader sees what is changed in vLLM;
    # installed, they need a name of their own, since `patches` could be anybody's.
    package_dir={PATCHES: "patches"},
    package_data={"remix_vllm": ["py.typed", "assets/**"]},
    install_requires=["vllm==0.32.*", "msgspec"],
    extras_require={
        "test": ["pytest", "pytest-timeout", "hypothesis", "openai", "ruff==0.17.*", "mypy==2.4.*"],
        "ray": ["ray"],
        "bench": ["matplotlib"],
    },
    entry_points={"vllm.general_plugins": ["remix = remix_vllm.plugin:register"]},
)
