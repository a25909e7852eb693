"""What a task is: a seeded generator of prompts, each with one right answer, and a checker that
accepts every right answer."""

import hashlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Protocol

HELD_OUT_PERCENT = 5


class Example(NamedTuple):
    prompt: str
    answer: str


class Task(Protocol):
    def generate(self, rng: Random) -> Example: ...

    def check(self, prompt: str, answer: str) -> bool: ...


def is_held_out(prompt: str) -> bool:
    """Decided by the prompt alone: no seed, count or order moves an example across the split."""
    digest = hashlib.sha256(prompt.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 100 < HELD_OUT_PERCENT


def examples(task: Task, seed: int, held_out: bool) -> Iterator[Example]:
    """An endless stream from one side of the split."""
    rng = Random(seed)
    while True:
        example = task.generate(rng)
        if is_held_out(example.prompt) == held_out:
            yield example
