"""A rank that has another version of the plugin than its engine, for ``worker_extension_cls``.

Workers alone import this, after they have loaded the plugins and before they have a model.
"""

import multiprocessing

import remix_vllm

EXTENSION = f"{__name__}.OtherVersion"

if multiprocessing.current_process().name == "VllmWorker-1":
    remix_vllm.__version__ = "9.9.9"


class OtherVersion:
    """Adds nothing to the worker: importing its module is enough."""
