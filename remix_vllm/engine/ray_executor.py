"""Ray executor of served models: asks every node for the plugin before anything starts there.

Imports Ray; only :mod:`remix_vllm_patches.ray_nodes` imports this, once a user asks for Ray.
"""

from importlib import metadata

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from vllm.v1.executor.ray_executor_v2 import RayExecutorV2
from vllm.v1.executor.ray_utils import get_bundles_sorted_by_node, initialize_ray_cluster

DISTRIBUTION = "remix_vllm"
ANSWER_SECONDS = 120


class ReMixRayExecutor(RayExecutorV2):
    """vLLM's executor, after a check of the nodes it is about to use."""

    def _init_executor(self) -> None:
        # The stock method does this too, and then finds cluster and placement as they are.
        initialize_ray_cluster(self.parallel_config, require_gpu_on_driver=False)
        bundles = get_bundles_sorted_by_node(self.parallel_config.placement_group)
        check_nodes({node_id: address for _, node_id, address in bundles})
        super()._init_executor()


def check_nodes(nodes: dict[str, str]) -> None:
    """Check that each node has this plugin, in this version.

    A worker on a node without it dies while it reads its arguments, of an import error deep inside
    Ray. Code and options are compared later, by the workers themselves
    (:mod:`remix_vllm.engine.fingerprint`).

    Args:
        nodes: addresses by Ray node id.

    Raises:
        RuntimeError: a node has no plugin or another one; the text names all of them.
    """
    wanted = metadata.version(DISTRIBUTION)
    # A function of the standard library: Ray sends functions by name, and ours may be missing.
    ask = ray.remote(num_cpus=0)(metadata.version)
    answers = {
        node_id: ask.options(
            scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False)
        ).remote(DISTRIBUTION)
        for node_id in nodes
    }
    problems = []
    for node_id, answer in answers.items():
        try:
            found = ray.get(answer, timeout=ANSWER_SECONDS)
        except metadata.PackageNotFoundError:
            problems.append(f"node {nodes[node_id]} has none")
        else:
            if found != wanted:
                problems.append(f"node {nodes[node_id]} has {found}")
    if problems:
        raise RuntimeError(
            f"every Ray node needs remix_vllm {wanted}: {'; '.join(problems)}. Install it where "
            f"Ray's workers run, in the environment that 'ray start' was called from"
        )
