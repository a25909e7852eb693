"""The oracle on a checkpoint: the literal reference loop over the plain-torch model."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import Generation, generate
from tests.models.engines import Answer
from tests.models.plain_llada import PlainLLaDA


class PlainReference:
    """A plain-torch model in the form the reference loop takes: one sequence, embeddings in."""

    def __init__(self, model: PlainLLaDA) -> None:
        self.model = model
        self.embedding = model.embedding

    def embed(self, token_ids: Tensor) -> Tensor:
        return self.embedding[token_ids]

    @torch.no_grad()
    def __call__(self, inputs_embeds: Tensor) -> Tensor:
        return self.model(inputs_embeds=inputs_embeds[None])[0]


@dataclass
class Oracle:
    """What the written algorithm gives for a prompt on one checkpoint."""

    model: PlainReference
    mask_token_id: int
    num_valid_tokens: int
    stop_token_ids: Collection[int]

    @classmethod
    def load(cls, path: Path) -> "Oracle":
        from transformers import AutoTokenizer, GenerationConfig

        model = PlainLLaDA.load(path)
        eos = GenerationConfig.from_pretrained(path).eos_token_id
        return cls(
            PlainReference(model),
            model.config["mask_token_id"],
            len(AutoTokenizer.from_pretrained(path)),
            [eos] if isinstance(eos, int) else list(eos),
        )

    def generate(
        self,
        prompt_ids: Sequence[int],
        max_tokens: int,
        options: dict[str, Any] | None = None,
        engine: EngineOptions | None = None,
        ignore_eos: bool = False,
        model: Any = None,
        grid_from_zero: bool = False,
    ) -> Generation:
        """The reference generation under the options a request would have on ``engine``.

        Args:
            model: in place of the exact one, with its own ``before_forward``.
            grid_from_zero: blocks are counted from position 0 instead of the prompt's end.
        """
        engine = engine or EngineOptions.parse(None, default_block_length=128)
        block_length = engine.request_options(options).block_length
        return generate(
            model or self.model,
            list(prompt_ids),
            max_tokens,
            engine.request_options(options),
            self.mask_token_id,
            self.num_valid_tokens,
            engine.window,
            () if ignore_eos else self.stop_token_ids,
            len(prompt_ids) % block_length if grid_from_zero else 0,
            getattr(model, "before_forward", None),
        )

    def check(
        self,
        requests: Sequence[tuple[list[int], int, dict[str, Any]]],
        answers: Sequence[Answer],
        engine: EngineOptions | None = None,
        ignore_eos: bool = False,
        make_model: Callable[[], Any] = lambda: None,
    ) -> None:
        """Each request (prompt ids, max_tokens, options) has the answer it must have.

        Args:
            make_model: the model of :meth:`generate`, one for each request.
        """
        for (prompt, length, options), answer in zip(requests, answers, strict=True):
            expected = self.generate(
                prompt, length, options, engine, ignore_eos, model=make_model()
            )
            assert answer == Answer(expected.token_ids, expected.nfe), options
