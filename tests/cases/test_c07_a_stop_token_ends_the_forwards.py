"""C07: once a stop token and all to its left are decided, nothing more is computed."""

from collections.abc import Callable
from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import generate
from tests.models.scripted import Script, ScriptedModel, peaked
from tests.models.scripted_engine import scripted

PROMPT = [70, 71, 72]
BLOCK = 8
MAX_TOKENS = 20
WORD = 100


def left_to_right(position: int) -> float:
    return 0.8 - 0.02 * position


def right_to_left_then_the_rest(stop: int) -> Callable[[int], float]:
    """The stop token first, then its left side from the right, then what is right of it."""
    return lambda position: 0.8 + 0.01 * (position - stop) if position <= stop else 0.1


def script_with_stop(stop: int, token: int, vocab: int, confidence: Any) -> Script:
    return lambda position, step: peaked(
        token if position == stop else WORD + position, confidence(position), vocab
    )


@pytest.mark.parametrize("order", ["left to right", "stop first"])
@pytest.mark.parametrize("stop", [0, 3, 7, 8, 13])
def test_no_forward_follows_a_stop_token_whose_left_side_is_decided(
    engine: Any, oracle: Any, stop: int, order: str
) -> None:
    """https://github.com/NVlabs/Fast-dLLM/issues/10: masks after the end token were decoded."""
    llm = engine(async_scheduling=False)
    vocab = len(oracle.model.embedding)
    confidence = left_to_right if order == "left to right" else right_to_left_then_the_rest(stop)
    script = script_with_stop(stop, min(oracle.stop_token_ids), vocab, confidence)
    options = {"block_length": BLOCK}
    params = SamplingParams(max_tokens=MAX_TOKENS, temperature=0, extra_args=options)
    with scripted(llm, script) as forwards:
        [output] = llm.generate(TokensPrompt(prompt_token_ids=PROMPT), params, use_tqdm=False)

    completion = output.outputs[0]
    words = [WORD + position for position in range(stop)]
    assert list(completion.token_ids) == [*words, min(oracle.stop_token_ids)]
    assert completion.finish_reason == "stop"
    # One token is decided per forward, and none is of a position right of the stop token.
    assert len(forwards) == stop + 1
    assert sum(completion.spec_decode_metrics.histogram) == stop + 1
    block_end = (stop // BLOCK + 1) * BLOCK
    assert max(position for positions in forwards for position in positions) < block_end

    expected = generate(
        ScriptedModel(script, vocab, len(PROMPT)),
        PROMPT,
        MAX_TOKENS,
        EngineOptions.parse(None, 128).request_options(options),
        oracle.mask_token_id,
        oracle.num_valid_tokens,
        stop_token_ids=oracle.stop_token_ids,
    )
    assert expected.token_ids == list(completion.token_ids)
    assert expected.nfe == stop + 1
