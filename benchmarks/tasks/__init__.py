"""The tasks the shipped model is trained on and the benchmarks measure."""

from benchmarks.tasks import addition, countdown, phrases, sudoku, word_problems
from benchmarks.tasks.example import Example, Task, examples, is_held_out

TASKS: dict[str, Task] = {
    "sudoku": sudoku,
    "countdown": countdown,
    "addition": addition,
    "phrases": phrases,
    "word_problems": word_problems,
}

__all__ = ["TASKS", "Example", "Task", "examples", "is_held_out"]
