"""C08: every returned token is decided and is a token, even of a model that predicts the mask."""

from typing import Any

import pytest
from vllm import SamplingParams, TokensPrompt

from tests.models.scripted import Script
from tests.models.scripted_engine import scripted

PROMPT = [70, 71, 72]
LENGTHS = [1, 5, 19]


def predicts_the_mask(mask: int, no_token: int, vocab: int) -> Script:
    """Most likely the mask, then a row of the table that is no token, then a word."""

    def script(position: int, step: int) -> list[float]:
        row = [0.01 / vocab] * vocab
        row[mask], row[no_token], row[word_at(position)] = 0.6, 0.3, 0.05
        return row

    return script


def word_at(position: int) -> int:
    return 100 + position


@pytest.mark.parametrize("decoding", ["remix", "threshold", "low_confidence"])
@pytest.mark.parametrize("block", [4, 8, 16])
def test_the_mask_is_never_predicted(engine: Any, oracle: Any, block: int, decoding: str) -> None:
    """https://github.com/NVIDIA-NeMo/Automodel/issues/3149: positions stayed masked."""
    llm = engine(async_scheduling=False)
    vocab = len(oracle.model.embedding)
    assert oracle.num_valid_tokens < vocab, "the table has rows that are no token"
    script = predicts_the_mask(oracle.mask_token_id, oracle.num_valid_tokens, vocab)
    options = {"block_length": block, "decoding": decoding}
    params = [
        SamplingParams(max_tokens=n, temperature=0, extra_args=dict(options)) for n in LENGTHS
    ]
    prompts = [TokensPrompt(prompt_token_ids=PROMPT) for _ in LENGTHS]
    with scripted(llm, script):
        outputs = llm.generate(prompts, params, use_tqdm=False)
    for length, output in zip(LENGTHS, outputs, strict=True):
        assert list(output.outputs[0].token_ids) == [word_at(i) for i in range(length)]
