"""``--shutdown-timeout``: who gives none gets a default by the model, who gives one gets that."""

import pickle
from pathlib import Path

import pytest
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.entrypoints.launchers.cli_args import make_arg_parser
from vllm.utils.argparse_utils import FlexibleArgumentParser

from remix_vllm.plugin import register
from remix_vllm.serving.draining import DRAIN_SECONDS
from tests.upstream.configs import llama, make_config

register()


@pytest.fixture(scope="module")
def parser() -> FlexibleArgumentParser:
    return make_arg_parser(FlexibleArgumentParser())


def timeout(
    parser: FlexibleArgumentParser, model: Path, *given: str, api_servers: int = 1
) -> object:
    """That of the engine which a command line starts, read by a process of its own."""
    namespace = parser.parse_args(["--model", str(model), "--skip-tokenizer-init", *given])
    args = AsyncEngineArgs.from_cli_args(pickle.loads(pickle.dumps(namespace)))
    args._api_process_count = api_servers
    return args.create_engine_config().shutdown_timeout


@pytest.mark.parametrize("flags", [(), ("--decoding", "remix")])
def test_a_served_model_drains(
    parser: FlexibleArgumentParser, shipped_model: Path, flags: tuple[str, ...]
) -> None:
    assert timeout(parser, shipped_model, *flags) == DRAIN_SECONDS


@pytest.mark.parametrize("seconds", [0, 7])
def test_what_the_user_gives_counts(
    parser: FlexibleArgumentParser, shipped_model: Path, seconds: int
) -> None:
    given = ("--shutdown-timeout", str(seconds))
    assert timeout(parser, shipped_model, *given, "--decoding", "remix") == seconds
    assert timeout(parser, shipped_model, "--decoding", "remix", *given) == seconds


def test_several_api_servers_keep_vllms_default(
    parser: FlexibleArgumentParser, shipped_model: Path
) -> None:
    assert timeout(parser, shipped_model, api_servers=2) == 0


def test_other_models_keep_vllms_default(parser: FlexibleArgumentParser, tmp_path: Path) -> None:
    value = timeout(parser, llama(tmp_path))
    assert value == 0
    assert type(value) is int


def test_arguments_made_in_python_have_given_theirs(shipped_model: Path) -> None:
    assert make_config(shipped_model).shutdown_timeout == 0
