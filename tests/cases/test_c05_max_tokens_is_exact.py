"""C05: a generation has exactly ``max_tokens`` tokens, whatever the block length."""

from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt

PROMPT = [64, 220, 277, 300]


@pytest.mark.parametrize("block", [8, 16])
def test_max_tokens_need_not_be_a_multiple_of_the_block(
    engine: Any, oracle: Any, block: int
) -> None:
    """https://github.com/zhongkaifu/TensorSharp/issues/46: whole blocks were returned."""
    llm = engine(async_scheduling=False)
    options = {"block_length": block}
    lengths = [1, block - 1, block, block + 1, 2 * block + 3]
    params = [
        SamplingParams(max_tokens=n, temperature=0, ignore_eos=True, extra_args=dict(options))
        for n in lengths
    ]
    prompts = [TokensPrompt(prompt_token_ids=PROMPT) for _ in lengths]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    for length, output in zip(lengths, outputs, strict=True):
        completion = output.outputs[0]
        assert len(completion.token_ids) == length
        assert completion.finish_reason == "length"
        expected = oracle.generate(PROMPT, length, options, ignore_eos=True)
        assert list(completion.token_ids) == expected.token_ids
