"""Options: where their values come from, and what is refused with which words."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remix_vllm.config import (
    DECODINGS,
    ENGINE_DEFAULTS,
    ENGINE_FIELDS,
    PRESET_VALUES,
    PRESETS,
    REQUEST_FIELDS,
    RESUME_NFE_KEY,
    EngineOptions,
)
from remix_vllm.option_fields import OptionError

FRACTION = st.floats(0, 1)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "decoding": st.sampled_from(DECODINGS),
    "preset": st.sampled_from(PRESETS),
    "threshold": FRACTION,
    "js_threshold": FRACTION,
    "beta_mix": FRACTION,
    "block_length": st.integers(1, 128),
    "max_nfe": st.none() | st.integers(1, 10**6),
    "steps_per_block": st.none() | st.integers(1, 10**6),
    "accept_cap": st.booleans(),
    "rejection": st.sampled_from(["sticky", "one_step"]),
    "mixing_start": st.sampled_from([1, 2]),
    "history_across_blocks": st.booleans(),
    "exclude_mask": st.booleans(),
    "mix_top_k": st.integers(1, 50),
    "alpha_scale": st.floats(0, 10),
    "alpha_min": st.floats(0, 0.2),
    "alpha_max": st.floats(0.9, 1),
}
REQUESTS = st.fixed_dictionaries({}, optional=VALUES)

REFUSED: dict[str, list[Any]] = {
    "decoding": ["greedy", None, 1],
    "preset": ["", "Remix"],
    "threshold": [-0.1, 1.1, "0.9", None, True, float("nan")],
    "js_threshold": [2],
    "beta_mix": [float("inf")],
    "block_length": [0, 4097, 8.0, "8", None],
    "max_nfe": [0, 1.5],
    "steps_per_block": [0],
    "accept_cap": [2, "true", None],
    "rejection": ["none"],
    "mixing_start": [0, 3, True],
    "history_across_blocks": ["no"],
    "exclude_mask": [[]],
    "mix_top_k": [0, 51],
    "alpha_scale": [11],
    "alpha_min": [-1],
    "alpha_max": [2],
    "window": [0, 65537, None],
    "stream": ["token"],
    "kv_cache": ["full"],
    "refresh_interval": [-1, 1.5],
    "history": ["half"],
    "history_gib": [-1, 5000],
    "statistics_rows": [0],
}


def parse(options: dict[str, Any] | None, default_block_length: int = 32) -> EngineOptions:
    return EngineOptions.parse(options, default_block_length)


def test_every_option_is_covered_here() -> None:
    assert VALUES.keys() == REQUEST_FIELDS.keys()
    assert REFUSED.keys() == REQUEST_FIELDS.keys() | ENGINE_FIELDS.keys()


@pytest.mark.parametrize("nothing", [None, {}])
def test_defaults(nothing: dict[str, Any] | None) -> None:
    options = parse(nothing)
    assert options.defaults.decoding == options.defaults.preset == "remix"
    assert options.defaults.block_length == 32
    assert {name: getattr(options, name) for name in ENGINE_DEFAULTS} == ENGINE_DEFAULTS
    assert options.request_options(None) == options.request_options({}) == options.defaults


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_sets_what_is_not_given(preset: str) -> None:
    for options in (
        parse({"preset": preset}).defaults,
        parse({}).request_options({"preset": preset}),
    ):
        assert {n: getattr(options, n) for n in PRESET_VALUES[preset]} == PRESET_VALUES[preset]


@given(REQUESTS)
def test_engine_options_are_the_ones_given(options: dict[str, Any]) -> None:
    defaults = parse(options).defaults
    assert {name: getattr(defaults, name) for name in options} == options


@given(REQUESTS, REQUESTS)
def test_request_overlays_the_engine(engine: dict[str, Any], request: dict[str, Any]) -> None:
    options = parse(engine | {"block_length": 128})
    result = options.request_options(request)
    expected = PRESET_VALUES[result.preset] | {"block_length": 128}
    expected |= {"decoding": options.defaults.decoding}
    if "preset" not in request:
        expected |= engine | {"block_length": 128}
    expected |= request
    assert {name: getattr(result, name) for name in expected} == expected


@given(REQUESTS)
def test_request_options_are_idempotent(request: dict[str, Any]) -> None:
    options = parse({"block_length": 128})
    once = options.request_options(request)
    everything = {name: getattr(once, name) for name in REQUEST_FIELDS}
    assert options.request_options(everything) == once


def test_one_and_zero_are_booleans() -> None:
    """The OpenAI API's ``vllm_xargs`` narrows JSON booleans to numbers."""
    options = parse({}).request_options({"accept_cap": 1, "exclude_mask": 0})
    assert options.accept_cap is True
    assert options.exclude_mask is False


def test_whole_numbers_are_numbers() -> None:
    assert isinstance(parse({"threshold": 1}).defaults.threshold, float)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in REFUSED.items() for value in values]
)
def test_error_names_option_value_and_what_is_allowed(name: str, value: Any) -> None:
    with pytest.raises(OptionError, match="must be ") as caught:
        parse({name: value})
    assert f"{name}={value!r}" in str(caught.value)
    if name in REQUEST_FIELDS:
        with pytest.raises(OptionError) as by_request:
            parse({}).request_options({name: value})
        assert str(by_request.value) == str(caught.value)


def test_unknown_engine_option_lists_the_known() -> None:
    with pytest.raises(OptionError, match="thresold=0.8: no engine option; known are .*threshold"):
        parse({"thresold": 0.8})


@pytest.mark.parametrize("name", ["thresold", *ENGINE_FIELDS])
def test_a_request_cannot_set_what_is_no_request_option(name: str) -> None:
    with pytest.raises(OptionError, match=f"{name}=1: no request option; known are .*threshold"):
        parse({}).request_options({name: 1})


def test_what_vllm_adds_is_not_an_option() -> None:
    options = parse({})
    extra_args = {"kv_transfer_params": {}, RESUME_NFE_KEY: 3}
    assert options.request_options(extra_args) == options.defaults


def test_default_block_shrinks_to_the_window() -> None:
    assert parse({"window": 16}).defaults.block_length == 16


def test_block_exceeds_the_window() -> None:
    with pytest.raises(OptionError, match=r"block_length=64: at most window \(32\)"):
        parse({"window": 32, "block_length": 64})
    with pytest.raises(OptionError, match=r"block_length=64: at most the server's window \(32\)"):
        parse({"window": 32}).request_options({"block_length": 64, "decoding": "threshold"})


def test_a_mixing_request_is_bounded_by_the_history_kept() -> None:
    options = parse({"block_length": 8})
    assert options.history_rows == 8
    with pytest.raises(OptionError, match="block_length=16: at most 8"):
        options.request_options({"block_length": 16})
    assert options.request_options({"block_length": 16, "decoding": "threshold"}).block_length == 16


def test_alpha_bounds_are_in_order() -> None:
    with pytest.raises(OptionError, match=r"alpha_min=0.9: at most alpha_max \(0.5\)"):
        parse({"alpha_min": 0.9, "alpha_max": 0.5})


def test_length_is_bounded_where_decisions_look_beyond_the_block() -> None:
    ours, official = parse({}), parse({"preset": "official"})
    assert (ours.history_rows, official.history_rows) == (32, 256)
    ours.check_length(ours.defaults, 10_000)
    official.check_length(official.defaults, 256)
    with pytest.raises(OptionError, match="max_tokens=257: at most 256 with preset 'official'"):
        official.check_length(official.defaults, 257)
    with pytest.raises(OptionError, match="max_tokens=33: at most 32 with preset 'official'"):
        ours.check_length(ours.request_options({"preset": "official"}), 33)


def test_a_block_causal_model_has_one_policy_and_one_block_length() -> None:
    options = EngineOptions.parse({}, 8, block_causal=True)
    assert (options.kv_cache, options.window, options.defaults.block_length) == ("block", 8, 8)
    for refused in ({"kv_cache": "none"}, {"block_length": 4}, {"preset": "official"}):
        with pytest.raises(OptionError, match=r"kv_cache|block_length|exclude_mask"):
            EngineOptions.parse(refused, 8, block_causal=True)
    with pytest.raises(OptionError, match=r"block_length=16.*only 8"):
        options.request_options({"block_length": 16})


@pytest.mark.parametrize("policy", ["prefix", "dual"])
def test_what_needs_the_whole_region_needs_it_computed(policy: str) -> None:
    with pytest.raises(OptionError, match=f"not with kv_cache '{policy}'"):
        parse({"kv_cache": policy}).request_options({"preset": "official"})
