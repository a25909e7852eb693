"""C04: a request's logits depend on its own positions and on nothing else."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tests.models.engines import Answer, ask
from tests.models.runner import model_runner

LENGTH = 11
NEIGHBOUR_LENGTH = 30
LARGE = 1e4


@contextmanager
def recorded_logits(runner: Any) -> Iterator[list[Tensor]]:
    """The logits of each forward's rows of the request whose prompt has ``LENGTH`` tokens."""
    state, original = runner.model_state, runner.model.compute_logits
    logits: list[Tensor] = []

    def compute_logits(hidden_states: Tensor) -> Tensor:
        computed = original(hidden_states)
        slots = state.step.rows.slot
        mine = state.canvas.prompt_len[slots] == LENGTH
        if mine.any():
            logits.append(computed[mine].clone())
        return computed

    runner.model.compute_logits = compute_logits
    try:
        yield logits
    finally:
        del runner.model.compute_logits


@contextmanager
def garbage_everywhere_else(runner: Any) -> Iterator[None]:
    """Large values before each step in everything a step may not read.

    No key or value is older than the step that reads it (``kv_cache: none``), so every page is
    filled: those of nobody, those of others, and the rest of the last page of each request. The
    state of unused slots is filled once; a slot that is given to a request starts from there.
    """
    state, buffers, canvas = runner.model_state, runner.input_buffers, runner.model_state.canvas
    prepare_inputs = state.prepare_inputs

    def prepare(input_batch: Any, req_states: Any) -> Any:
        for pages in runner.kv_caches:
            pages.uniform_(-LARGE, LARGE)
        state.inputs_embeds.fill_(LARGE)
        buffers.input_ids[input_batch.num_tokens :] = 5
        buffers.positions[input_batch.num_tokens :] = 77
        return prepare_inputs(input_batch, req_states)

    canvas.tokens.fill_(9)
    canvas.decided.fill_(True)
    canvas.history.logits.fill_(LARGE)
    canvas.history.logsumexp.fill_(LARGE)
    canvas.candidate_weights.fill_(LARGE)
    canvas.mixed.fill_(True)
    canvas.has_history.fill_(True)
    state.prepare_inputs = prepare
    try:
        yield
    finally:
        del state.prepare_inputs
        canvas.mixed.fill_(False)
        canvas.has_history.fill_(False)


def test_its_logits_do_not_move(engine: Any, oracle: Any) -> None:
    """https://github.com/ML-GSAI/LLaDA/issues/89: padding was attended to.

    Also https://github.com/Gen-Verse/MMaDA/issues/23.
    """
    llm = engine(async_scheduling=False)
    runner = model_runner(llm)
    rng = random.Random(89)
    mine, one, other = (
        ([rng.randrange(5, 700) for _ in range(length)], 20, {"block_length": 8})
        for length in (LENGTH, NEIGHBOUR_LENGTH, NEIGHBOUR_LENGTH)
    )
    with recorded_logits(runner) as clean:
        expected = ask(llm, [mine, one], ignore_eos=True)[0]
    with recorded_logits(runner) as polluted, garbage_everywhere_else(runner):
        answer = ask(llm, [other, mine], ignore_eos=True)[1]

    generation = oracle.generate(*mine, ignore_eos=True)
    assert answer == expected == Answer(generation.token_ids, generation.nfe)
    assert len(polluted) == len(clean) == generation.nfe
    for before, after in zip(clean, polluted, strict=True):
        torch.testing.assert_close(after, before, atol=1e-4, rtol=1e-5)
