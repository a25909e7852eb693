"""Sums of two numbers of two digits without a carry, answered with the equation."""

import re
from random import Random

from benchmarks.tasks.example import Example

PROMPT = re.compile(r"What is (\d+)\+(\d+)\?")


def summands(rng: Random) -> tuple[int, int]:
    """Uniform over the sum of each column, so that no digit of an answer is the usual one."""
    tens, units = rng.randint(2, 9), rng.randint(0, 9)
    a = 10 * rng.randint(1, tens - 1) + rng.randint(0, units)
    return a, 10 * tens + units - a


def generate(rng: Random) -> Example:
    a, b = summands(rng)
    return Example(f"What is {a}+{b}?", f"{a}+{b}={a + b}")


def check(prompt: str, answer: str) -> bool:
    a, b = map(int, PROMPT.fullmatch(prompt).groups())
    return answer.strip() == f"{a}+{b}={a + b}"
