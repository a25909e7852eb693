"""What must be the same in every process of one engine: options, plugin and vLLM.

Ranks that decide differently do not fail, they contradict each other: one commits a token that
another still masks. The process that makes the configuration writes its fingerprint into it, and
each worker compares it with its own before it loads a model.
"""

import hashlib
import json
import socket
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import msgspec
from vllm.config import VllmConfig

import remix_vllm
import remix_vllm_patches
from remix_vllm.engine.options import engine_options
from remix_vllm.plugin import vllm_version

KEY = "remix_fingerprint"
"""Key of ``additional_config``, beside the options and not among them: users do not set it."""


def fingerprint(vllm_config: VllmConfig) -> dict[str, str]:
    """This process's own: versions, and digests of the plugin's code and the resolved options."""
    options = json.dumps(msgspec.to_builtins(engine_options(vllm_config)), sort_keys=True)
    return {
        "remix_vllm": remix_vllm.__version__,
        "code": _code_digest(),
        "vllm": str(vllm_version()),
        "options": _digest(options.encode()),
    }


def write_fingerprint(vllm_config: VllmConfig) -> None:
    """Let this process's fingerprint travel with the configuration."""
    # The mapping may be the caller's own, and is not written to.
    given = vllm_config.additional_config or {}
    vllm_config.additional_config = {**given, KEY: fingerprint(vllm_config)}


def check_fingerprint(vllm_config: VllmConfig) -> None:
    """Compare what travelled with what is installed here.

    Raises:
        RuntimeError: they differ; the text names this host and both values of what differs.
    """
    wanted: Mapping[str, str] = (vllm_config.additional_config or {}).get(KEY, {})
    found = fingerprint(vllm_config)
    different = [
        f"{name} {wanted.get(name, 'unknown')} there, {found[name]} here"
        for name in found
        if wanted.get(name) != found[name]
    ]
    if different:
        raise RuntimeError(
            f"remix_vllm on host {socket.gethostname()} is not that of the engine: "
            f"{'; '.join(different)}. Install the same remix_vllm and vLLM on every node"
        )


@cache
def _code_digest() -> str:
    """Digest of the plugin's modules: two checkouts may say the same version."""
    content = b""
    for package in (remix_vllm, remix_vllm_patches):
        folder = Path(package.__path__[0])
        for module in sorted(folder.rglob("*.py")):
            content += f"{module.relative_to(folder)}\n".encode() + module.read_bytes()
    return _digest(content)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]
