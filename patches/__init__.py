"""What has to be changed in vLLM from outside; installed as the package `remix_vllm_patches`.

One module per patch. Each says which symptom it cures, by what mechanism, on which fact about vLLM
it rests and when it can be deleted; the facts are held by `tests/upstream/`. Every patch asks
:mod:`remix_vllm_patches.served` first, so a model that this plugin does not serve meets stock vLLM.
Importing this package imports neither torch nor vLLM.
"""


def apply_all() -> None:
    """Apply every patch to this process. Calling it again does nothing."""
    from . import (
        async_on_cpu,
        blank_chat,
        decoding_metrics,
        mrv2_on_cpu,
        ray_nodes,
        ray_on_cpu,
        request_guard,
        sampling_params,
    )

    mrv2_on_cpu.apply()
    async_on_cpu.apply()
    sampling_params.apply()
    request_guard.apply()
    blank_chat.apply()
    decoding_metrics.apply()
    ray_nodes.apply()
    ray_on_cpu.apply()
