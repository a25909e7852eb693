"""Sums of two numbers of two or three digits."""

import re
from random import Random

from benchmarks.tasks.example import Example

PROMPT = re.compile(r"What is (\d+)\+(\d+)\?")


def generate(rng: Random) -> Example:
    digits = 3 if rng.random() < 0.8 else 2
    low, high = 10 ** (digits - 1), 10**digits
    a = rng.randrange(low, high - low)
    b = rng.randrange(low, high - a)  # the sum keeps the number of digits
    if rng.random() < 0.5:
        a, b = b, a
    return Example(f"What is {a}+{b}?", str(a + b))


def check(prompt: str, answer: str) -> bool:
    a, b = map(int, PROMPT.fullmatch(prompt).groups())
    return answer.strip() == str(a + b)
