"""Two ranks against the oracle, which knows of none: token ids and NFE of thirty mixed requests.

One engine each: starting two workers costs more than all their forwards. Together they have the KV
policies whose steps differ in kind, and both kinds of scheduling.
"""

from pathlib import Path

import pytest

from remix_vllm.config import EngineOptions
from tests.distributed.process_report import EXTENSION, check_reports
from tests.distributed.ranks import TWO_RANKS, ending
from tests.engine.test_exactness import mixed_requests
from tests.engine.test_kv_policies import without_whole_region
from tests.engine.test_sdar_exactness import SDAR
from tests.engine.test_sdar_exactness import mixed_requests as sdar_requests
from tests.models.cached_llada import CachedReference
from tests.models.engines import Answer, EngineSpec, ask, start_engine
from tests.models.oracle import Oracle

pytestmark = pytest.mark.slow

COUNT = 30


def test_whole_sequences_scheduled_asynchronously(shipped_model: Path, oracle: Oracle) -> None:
    requests = mixed_requests(COUNT, seed=21)
    arguments = TWO_RANKS | {"async_scheduling": True, "worker_extension_cls": EXTENSION}
    with ending(start_engine(EngineSpec.of(shipped_model, arguments))) as llm:
        check_reports(llm.collective_rpc("report"), ranks=2)
        answers = ask(llm, requests)
    for (prompt, length, options), answer in zip(requests, answers, strict=True):
        expected = oracle.generate(prompt, length, options)
        assert answer == Answer(expected.token_ids, expected.nfe), options


def test_kept_prefixes_scheduled_synchronously(shipped_model: Path, oracle: Oracle) -> None:
    settings = {"kv_cache": "prefix", "block_length": 8}
    defaults = EngineOptions.parse(settings, 128)
    requests = without_whole_region(COUNT, seed=22)
    arguments = TWO_RANKS | {"async_scheduling": False, "additional_config": {"remix": settings}}
    with ending(start_engine(EngineSpec.of(shipped_model, arguments))) as llm:
        answers = ask(llm, requests)
    for (prompt, length, options), answer in zip(requests, answers, strict=True):
        model = CachedReference(oracle.model.model, "prefix", 0)
        expected = oracle.generate(prompt, length, options, defaults, model=model)
        assert answer == Answer(expected.token_ids, expected.nfe), options


def test_blocks_scheduled_asynchronously(tmp_path: Path) -> None:
    """SDAR, each rank with one of two key heads; chunked prefills, shared prefixes."""
    sdar = SDAR(tmp_path, 8, async_scheduling=True, **TWO_RANKS)
    with ending(sdar.llm):
        sdar.check(sdar_requests(COUNT, seed=23))
