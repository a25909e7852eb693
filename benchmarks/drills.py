"""Plain text for the trainer: lines of solved equations and of phrases, many to a row. A row
teaches more arithmetic than a chat turn of its length, most of which is prompt and template.
Nothing held out is in it."""

from random import Random

from benchmarks.tasks import TASKS, is_held_out
from benchmarks.tasks.phrases import FAMILIES
from benchmarks.tasks.word_problems import numbers


def drill(rng: Random) -> str:
    return "\n".join(_line(rng) for _ in range(8))


def _line(rng: Random) -> str:
    kind = rng.choice(("phrase", "*", "-", "countdown", "addition"))
    if kind == "phrase":
        family = rng.choice(list(FAMILIES))
        return f"{family}: {rng.choice(FAMILIES[family])}"
    if kind == "*":
        a, b = numbers("*", rng)
        return f"{a}*{b}={a * b}"
    if kind == "-":
        a, b = numbers("-", rng)
        return f"{a}-{b}={a - b}"
    return _not_held_out(kind, rng)


def _not_held_out(name: str, rng: Random) -> str:
    while True:
        prompt, answer = TASKS[name].generate(rng)
        if not is_held_out(prompt):
            return answer
