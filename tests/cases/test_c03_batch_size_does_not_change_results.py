"""C03: what shares a request's batch changes neither its tokens nor its number of forwards."""

import random
from typing import Any

from tests.models.engines import Answer, ask

Requests = list[tuple[list[int], int, dict[str, Any]]]


def requests_of_lengths(*lengths: int) -> Requests:
    rng = random.Random(39)
    options = {"block_length": 16, "threshold": 0.6}
    return [([rng.randrange(5, 700) for _ in range(n)], 24, options) for n in lengths]


def in_groups(llm: Any, requests: Requests, size: int, order: list[int]) -> list[Answer]:
    """Answers in the order of ``requests``, asked ``size`` at a time in the order ``order``."""
    answers: dict[int, Answer] = {}
    for start in range(0, len(order), size):
        group = order[start : start + size]
        answered = ask(llm, [requests[i] for i in group], ignore_eos=True)
        answers |= dict(zip(group, answered, strict=True))
    return [answers[i] for i in range(len(requests))]


def test_alone_in_pairs_in_fours_and_shuffled(engine: Any, oracle: Any) -> None:
    """https://github.com/NVlabs/Fast-dLLM/issues/39: greedy results changed with the batch size."""
    llm = engine(async_scheduling=False)
    requests = requests_of_lengths(3, 9, 17, 30)
    expected = [oracle.generate(*request, ignore_eos=True) for request in requests]
    alone = in_groups(llm, requests, 1, [0, 1, 2, 3])
    assert alone == [Answer(generation.token_ids, generation.nfe) for generation in expected]
    for size, order in [(2, [0, 1, 2, 3]), (2, [3, 0, 2, 1]), (4, [0, 1, 2, 3]), (4, [2, 0, 3, 1])]:
        assert in_groups(llm, requests, size, order) == alone, (size, order)
