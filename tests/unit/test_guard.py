"""What a request may ask for, through vLLM's own ``InputProcessor``: no engine runs."""

from pathlib import Path
from typing import Any

import pytest
from vllm import SamplingParams
from vllm.engine.arg_utils import EngineArgs
from vllm.exceptions import VLLMValidationError
from vllm.sampling_params import RepetitionDetectionParams, StructuredOutputsParams
from vllm.v1.engine import EngineCoreRequest
from vllm.v1.engine.input_processor import InputProcessor

from remix_vllm.plugin import register
from tests.models.checkpoints import tiny_tokenizer, write_llada

register()

MASK, VOCABULARY_ROWS = 102, 128


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_llada(
        tmp_path_factory.mktemp("model"), mask_token_id=tiny_tokenizer().mask_token_id
    )
    tiny_tokenizer().save_pretrained(path)
    return path


def input_processor(model: Path, **remix: Any) -> InputProcessor:
    engine_args = EngineArgs(str(model), dtype="float32", additional_config={"remix": remix})
    return InputProcessor(engine_args.create_engine_config())


@pytest.fixture(scope="module")
def processor(model: Path) -> InputProcessor:
    return input_processor(model)


def admit(processor: InputProcessor, prompt: Any = None, **params: Any) -> EngineCoreRequest:
    if prompt is None:
        prompt = {"prompt_token_ids": [1, 2, 3]}
    sampling_params = SamplingParams(**{"max_tokens": 8} | params)
    return processor.process_inputs("0", prompt, sampling_params, ("generate",))


@pytest.mark.parametrize(
    "params",
    [
        {},
        {"temperature": 0.0},
        {"temperature": 1.0, "top_p": 1.0, "top_k": -1},
        {"stop": ["x"], "include_stop_str_in_output": True},
        {"stop_token_ids": [5, VOCABULARY_ROWS - 1]},
        {"ignore_eos": True},
        {"max_tokens": 1},
        {"max_tokens": None},
        {"skip_special_tokens": False, "detokenize": True},
        {"extra_args": {"decoding": "threshold", "threshold": 0.7, "block_length": 4}},
        {"extra_args": {"kv_transfer_params": {}}},
    ],
)
def test_supported_parameters_pass(processor: InputProcessor, params: dict[str, Any]) -> None:
    request = admit(processor, **params)
    assert request.prompt_token_ids == [1, 2, 3]
    assert request.sampling_params.extra_args == params.get("extra_args")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 0.7),
        ("temperature", 2.0),
        ("top_p", 0.9),
        ("top_k", 5),
        ("min_p", 0.1),
        ("repetition_penalty", 1.2),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -0.5),
        ("n", 2),
        ("min_tokens", 2),
        ("seed", 0),
        ("logprobs", 0),
        ("logprob_token_ids", [4]),
        ("prompt_logprobs", 1),
        ("prompt_logprob_token_ids", [[1], [2]]),
        ("structured_outputs", StructuredOutputsParams(json='{"type": "object"}')),
        ("logit_bias", {3: 1.0}),
        ("allowed_token_ids", [3]),
        ("bad_words", ["x"]),
        ("thinking_token_budget", 4),
        ("repetition_detection", RepetitionDetectionParams(max_pattern_size=3, min_count=2)),
        ("trace_decode_token_ids", [3]),
    ],
)
def test_what_is_not_supported_is_named(processor: InputProcessor, name: str, value: Any) -> None:
    """vllm-project/vllm#45468: a request for a schema ended in a 500."""
    with pytest.raises(VLLMValidationError, match=f"^{name}=.*not supported") as caught:
        admit(processor, **{name: value})
    assert caught.value.parameter == name


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("thresold", 0.8, "no request option; known are .*threshold"),
        ("threshold", 1.5, "must be a number of at least 0.0 and at most 1.0"),
        ("decoding", "greedy", "must be one of 'remix', 'threshold', 'low_confidence'"),
        ("window", 64, "no request option"),
        ("remix_resume_nfe", 3, "no request option"),
        ("diffusion_max_steps", 3, "no request option"),
        ("block_length", 200, "at most 128"),
    ],
)
def test_bad_options_are_named(
    processor: InputProcessor, option: str, value: Any, message: str
) -> None:
    with pytest.raises(VLLMValidationError, match=f"{option}={value!r}: {message}") as caught:
        admit(processor, extra_args={option: value})
    assert caught.value.parameter == option


@pytest.mark.parametrize("token_id", [VOCABULARY_ROWS, -1])
def test_stop_tokens_are_in_the_vocabulary(processor: InputProcessor, token_id: int) -> None:
    """vllm-project/vllm#54195: out-of-vocabulary ids crashed. vLLM 0.32 checks them."""
    with pytest.raises(VLLMValidationError, match="stop_token_ids"):
        admit(processor, stop_token_ids=[token_id])


@pytest.mark.parametrize("max_tokens", [0, -1])
def test_at_least_one_token_is_generated(processor: InputProcessor, max_tokens: int) -> None:
    with pytest.raises(VLLMValidationError, match="max_tokens must be at least 1"):
        admit(processor, max_tokens=max_tokens)


@pytest.mark.parametrize("prompt", ["a<|mdm_mask|>b", {"prompt_token_ids": [5, MASK, 6]}])
def test_the_mask_token_is_reserved(processor: InputProcessor, prompt: Any) -> None:
    """sgl-project/sglang#35998: a mask token typed by the user was treated as a hole to fill."""
    with pytest.raises(VLLMValidationError, match=f"prompt token 1 is {MASK}, the reserved token"):
        admit(processor, prompt)
    assert admit(processor, "ab").prompt_token_ids == tiny_tokenizer().encode("ab")


def test_text_that_only_resembles_the_mask_token_passes(processor: InputProcessor) -> None:
    assert MASK not in admit(processor, "<|mdm_mask>|").prompt_token_ids


@pytest.mark.parametrize("prompt", ["", {"prompt_token_ids": []}])
def test_empty_prompts_are_refused(processor: InputProcessor, prompt: Any) -> None:
    """vllm-project/vllm#7283: an empty prompt killed the server. vLLM 0.32 checks it."""
    with pytest.raises(VLLMValidationError, match="prompt cannot be empty"):
        admit(processor, prompt)


def test_length_is_checked_as_it_will_be_generated(model: Path, processor: InputProcessor) -> None:
    official = {"extra_args": {"preset": "official"}}
    with pytest.raises(VLLMValidationError, match="max_tokens=129: at most 128 with preset"):
        admit(processor, max_tokens=129, **official)
    with pytest.raises(VLLMValidationError, match="max_tokens=253: at most 128 with preset"):
        admit(processor, max_tokens=None, **official)
    long_prompt = {"prompt_token_ids": [1] * 200}
    assert admit(processor, long_prompt, max_tokens=1000, **official)


def test_engines_of_one_process_have_their_own_limits(
    model: Path, processor: InputProcessor
) -> None:
    other = input_processor(model, block_length=8)
    request = {"extra_args": {"block_length": 16}}
    admit(processor, **request)
    with pytest.raises(VLLMValidationError, match="block_length=16: at most 8"):
        admit(other, **request)
    admit(processor, **request)


def test_streaming_input_is_refused(processor: InputProcessor) -> None:
    with pytest.raises(VLLMValidationError, match="resumable=True is not supported"):
        processor.process_inputs(
            "0", {"prompt_token_ids": [1]}, SamplingParams(), ("generate",), resumable=True
        )


def test_worker_gets_no_logits_processor(processor: InputProcessor) -> None:
    assert not processor.model_config.logits_processors


def test_the_family_s_end_of_turn_ends_a_generation_that_its_files_do_not_name(
    processor: InputProcessor,
) -> None:
    """The checkpoint has no generation_config.json, and its config names one end token only."""
    end_of_turn = tiny_tokenizer().convert_tokens_to_ids("<|eot_id|>")
    request = admit(processor)
    assert request.sampling_params is not None
    assert end_of_turn in request.sampling_params.stop_token_ids
    ignoring = admit(processor, ignore_eos=True)
    assert ignoring.sampling_params is not None
    assert not ignoring.sampling_params.stop_token_ids
