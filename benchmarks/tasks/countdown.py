"""Countdown with three small numbers: use each once to make the target; any such sum counts."""

import re
from itertools import permutations
from operator import add, mul, sub
from random import Random

from benchmarks.tasks.example import Example

OPERATORS = {"+": add, "-": sub, "*": mul}
LARGEST_NUMBER = 6
LARGEST_TARGET = 99
PROMPT = re.compile(r"Use (\d+), (\d+), (\d+) to make (\d+)\.")


def _expressions(numbers: tuple[int, ...]) -> list[tuple[str, int]]:
    """Expressions of the forms `(a o b) p c` and `a * (b p c)`, without needless parentheses."""
    found = {}
    for a, b, c in permutations(numbers):
        for o, first in OPERATORS.items():
            for p, second in OPERATORS.items():
                flat = second(first(a, b), c)
                found[f"{a}{o}{b}{p}{c}" if p != "*" or o == "*" else f"({a}{o}{b})*{c}"] = flat
                if o == "*" and p in "+-":
                    found[f"{a}*({b}{p}{c})"] = first(a, second(b, c))
    return sorted(found.items())


def generate(rng: Random) -> Example:
    while True:
        # In ascending order: another order would put the same problem on both sides of the split.
        numbers = sorted(rng.randint(1, LARGEST_NUMBER) for _ in range(3))
        target = rng.choice(_expressions(tuple(numbers)))[1]
        if 0 < target <= LARGEST_TARGET:
            break
    right = [expression for expression, value in _expressions(tuple(numbers)) if value == target]
    a, b, c = numbers
    return Example(f"Use {a}, {b}, {c} to make {target}.", f"{rng.choice(right)}={target}")


def check(prompt: str, answer: str) -> bool:
    *numbers, target = map(int, PROMPT.fullmatch(prompt).groups())
    expression, _, result = answer.strip().partition("=")
    if result != str(target) or not re.fullmatch(r"[\d+*()-]+", expression) or "**" in expression:
        return False
    if sorted(map(int, re.findall(r"\d+", expression))) != sorted(numbers):
        return False
    try:
        # Only digits, + - * and parentheses reach this line.
        return eval(expression, {"__builtins__": {}}) == target
    except (SyntaxError, TypeError):
        return False
