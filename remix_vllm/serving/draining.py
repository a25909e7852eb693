"""How long a server that is asked to end waits for requests under way, if its user does not say.

vLLM 0.32's default for ``--shutdown-timeout`` is 0: at SIGTERM the engine is killed, and the API
server waits for the end of open streams, which nobody continues. Served models get another default.
Several API-server processes keep vLLM's, at which all end at once: they let go of the engine when
they are asked to end, so that a stream stands still for the time and is then cut off.
"""

import argparse

from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs

DRAIN_SECONDS = 60


class NotGiven(int):
    """vLLM's default, which its class tells from the same number given by a user."""


def mark_default(parser: argparse.ArgumentParser) -> None:
    """Let :func:`settle` know which command lines give ``--shutdown-timeout``."""
    action = parser._option_string_actions["--shutdown-timeout"]
    action.default = NotGiven(action.default)
    action.help = (
        f"{action.help} Masked diffusion models with one API server: {DRAIN_SECONDS} by default."
    )


def settle(args: EngineArgs, vllm_config: VllmConfig) -> None:
    """Set the default of a served model; arguments made in Python have given theirs."""
    if isinstance(args.shutdown_timeout, NotGiven) and args._api_process_count == 1:
        vllm_config.shutdown_timeout = DRAIN_SECONDS
