"""An engine in this process that denoises one block of so many requests at once, in a scripted
number of forwards.

Random weights are confident of nothing, so acceptance is scripted: `threshold` 1 lets nothing pass
and `max_nfe` spreads the block evenly over its forwards; what is left mixes.
"""

from pathlib import Path
from random import Random
from typing import Any

PROMPT, BLOCK = 64, 32


def start(path: Path, sequences: int, remix: dict[str, Any], **arguments: Any) -> Any:
    """An ``LLM`` with room for ``sequences`` prompts and their block in one step; ``remix`` and
    ``arguments`` are more options of the plugin and of vLLM."""
    from vllm import LLM

    return LLM(
        str(path),
        skip_tokenizer_init=True,
        max_model_len=PROMPT + BLOCK,
        max_num_seqs=sequences,
        max_num_batched_tokens=sequences * (PROMPT + BLOCK),
        additional_config={"remix": {"block_length": BLOCK} | remix},
        **arguments,
    )


def denoise(llm: Any, sequences: int, nfe: int, ids: int, **options: Any) -> None:
    """Run ``sequences`` requests of random ids below ``ids``, ``nfe`` forwards each."""
    from vllm import SamplingParams, TokensPrompt

    rng = Random(0)
    prompts = [
        TokensPrompt(prompt_token_ids=[rng.randrange(1, ids) for _ in range(PROMPT)])
        for _ in range(sequences)
    ]
    script = {"threshold": 1.0, "max_nfe": nfe} | options
    params = SamplingParams(max_tokens=BLOCK, ignore_eos=True, detokenize=False, extra_args=script)
    for output in llm.generate(prompts, params, use_tqdm=False):
        completion = output.outputs[0]
        steps = sum(completion.spec_decode_metrics.histogram)
        assert steps == nfe, f"{steps} forwards instead of the scripted {nfe}"
        assert len(completion.token_ids) == BLOCK
