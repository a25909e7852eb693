"""What a worker says about itself, for ``worker_extension_cls``."""

import os
from typing import Any

EXTENSION = f"{__name__}.ProcessReport"


class ProcessReport:
    """Mixed into vLLM's worker; its method answers ``collective_rpc("report")``."""

    def report(self) -> dict[str, Any]:
        from vllm import ModelRegistry, plugins

        from remix_vllm.engine.fingerprint import KEY, fingerprint

        config = self.model_runner.vllm_config
        return {
            "process": os.getpid(),
            "plugins_loaded": plugins.plugins_loaded,
            "architectures": sorted(ModelRegistry.models.keys() & {"LLaDAModelLM"}),
            "model_state": type(self.model_runner.model_state).__name__,
            "sent": config.additional_config[KEY],
            "own": fingerprint(config),
        }


def check_reports(reports: list[dict[str, Any]], ranks: int) -> None:
    """C21: each worker is a process of its own that found the plugin by its entry point."""
    assert len({report["process"] for report in reports} - {os.getpid()}) == ranks
    for report in reports:
        assert report["plugins_loaded"]
        assert report["architectures"] == ["LLaDAModelLM"]
        assert report["model_state"] == "ReMixModelState"
        assert report["sent"] == report["own"] == reports[0]["own"]
