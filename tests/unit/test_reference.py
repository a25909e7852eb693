"""The oracle: mixing and rejection, and the official code's quirks."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remix_vllm.decoding.reference import (
    generate,
    generate_official,
    js_divergence,
    mixed_embedding,
)
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
    states_of,
)

# --- Mixing and rejection -------------------------------------------------------------------------


def flipping_model() -> ScriptedModel:
    """Position 0 changes its mind at the fourth forward; the others go before it, one a step."""

    def script(position: int, step: int) -> list[float]:
        if position == 0:
            return peaked(1 if step < 3 else 2, 0.75, VOCAB)
        return peaked(5, 0.78, VOCAB)

    return ScriptedModel(script, VOCAB)


@pytest.mark.parametrize(
    ("js_threshold", "states"),
    [(0.1, "MMCCMMMMM"), (0.3, "MMCCMMMMM"), (0.33, "MMCCMMMMM"), (0.35, "MMCCMCCCC")],
)
def test_official_rejection_is_sticky_below_half_of_ln_2(js_threshold: float, states: str) -> None:
    opts = options(preset="official", block_length=9, threshold=0.8, js_threshold=js_threshold)
    assert states_of(run(flipping_model(), 9, opts), 0) == states
    official = generate_official(flipping_model(), [], 9, 9, 0.8, js_threshold, 0.5, MASK)
    assert states_of(official, 0) == states


def test_paper_rejection_lasts_one_step() -> None:
    opts = options(preset="paper", block_length=9)
    assert states_of(run(flipping_model(), 9, opts), 0) == "MCCCMCCCC"


def test_paper_compares_afresh_after_a_rejection() -> None:
    def script(position: int, step: int) -> list[float]:
        if position == 0:
            return peaked(min(max(step, 2), 4), 0.75, VOCAB)  # another mind at steps 3 and 4
        return peaked(5, 0.78, VOCAB)

    opts = options(preset="paper", block_length=9)
    assert states_of(run(ScriptedModel(script, VOCAB), 9, opts), 0) == "MCCCMCCCC"
    sticky = options(preset="paper", block_length=9, rejection="sticky", js_threshold=0.35)
    assert states_of(run(ScriptedModel(script, VOCAB), 9, sticky), 0) == "MCCCMCCCC"


def test_a_steady_position_is_not_rejected_at_js_threshold_zero() -> None:
    model = ScriptedModel(lambda position, step: peaked(5, 0.6 - position / 100, VOCAB), VOCAB)
    generation = run(model, 4, options(js_threshold=0.0))
    assert states_of(generation, 3) == "MCCC"


def test_a_zero_row_diverges_by_0_3126_to_half_of_ln_2() -> None:
    # The size of LLaDA's vocabulary: the even distribution is the least divergent one.
    zero, even = torch.zeros(126464), torch.full((126464,), 1 / 126464)
    one = torch.zeros(126464)
    one[7] = 1.0
    assert js_divergence(zero, even).item() == pytest.approx(0.3126, abs=1e-3)
    assert js_divergence(zero, even).item() > 0.3
    assert js_divergence(zero, one).item() == pytest.approx(math.log(2) / 2, abs=1e-3)


def test_js_divergence_of_distributions() -> None:
    a, b = torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.0, 0.5, 0.5])
    assert js_divergence(a, a).item() == 0
    assert js_divergence(a, b).item() == pytest.approx(math.log(2), abs=1e-5)


@pytest.mark.parametrize(
    ("p", "kept"),
    [
        ([0.5, 0.25, 0.125, 0.125], [0.5, 0.25, 0.0, 0.0]),  # alpha 0.75: the sum may reach it
        ([0.125, 0.1875, 0.0625, 0.125], [0.125, 0.1875, 0.0, 0.0]),  # alpha 0.375
        ([0.0625, 0.0625, 0.0625, 0.0625], [0.0625, 0.0625, 0.0625, 0.0]),  # alpha 0.2
        ([0.96, 0.04, 0.0, 0.0], [0.96, 0.0, 0.0, 0.0]),  # the first is kept above alpha
    ],
)
def test_mixture_keeps_the_likely_tokens(p: list[float], kept: list[float]) -> None:
    opts = options(beta_mix=0.25, alpha_max=0.75)
    row = mixed_embedding(torch.tensor(p), torch.eye(5), 4, opts)
    assert row.tolist() == pytest.approx([0.25 * x for x in kept] + [1 - 0.25 * sum(kept)])


def test_mixture_ties_go_to_the_lowest_ids() -> None:
    row = mixed_embedding(torch.full((5,), 0.2), torch.eye(5), 4, options())
    assert row.nonzero()[:, 0].tolist() == [0, 1, 4]
    row = mixed_embedding(torch.full((5,), 0.2), torch.eye(5), 4, options(mix_top_k=1))
    assert row.nonzero()[:, 0].tolist() == [0, 4]


def test_inputs_of_each_state() -> None:
    model = flipping_model()
    generation = run(model, 9, options(preset="paper", block_length=9))
    mask_row = torch.eye(VOCAB)[MASK]
    p = torch.tensor(peaked(1, 0.75, VOCAB))
    p[MASK] = 0  # excluded, so the rest is renormalised
    blend = mixed_embedding(p / p.sum(), torch.eye(VOCAB), MASK, options(preset="paper"))
    assert torch.equal(model.fed[0][0], mask_row)
    assert torch.allclose(model.fed[1][0], blend)
    assert torch.equal(model.fed[4][0], mask_row)
    decided = generation.trace[0].accepted[0]
    assert torch.equal(model.fed[1][decided], torch.eye(VOCAB)[5])


def test_history_across_blocks_rejects_at_a_blocks_first_step() -> None:
    def script(position: int, step: int) -> list[float]:
        if position < 2:
            return peaked(5, 0.95, VOCAB)
        return peaked(1 if step == 0 else 2, 0.7, VOCAB)

    across = options(preset="official", block_length=2, threshold=0.8)
    within = options(preset="official", block_length=2, threshold=0.8, history_across_blocks=False)
    # Block 1: its first forward differs from what block 0's saw there. One position falls back to
    # being decided; the other one is rejected only if the history crosses the blocks.
    assert states_of(run(ScriptedModel(script, VOCAB), 4, across), 3) == "MMM"
    assert states_of(run(ScriptedModel(script, VOCAB), 4, within), 3) == "MMC"


@pytest.mark.parametrize(("across", "states"), [(True, "MCMM"), (False, "MCMC")])
def test_a_reopened_position_is_compared_only_if_the_history_crosses_blocks(
    across: bool, states: str
) -> None:
    def script(position: int, step: int) -> list[float]:
        if position == 0:  # decided as the mask id at step 1, predicted to be something else after
            return [peaked(1, 0.7, VOCAB), peaked(MASK, 0.9, VOCAB), peaked(2, 0.6, VOCAB)][
                min(step, 2)
            ]
        return peaked(5, 0.95 if position == 1 else 0.7, VOCAB)

    opts = options(
        preset="official",
        block_length=2,
        threshold=0.8,
        mixing_start=1,
        history_across_blocks=across,
    )
    assert states_of(run(ScriptedModel(script, VOCAB), 4, opts), 0)[:4] == states


@pytest.mark.parametrize(("mixing_start", "states"), [(1, "MCCMCC"), (2, "MMCMCC")])
def test_mixing_starts_late_once_per_request(mixing_start: int, states: str) -> None:
    model = ScriptedModel(lambda position, step: peaked(5, 0.7 - position / 100, VOCAB), VOCAB)
    opts = options(block_length=3, mixing_start=mixing_start)
    generation = run(model, 6, opts)
    assert states_of(generation, 2)[:3] + states_of(generation, 5)[3:] == states


def test_threshold_decoding_never_mixes() -> None:
    model = SmallModel(seed=1, vocab_size=VOCAB)
    generation = run(model, 12, options(decoding="threshold"))
    assert all("C" not in step.input_state for step in generation.trace)


@fixed_examples
@given(small_models, st.integers(1, 12), st.sampled_from(["remix", "paper", "official"]))
def test_beta_zero_is_threshold_decoding(model: SmallModel, length: int, preset: str) -> None:
    opts = options(preset=preset, threshold=0.7, beta_mix=0.0)
    plain = options(preset=preset, threshold=0.7, decoding="threshold")
    a, b = run(model, length, opts), run(model, length, plain)
    assert (a.token_ids, a.nfe) == (b.token_ids, b.nfe)


# --- The official loop ----------------------------------------------------------------------------


@fixed_examples
@given(
    small_models,
    st.sampled_from([(12, 12), (12, 4), (24, 12), (15, 5), (3, 1)]),
    st.sampled_from([0.5, 0.8, 0.9]),
    st.sampled_from([0.02, 0.1, 0.3, 0.35, 0.6]),
    st.sampled_from([0.4, 0.5, 0.6, 1.0]),
)
def test_official_preset_equals_the_official_loop(
    model: SmallModel,
    lengths: tuple[int, int],
    threshold: float,
    js_threshold: float,
    beta_mix: float,
) -> None:
    length, block_length = lengths
    values = {"threshold": threshold, "js_threshold": js_threshold, "beta_mix": beta_mix}
    opts = options(preset="official", block_length=block_length, **values)
    official = generate_official(model, PROMPT, length, block_length, mask_token_id=MASK, **values)
    assert run(model, length, opts) == official


def test_a_predicted_mask_id_is_reopened_by_the_next_block_and_returned_by_the_last() -> None:
    opts = options(preset="official", block_length=2)
    generation = run(mask_predicting_model(), 6, opts)
    assert [step.accepted for step in generation.trace] == [[0, 1], [0, 2, 3], [0, 3, 4, 5]]
    assert [step.input_state for step in generation.trace] == ["MMMMMM", "MTMMMM", "MTTMMM"]
    assert generation.token_ids == [1, 2, 3, MASK, 5, 6]
    official = generate_official(mask_predicting_model(), [], 6, 2, 0.8, 0.3, 0.5, MASK)
    assert generation == official


def test_the_official_loop_decides_mask_ids_of_the_prompt_and_generate_does_not() -> None:
    model = SmallModel(seed=5, vocab_size=VOCAB, scale=0.0)
    prompt = [3, MASK]
    official = generate_official(model, prompt, 2, 2, 0.8, 0.3, 0.5, MASK)
    assert [step.accepted for step in official.trace] == [[], [0], [1]]
    opts = options(preset="official", block_length=2)
    assert generate(model, prompt, 2, opts, MASK, VOCAB).nfe == 2


def test_the_official_loop_wants_whole_blocks() -> None:
    with pytest.raises(ValueError, match="multiple"):
        generate_official(SmallModel(0, VOCAB), PROMPT, 5, 2, 0.8, 0.3, 0.5, MASK)
