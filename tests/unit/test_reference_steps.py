"""The oracle: how much a step decides, what is predicted, where a generation ends."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remix_vllm.decoding.reference import generate
from tests.models.scripted import ScriptedModel, peaked
from tests.models.small import SmallModel
from tests.unit.reference_cases import (
    MASK,
    PROMPT,
    VOCAB,
    fixed_examples,
    mask_predicting_model,
    one_thread,  # noqa: F401  an automatic fixture
    options,
    run,
    small_models,
)

# --- How many positions a step decides ------------------------------------------------------------


@pytest.mark.parametrize(("length", "steps"), [(32, 3), (64, 5), (128, 8), (256, 14)])
def test_the_cap_bounds_the_steps_from_below(length: int, steps: int) -> None:
    model = ScriptedModel(lambda position, step: peaked(5, 0.99, VOCAB), VOCAB)
    assert run(model, length, options(preset="official", block_length=length)).nfe == steps
    assert run(model, length, options(preset="paper", block_length=length)).nfe == 1


def test_the_cap_takes_the_most_confident_then_the_leftmost() -> None:
    def script(position: int, step: int) -> list[float]:
        return peaked(5, 0.95 if position in (6, 7) else 0.9, VOCAB)

    opts = options(preset="official", block_length=8)
    assert run(ScriptedModel(script, VOCAB), 8, opts).trace[0].accepted == [0, 1, 2, 6, 7]


def test_an_undecided_model_ends_after_one_step_a_token() -> None:
    model = ScriptedModel(lambda position, step: [1 / VOCAB] * VOCAB, VOCAB)
    generation = run(model, 10, options(threshold=1.0))
    assert [step.accepted for step in generation.trace] == [[i] for i in range(10)]
    assert generation.token_ids == [0] * 10


def test_the_threshold_is_strict() -> None:
    model = ScriptedModel(lambda position, step: [0.5, 0.5] + [0.0] * (VOCAB - 2), VOCAB)
    assert run(model, 4, options(threshold=0.5)).nfe == 4
    assert run(model, 4, options(threshold=0.499)).nfe == 1


@pytest.mark.parametrize(
    ("steps_per_block", "counts"),
    [(None, [1] * 7), (3, [3, 2, 2]), (1, [7]), (7, [1] * 7), (50, [1] * 7)],
)
def test_low_confidence_follows_its_schedule(
    steps_per_block: int | None, counts: list[int]
) -> None:
    model = ScriptedModel(lambda position, step: peaked(5, 0.99, VOCAB), VOCAB)
    opts = options(
        decoding="low_confidence", block_length=7, steps_per_block=steps_per_block, accept_cap=True
    )
    assert [len(step.accepted) for step in run(model, 7, opts).trace] == counts


def test_low_confidence_spreads_the_last_blocks_own_length() -> None:
    model = SmallModel(seed=2, vocab_size=VOCAB)
    generation = run(model, 10, options(decoding="low_confidence", steps_per_block=3))
    counts = [(step.block, len(step.accepted)) for step in generation.trace]
    assert counts == [(0, 2), (0, 1), (0, 1), (1, 2), (1, 1), (1, 1), (2, 1), (2, 1)]


@fixed_examples
@given(
    small_models,
    st.integers(1, 25),
    st.integers(1, 12),
    st.integers(1, 30),
    st.sampled_from(["remix", "threshold", "low_confidence"]),
    st.sampled_from(["remix", "official"]),
)
def test_max_nfe_holds(
    model: SmallModel, length: int, block_length: int, max_nfe: int, decoding: str, preset: str
) -> None:
    opts = options(
        preset=preset, decoding=decoding, block_length=block_length, max_nfe=max_nfe, threshold=1.0
    )
    generation = run(model, length, opts)
    assert generation.nfe <= max(max_nfe, math.ceil(length / block_length))
    assert all(step.accepted for step in generation.trace)
    assert len(generation.token_ids) == length


def test_max_nfe_spreads_the_region_evenly() -> None:
    model = ScriptedModel(lambda position, step: [1 / VOCAB] * VOCAB, VOCAB)
    generation = run(model, 12, options(block_length=6, max_nfe=5))
    assert [len(step.accepted) for step in generation.trace] == [3, 3, 2, 2, 2]


# --- What is predicted, where it ends, what is seen -----------------------------------------------


@fixed_examples
@given(small_models, st.integers(1, 15))
def test_no_mask_id_and_no_padding_is_predicted(model: SmallModel, length: int) -> None:
    generation = generate(model, PROMPT, length, options(), MASK, 9)
    assert len(generation.token_ids) == length
    assert all(token < 9 for token in generation.token_ids)
    assert sorted(i for step in generation.trace for i in step.accepted) == list(range(length))


def test_excluded_ids_leave_the_distribution_before_the_softmax() -> None:
    model = ScriptedModel(lambda position, step: peaked(MASK, 0.9, VOCAB), VOCAB)
    # Of eleven even tokens eight are valid: each has 1/8, just above the threshold.
    generation = generate(model, [], 4, options(threshold=0.12), MASK, 8)
    assert (generation.token_ids, generation.nfe) == ([0] * 4, 1)


def stopping_model(confident: list[int]) -> ScriptedModel:
    """Token 7 at position 2; ``confident`` positions pass at the first step."""

    def script(position: int, step: int) -> list[float]:
        token = 7 if position == 2 else 5
        return peaked(token, 0.95 if position in confident else 0.6 - position / 100, VOCAB)

    return ScriptedModel(script, VOCAB)


def test_a_stop_token_ends_the_generation_at_once() -> None:
    generation = run(stopping_model([0, 1, 2]), 12, options(), stop_token_ids={7})
    assert (generation.token_ids, generation.nfe) == ([5, 5, 7], 1)


def test_a_stop_token_waits_for_what_is_left_of_it() -> None:
    generation = run(stopping_model([2, 3]), 12, options(), stop_token_ids={7})
    assert (generation.token_ids, generation.nfe) == ([5, 5, 7], 3)
    assert [step.accepted for step in generation.trace] == [[2, 3], [0], [1]]


def test_a_stop_token_waits_for_a_mask_id_that_will_be_reopened() -> None:
    opts = options(preset="official", block_length=2)
    generation = run(mask_predicting_model(), 6, opts, stop_token_ids={2})
    assert (generation.token_ids, generation.nfe) == ([1, 2], 3)


def test_a_mask_id_decided_in_the_last_block_does_not_hold_up_a_stop_token() -> None:
    def script(position: int, step: int) -> list[float]:
        if position == 2:
            return peaked(5, 0.6, VOCAB)
        return peaked(MASK if position == 0 else 7, 0.95, VOCAB)

    opts = options(preset="official", block_length=3)
    generation = run(ScriptedModel(script, VOCAB), 3, opts, stop_token_ids={7})
    assert (generation.token_ids, generation.nfe) == ([MASK, 7], 1)


@fixed_examples
@given(small_models, st.integers(1, 20), st.sampled_from(["remix", "official"]))
def test_stopping_cuts_and_changes_nothing_else(
    model: SmallModel, length: int, preset: str
) -> None:
    full = run(model, length, options(preset=preset))
    cut = run(model, length, options(preset=preset), stop_token_ids={2, 5})
    end = next((i + 1 for i, token in enumerate(full.token_ids) if token in (2, 5)), length)
    assert cut.token_ids == full.token_ids[:end]
    assert cut.trace == full.trace[: cut.nfe]


def test_the_window_starts_at_the_active_block() -> None:
    model = SmallModel(seed=3, vocab_size=VOCAB)
    generation = run(model, 14, options(block_length=4), window=6)
    visible = {step.block: len(step.input_state) for step in generation.trace}
    assert visible == {0: 6, 1: 10, 2: 14, 3: 14}


def test_a_window_must_hold_a_block() -> None:
    with pytest.raises(ValueError, match="window"):
        run(SmallModel(seed=3, vocab_size=VOCAB), 8, options(block_length=4), window=3)
