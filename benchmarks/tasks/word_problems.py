"""Word problems of one step, answered with the equation and a sentence."""

import re
from operator import add, mul, sub
from random import Random

from benchmarks.tasks.addition import summands
from benchmarks.tasks.example import Example

NAMES = ("Ada", "Ben", "Clara", "David", "Emma", "Finn", "Gina", "Hugo", "Iris", "Jack")
THINGS = ("apples", "books", "coins", "eggs", "flowers", "pencils", "stamps", "stones")
STORIES = (
    ("+", "{name} has {a} {thing} and finds {b} more.", add),
    ("+", "{name} buys {a} {thing} and then {b} more.", add),
    ("-", "{name} has {a} {thing} and loses {b} of them.", sub),
    ("-", "{name} buys {a} {thing} and gives {b} away.", sub),
    ("*", "{name} has {a} boxes with {b} {thing} in each.", mul),
    ("*", "{name} buys {a} bags of {b} {thing}.", mul),
)
QUESTION = " How many {thing} does {name} have now?"


def numbers(sign: str, rng: Random) -> tuple[int, int]:
    """Small products, and sums and differences without a carry."""
    if sign == "*":
        return rng.randint(2, 5), rng.randint(2, 5)
    a, b = summands(rng)
    return (a, b) if sign == "+" else (a + b, b)


def generate(rng: Random) -> Example:
    sign, story, _ = rng.choice(STORIES)
    a, b = numbers(sign, rng)
    prompt = (story + QUESTION).format(name=rng.choice(NAMES), thing=rng.choice(THINGS), a=a, b=b)
    return Example(prompt, solve(prompt))


def _pattern(story: str) -> re.Pattern[str]:
    """The story as it was generated; a field that comes twice must read the same twice."""
    pattern = re.escape(story + QUESTION)
    for field in ("name", "thing", "a", "b"):
        blank = re.escape("{" + field + "}")
        pattern = pattern.replace(blank, rf"(?P<{field}>\w+)", 1).replace(blank, f"(?P={field})")
    return re.compile(pattern)


PATTERNS = [(sign, operate, _pattern(story)) for sign, story, operate in STORIES]


def solve(prompt: str) -> str:
    for sign, operate, pattern in PATTERNS:
        if match := pattern.fullmatch(prompt):
            a, b = int(match["a"]), int(match["b"])
            result = operate(a, b)
            return f"{a}{sign}{b}={result}. {match['name']} has {result} {match['thing']}."
    raise ValueError(f"not a word problem of this task: {prompt!r}")


def check(prompt: str, answer: str) -> bool:
    return answer.strip() == solve(prompt)
