"""What an engine of a served architecture is configured with, and what it refuses to start with."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.usage.usage_lib import UsageContext

import remix_vllm.engine.scheduler as schedulers
from remix_vllm.engine.scheduler_choice import make_scheduler
from remix_vllm.plugin import register
from tests.models.checkpoints import write_llada

register()

MAX_MODEL_LEN, VOCABULARY_ROWS, BLOCK_LENGTH = 256, 128, 128
BYTES_PER_SEQUENCE = BLOCK_LENGTH * VOCABULARY_ROWS * 4


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_llada(tmp_path_factory.mktemp("model"))
    published = {"max_new_tokens": 7, "temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}
    (path / "generation_config.json").write_text(json.dumps(published))
    return path


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_attention_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 128,
        "max_position_embeddings": 256,
    }
    (path / "config.json").write_text(json.dumps(config))
    return path


def configure(model: Path, remix: Any = None, **arguments: Any) -> VllmConfig:
    if remix is not None:
        arguments["additional_config"] = {"remix": remix}
    engine_args = EngineArgs(
        str(model), skip_tokenizer_init=True, load_format="dummy", dtype="float32", **arguments
    )
    return engine_args.create_engine_config(UsageContext.OPENAI_API_SERVER)


def gib(sequences: float) -> float:
    return sequences * BYTES_PER_SEQUENCE / (1 << 30)


def test_a_served_model_is_configured_without_any_flag(model: Path) -> None:
    config = configure(model)
    assert config.model_config.is_diffusion
    assert config.diffusion_config is None
    assert config.num_speculative_tokens == 0
    assert config.attention_config.use_non_causal
    assert not config.cache_config.enable_prefix_caching
    assert not config.scheduler_config.enable_chunked_prefill


def test_additional_config_of_others_is_not_read(model: Path) -> None:
    config = configure(model, additional_config={"threshold": "x"})
    assert config.additional_config.items() >= {"threshold": "x"}.items()


def test_prefix_caching_asked_for_is_off_and_said_so(
    model: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("vllm"), "propagate", True)
    with caplog.at_level("INFO", logger="vllm.remix_vllm"):
        config = configure(model, enable_prefix_caching=True)
    assert not config.cache_config.enable_prefix_caching
    assert [m for m in caplog.messages if m.startswith("Prefix caching is off: LLaDA")]


@pytest.mark.parametrize("asynchronous", [True, False])
def test_scheduler_is_the_one_for_async_scheduling(
    model: Path, monkeypatch: pytest.MonkeyPatch, asynchronous: bool
) -> None:
    """vllm-project/vllm#43724: a custom scheduler class silently turned async scheduling off."""
    made: list[str] = []
    for name in ("ReMixScheduler", "ReMixAsyncScheduler"):
        monkeypatch.setattr(
            schedulers, name, lambda name=name, **arguments: made.append(name) or arguments
        )
    config = configure(model, async_scheduling=asynchronous)
    assert config.scheduler_config.async_scheduling is asynchronous
    factory = config.scheduler_config.get_scheduler_cls()
    assert factory is make_scheduler
    assert factory(vllm_config=config, block_size=16) == {"vllm_config": config, "block_size": 16}
    assert made == ["ReMixAsyncScheduler" if asynchronous else "ReMixScheduler"]


@pytest.mark.parametrize(
    ("remix", "message"),
    [
        ({"thresold": 1}, "thresold=1: no engine option; known are"),
        ({"threshold": 2}, "threshold=2: must be a number of at least 0.0 and at most 1.0"),
        ({"window": 16, "block_length": 32}, "block_length=32: at most window"),
        ("threshold", "remix='threshold': must be an object of options"),
    ],
)
def test_bad_options_stop_the_start(model: Path, remix: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        configure(model, remix)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size=2: .*allowed is 1"),
        (
            {"speculative_config": {"method": "ngram", "num_speculative_tokens": 2}},
            "speculative_config with method 'ngram': ",
        ),
        ({"diffusion_config": {"canvas_length": 8}}, "diffusion_config=.*canvas_length=8.*none"),
        (
            {"scheduler_cls": "vllm.v1.core.sched.scheduler.Scheduler"},
            "scheduler_cls='vllm.v1.core.sched.scheduler.Scheduler': .*allowed is none",
        ),
        ({"long_prefill_token_threshold": 8}, "long_prefill_token_threshold=8: .*allowed is 0"),
        ({"enable_lora": True}, "enable_lora=True: .*allowed is False"),
        ({"enable_prompt_embeds": True}, "enable_prompt_embeds=True: .*allowed is False"),
        ({"kv_offloading_size": 1.0}, "kv_offloading_size: .*allowed is neither"),
        ({"logits_processors": ["a:B"]}, r"logits_processors=\['a:B'\]: .*allowed is none"),
        (
            {"override_generation_config": {"temperature": 0.7}},
            "override_generation_config: temperature=0.7: .*allowed is 0 or 1",
        ),
        ({"attention_backend": "FLASHINFER"}, "attention_backend=FLASHINFER: .*FLASH_ATTN"),
        ({"max_num_scheduled_tokens": 100}, r"max_num_scheduled_tokens=100: .*\(256\)"),
        ({"max_num_batched_tokens": 250}, r"max_num_batched_tokens=250: .*\(256\)"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(
    model: Path, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        configure(model, **arguments)


def test_token_budget_not_given_holds_the_longest_sequence(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ({UsageContext.OPENAI_API_SERVER: 64}, {UsageContext.OPENAI_API_SERVER: 4})
    monkeypatch.setattr(EngineArgs, "get_batch_defaults", lambda *_: small)
    scheduler = configure(model).scheduler_config
    assert (scheduler.max_num_batched_tokens, scheduler.max_num_seqs) == (MAX_MODEL_LEN, 4)
    given = configure(model, max_num_batched_tokens=300).scheduler_config
    assert given.max_num_batched_tokens == 300


def test_sequences_not_given_fit_the_history(model: Path) -> None:
    assert configure(model, {"history_gib": gib(3.5)}).scheduler_config.max_num_seqs == 3
    smaller = {"history_gib": gib(3.5), "block_length": BLOCK_LENGTH // 4}
    assert configure(model, smaller).scheduler_config.max_num_seqs == 14


def test_sequences_given_must_fit_the_history(model: Path) -> None:
    options = {"history_gib": gib(3.5)}
    assert configure(model, options, max_num_seqs=3).scheduler_config.max_num_seqs == 3
    with pytest.raises(ValueError, match="max_num_seqs=4: .*history_gib.*allowed is at most 3"):
        configure(model, options, max_num_seqs=4)


def test_not_one_sequence_fits_the_history(model: Path) -> None:
    with pytest.raises(ValueError, match="history_gib=.*: one sequence needs 6.1e-05 GiB"):
        configure(model, {"history_gib": gib(0.5)})


def test_limits_survive_a_second_configuration(model: Path) -> None:
    """``create_engine_config`` writes its choices into the arguments."""
    additional_config = {"remix": {"history_gib": gib(3.5)}}
    engine_args = EngineArgs(
        str(model),
        dtype="float32",
        skip_tokenizer_init=True,
        additional_config=additional_config,
    )
    for _ in range(2):
        assert engine_args.create_engine_config().scheduler_config.max_num_seqs == 3


def test_generation_config_sets_neither_length_nor_sampling(model: Path) -> None:
    """vllm-project/vllm#45417: output silently capped by generation_config."""
    assert configure(model).model_config.get_diff_sampling_param() == {}


def test_operator_can_cap_the_length(model: Path) -> None:
    config = configure(model, override_generation_config={"max_new_tokens": 5})
    assert config.model_config.get_diff_sampling_param() == {"max_tokens": 5}


def test_options_for_another_architecture_stop_the_start(llama: Path) -> None:
    with pytest.raises(
        ValueError, match="architecture LlamaForCausalLM is not served.*LLaDAModelLM"
    ):
        configure(llama, {"decoding": "remix"})


def test_another_architecture_is_left_alone(llama: Path) -> None:
    config = configure(llama, enable_prefix_caching=True, max_num_seqs=77)
    assert config.scheduler_config.scheduler_cls is None
    assert config.scheduler_config.max_num_seqs == 77
    assert config.scheduler_config.enable_chunked_prefill
    assert config.cache_config.enable_prefix_caching
    assert not config.attention_config.use_non_causal
    assert config.model_config.override_generation_config == {}
