"""4x4 Sudoku from few clues. Many puzzles have several solutions: any grid that obeys the rules and
the clues is right, and cells decided in parallel can contradict each other."""

from itertools import permutations, product
from random import Random

from benchmarks.tasks.example import Example

HEADING = "Solve the Sudoku:\n"
CLUES = range(4, 9)
DIGITS = set("1234")


def _units(rows: list[str]) -> list[str]:
    """The four rows, columns and 2x2 boxes."""
    columns = ["".join(column) for column in zip(*rows, strict=True)]
    boxes = [rows[r][c : c + 2] + rows[r + 1][c : c + 2] for r in (0, 2) for c in (0, 2)]
    return rows + columns + boxes


def is_solved(rows: list[str]) -> bool:
    return all(set(unit) == DIGITS for unit in _units(rows))


def _all_grids() -> list[str]:
    lines = ["".join(p) for p in permutations("1234")]
    return ["".join(rows) for rows in product(lines, repeat=4) if is_solved(list(rows))]


GRIDS = _all_grids()


def _lines(cells: str) -> str:
    return "\n".join(cells[i : i + 4] for i in range(0, 16, 4))


def generate(rng: Random) -> Example:
    grid = rng.choice(GRIDS)
    shown = set(rng.sample(range(16), rng.choice(CLUES)))
    puzzle = "".join(digit if i in shown else "0" for i, digit in enumerate(grid))
    return Example(HEADING + _lines(puzzle), _lines(grid))


def check(prompt: str, answer: str) -> bool:
    clues = prompt.removeprefix(HEADING).replace("\n", "")
    rows = answer.strip().split("\n")
    if len(rows) != 4 or any(len(row) != 4 for row in rows) or not is_solved(rows):
        return False
    return all(clue in ("0", digit) for clue, digit in zip(clues, "".join(rows), strict=True))
