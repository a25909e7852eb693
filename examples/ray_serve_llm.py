"""The OpenAI API of Ray Serve's LLM integration, with ReMix decoding; for ``serve run``.

On a cluster with GPUs, from a checkout of this repository (docs/operations.md says what must be
installed on every node)::

    serve run examples.ray_serve_llm:app model=GSAI-ML/LLaDA-8B-Instruct ranks=8

Without GPUs, the model of this repository on one CPU::

    serve run examples.ray_serve_llm:app model=$PWD/remix_vllm/assets/tiny-llada device=cpu

The options travel in ``additional_config``, as they do everywhere; any other engine argument of
vLLM may be added beside it.
"""

from typing import Any

from ray.serve import Application
from ray.serve.llm import LLMConfig, build_openai_app

NAME = "remix"
"""What requests call the model."""

REMIX = {"decoding": "remix", "threshold": 0.9}
"""Whatever ``--remix-config`` takes."""

CPU_ENGINE = {"dtype": "float32", "enforce_eager": True, "kv_cache_memory_bytes": 1 << 28}
# Ray Serve plans with GPUs unless it is told that there are none.
CPU_PLACEMENT = {
    "accelerator_config": {"kind": "cpu"},
    "placement_group_config": {"bundles": [{"CPU": 1}]},
}


def app(args: dict[str, str]) -> Application:
    """The application, from ``model=`` and, if given, ``ranks=``, ``replicas=`` and ``device=``."""
    on_cpu = args.get("device") == "cpu"
    engine: dict[str, Any] = {
        "additional_config": {"remix": REMIX},
        "tensor_parallel_size": int(args.get("ranks", "1")),
    }
    config = LLMConfig(
        model_loading_config={"model_id": NAME, "model_source": args["model"]},
        deployment_config={"num_replicas": int(args.get("replicas", "1"))},
        engine_kwargs=engine | (CPU_ENGINE if on_cpu else {}),
        **(CPU_PLACEMENT if on_cpu else {}),
    )
    return build_openai_app({"llm_configs": [config]})
