"""Real command lines, read by vLLM's own parser into its own ``EngineArgs``."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs, EngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from remix_vllm.config import ENGINE_FIELDS, REQUEST_FIELDS
from remix_vllm.plugin import register
from tests.models.checkpoints import write_llada

register()

Parse = Callable[..., dict[str, Any]]
Refuse = Callable[..., str]


@pytest.fixture(scope="module")
def parser() -> FlexibleArgumentParser:
    return make_arg_parser(FlexibleArgumentParser())


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_llada(tmp_path_factory.mktemp("model")))


@pytest.fixture
def parse(parser: FlexibleArgumentParser, model: str) -> Parse:
    """``additional_config`` of the engine that a command line starts."""

    def parse(*arguments: str) -> dict[str, Any]:
        namespace = parser.parse_args(["--model", model, *arguments])
        return AsyncEngineArgs.from_cli_args(namespace).additional_config

    return parse


@pytest.fixture
def refuse(parse: Parse, capsys: pytest.CaptureFixture[str]) -> Refuse:
    """The error message of a command line that must be refused."""

    def refuse(*arguments: str) -> str:
        with pytest.raises(SystemExit) as caught:
            parse(*arguments)
        assert caught.value.code == 2
        return capsys.readouterr().err.splitlines()[-1]

    return refuse


def test_nothing_given(parse: Parse) -> None:
    assert parse() == {}


@pytest.mark.parametrize("decoding", ["remix", "threshold", "low_confidence"])
def test_decoding(parse: Parse, decoding: str) -> None:
    assert parse("--decoding", decoding) == {"remix": {"decoding": decoding}}
    assert parse(f"--decoding={decoding}") == {"remix": {"decoding": decoding}}


def test_one_command_line_leaves_nothing_for_the_next(parse: Parse) -> None:
    parse("--decoding", "remix", "--remix-config", '{"window": 64}')
    assert parse() == {}


def test_remix_config(parse: Parse) -> None:
    expected = {"remix": {"threshold": 0.8, "beta_mix": 0.4}}
    assert parse("--remix-config", '{"threshold": 0.8, "beta_mix": 0.4}') == expected
    assert parse("--remix_config", '{"threshold": 0.8, "beta_mix": 0.4}') == expected
    assert parse("--remix-config.threshold", "0.8", "--remix-config.beta_mix=0.4") == expected


ORDERS = [
    ("--decoding", "threshold", "--remix-config", '{"window": 64}'),
    ("--additional-config", '{"other": 1, "remix": {"threshold": 0.8}}'),
]


@pytest.mark.parametrize("order", [ORDERS, ORDERS[::-1]])
def test_flags_merge_with_additional_config_in_any_order(
    parse: Parse, order: list[tuple[str, ...]]
) -> None:
    config = parse(*order[0], *order[1])
    assert config == {
        "other": 1,
        "remix": {"decoding": "threshold", "window": 64, "threshold": 0.8},
    }


def test_dotted_additional_config(parse: Parse) -> None:
    config = parse("--additional-config.remix.threshold", "0.8", "--decoding", "remix")
    assert config == {"remix": {"threshold": 0.8, "decoding": "remix"}}


def test_another_plugins_config_is_left_alone(parse: Parse) -> None:
    """Only ``remix`` is ours, whatever else is there."""
    other = {"other": {"threshold": "x", "decoding": 7}}
    assert parse("--additional-config", json.dumps(other)) == other


def test_the_last_of_the_same_flag_counts(parse: Parse) -> None:
    assert parse("--decoding", "remix", "--decoding", "threshold") == {
        "remix": {"decoding": "threshold"}
    }


def test_the_same_value_twice_is_no_contradiction(parse: Parse) -> None:
    config = parse("--decoding", "remix", "--remix-config.decoding", "remix")
    assert config == {"remix": {"decoding": "remix"}}


@pytest.mark.parametrize(
    ("other", "arguments"),
    [
        ("--remix-config", ("--remix-config", '{"decoding": "threshold"}')),
        ("--additional-config", ("--additional-config.remix.decoding", "threshold")),
    ],
)
def test_contradicting_flags_are_both_named(
    refuse: Refuse, other: str, arguments: tuple[str, ...]
) -> None:
    for order in (("--decoding", "remix", *arguments), (*arguments, "--decoding", "remix")):
        error = refuse(*order)
        assert "--decoding gives decoding='remix'" in error
        assert f"{other} gives decoding='threshold'" in error


def test_yaml_file(parse: Parse, tmp_path: Path) -> None:
    file = tmp_path / "serve.yaml"
    file.write_text("decoding: threshold\nremix-config:\n  window: 64\n  max_nfe: null\n")
    options = {"decoding": "threshold", "window": 64, "max_nfe": None}
    assert parse("--config", str(file)) == {"remix": options}
    # What is on the command line goes before what is in the file.
    config = parse("--config", str(file), "--decoding", "remix")
    assert config == {"remix": options | {"decoding": "remix"}}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--decoding", "greedy"), "invalid choice: 'greedy'"),
        (("--remix-config", "{"), "argument --remix-config: '{' is not JSON"),
        (("--remix-config", "[1]"), "argument --remix-config: '[1]' must be a JSON object"),
        (("--remix-config.thresold", "1"), "no option 'thresold'; known are accept_cap"),
        (
            ("--remix-config.threshold", "1.5"),
            "argument --remix-config: remix option threshold=1.5: must be a number of at least 0.0",
        ),
        (
            ("--additional-config.remix.window", "0"),
            "argument --additional-config: remix option window=0: must be a whole number",
        ),
        (
            ("--additional-config.remix", "threshold"),
            "argument --additional-config: remix='threshold' must be a JSON object",
        ),
    ],
)
def test_bad_flags_are_refused_by_name(
    refuse: Refuse, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refuse(*arguments)


def test_help_lists_every_option(
    parser: FlexibleArgumentParser, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["--help=ReMix"])
    FlexibleArgumentParser._search_keyword = None
    text = " ".join(capsys.readouterr().out.split())
    assert "--decoding {remix,threshold,low_confidence}" in text
    for name in REQUEST_FIELDS | ENGINE_FIELDS:
        assert f"- {name}: must be " in text
    assert "- threshold: must be a number of at least 0.0 and at most 1.0; default 0.9" in text
    assert (
        "- block_length: must be a whole number of at least 1 and at most 4096; default the" in text
    )


def test_benchmark_parsers_have_the_flags(model: str) -> None:
    parser = EngineArgs.add_cli_args(FlexibleArgumentParser())
    namespace = parser.parse_args(["--model", model, "--decoding", "remix"])
    assert EngineArgs.from_cli_args(namespace).additional_config == {"remix": {"decoding": "remix"}}


def test_flags_reach_the_engine_configuration(parser: FlexibleArgumentParser, model: str) -> None:
    arguments = ["--model", model, "--skip-tokenizer-init", "--decoding", "remix"]
    config = AsyncEngineArgs.from_cli_args(parser.parse_args(arguments)).create_engine_config()
    assert config.additional_config["remix"] == {"decoding": "remix"}


def test_api_server_processes_get_the_options(parser: FlexibleArgumentParser, model: str) -> None:
    """They get the namespace by pickle, and make their ``EngineArgs`` before they load plugins."""
    namespace = parser.parse_args(["--model", model, "--decoding", "threshold"])
    again = AsyncEngineArgs.from_cli_args(pickle.loads(pickle.dumps(namespace)))
    assert again.additional_config == {"remix": {"decoding": "threshold"}}
