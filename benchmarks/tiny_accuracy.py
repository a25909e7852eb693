"""Accuracy of a plain model on the held-out side of the tasks: literal decoding, one block."""

from collections import defaultdict
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from benchmarks.tasks import TASKS, examples
from benchmarks.tiny_tokenizer import render_prompt
from tests.models.plain_llada import PlainLLaDA

HELD_OUT_SEED = 2024


class Score(NamedTuple):
    examples: int
    accuracy: float
    forwards: float


@torch.no_grad()
def decode(
    model: PlainLLaDA, prompts: Tensor, length: int, threshold: float | None
) -> tuple[Tensor, Tensor]:
    """Greedy decoding of prompts of one length; returns the answers and each row's forwards.

    Each step decides the most confident position of a row and, with a threshold, every position
    above it."""
    mask_id = model.config["mask_token_id"]
    ids = torch.cat((prompts, torch.full((len(prompts), length), mask_id)), dim=1)
    answer = ids[:, prompts.shape[1] :]
    forwards = torch.zeros(len(ids), dtype=torch.long)
    while (answer == mask_id).any():
        undecided = answer == mask_id
        forwards += undecided.any(dim=1)
        logits = model(ids)[:, prompts.shape[1] :]
        logits[..., mask_id] = -torch.inf
        confidence, tokens = logits.softmax(-1).max(-1)
        confidence = confidence.masked_fill(~undecided, -1.0)
        accept = torch.zeros_like(undecided).scatter_(1, confidence.argmax(1, keepdim=True), True)
        if threshold is not None:
            accept |= confidence > threshold
        answer[accept & undecided] = tokens[accept & undecided]
    return answer, forwards


def evaluate(
    model: PlainLLaDA, tokenizer, name: str, count: int, length: int, threshold: float | None = None
) -> Score:
    by_length = defaultdict(list)
    for example in islice(examples(TASKS[name], HELD_OUT_SEED, held_out=True), count):
        ids = tokenizer(render_prompt(example.prompt)).input_ids
        by_length[len(ids)].append((example.prompt, ids))
    correct, total = 0, 0
    for group in by_length.values():
        answers, forwards = decode(
            model, torch.tensor([ids for _, ids in group]), length, threshold
        )
        total += int(forwards.sum())
        for (prompt, _), ids in zip(group, answers, strict=True):
            correct += TASKS[name].check(prompt, answer_text(tokenizer, ids.tolist()))
    return Score(count, correct / count, total / count)


def answer_text(tokenizer, ids: list[int]) -> str:
    stops = {tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids("<|eot_id|>")}
    end = next((i for i, token in enumerate(ids) if token in stops), len(ids))
    return tokenizer.decode(ids[:end])
