"""The command-line flags ``--decoding`` and ``--remix-config``.

They write into ``args.additional_config["remix"]``, the one place options travel in: a spawned
API-server process builds its ``EngineArgs`` from ``args`` before it loads plugins, so a field of
our own would be lost there. A flag given twice counts the last time, as usual (so the command line
goes before ``--config``); two different flags must not contradict each other.
"""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from remix_vllm.config import (
    DECODINGS,
    ENGINE_DEFAULTS,
    ENGINE_FIELDS,
    PRESET_VALUES,
    REQUEST_FIELDS,
)
from remix_vllm.option_fields import OptionError, OptionField

ADDITIONAL_CONFIG = "--additional-config"
DECODING = "--decoding"
REMIX_CONFIG = "--remix-config"

_GIVEN = "_remix_flags"
"""Attribute of the namespace: what each of the three flags gave."""


def add_flags(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Add the group ``ReMix`` to a parser that has vLLM's engine arguments."""
    group = parser.add_argument_group(
        title="ReMix", description="Decoding of masked diffusion language models."
    )
    group.add_argument(
        DECODING,
        action=_Decoding,
        dest="decoding",
        default=argparse.SUPPRESS,
        choices=DECODINGS,
        help="How requests that do not say otherwise are decoded; for masked diffusion models.",
    )
    group.add_argument(
        REMIX_CONFIG,
        action=_RemixConfig,
        dest="remix_config",
        default=argparse.SUPPRESS,
        metavar="JSON",
        help=_options_help(),
    )
    # The stock action replaces what our flags have written if it comes after them. Exchanging the
    # class keeps everything else about the argument: its type, default, help and group.
    parser._option_string_actions[ADDITIONAL_CONFIG].__class__ = _AdditionalConfig
    return parser


class _Decoding(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        _give(parser, namespace, DECODING, {"decoding": values})


class _RemixConfig(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        try:
            options = json.loads(values)
        except json.JSONDecodeError as error:
            parser.error(f"argument {REMIX_CONFIG}: {values!r} is not JSON: {error}")
        if not isinstance(options, dict):
            parser.error(f"argument {REMIX_CONFIG}: {values!r} must be a JSON object")
        _give(parser, namespace, REMIX_CONFIG, options)


class _AdditionalConfig(argparse._StoreAction):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        super().__call__(parser, namespace, values, option_string)
        if not isinstance(values, dict):
            return
        options = values.get("remix", {})
        if not isinstance(options, dict):
            parser.error(f"argument {ADDITIONAL_CONFIG}: remix={options!r} must be a JSON object")
        _give(parser, namespace, ADDITIONAL_CONFIG, options)


def _give(
    parser: argparse.ArgumentParser,
    namespace: argparse.Namespace,
    flag: str,
    options: Mapping[str, Any],
) -> None:
    """Note what ``flag`` gives and write all flags' options to the namespace."""
    fields = REQUEST_FIELDS | ENGINE_FIELDS
    for name, value in options.items():
        if name not in fields:
            parser.error(
                f"argument {flag}: no option {name!r}; known are {', '.join(sorted(fields))}"
            )
        try:
            fields[name].check(name, value)
        except OptionError as error:
            parser.error(f"argument {flag}: {error}")

    given: dict[str, Mapping[str, Any]] = {**getattr(namespace, _GIVEN, {}), flag: options}
    setattr(namespace, _GIVEN, given)
    merged: dict[str, Any] = {}
    source: dict[str, str] = {}
    for other, values in given.items():
        for name, value in values.items():
            if name in merged and merged[name] != value:
                parser.error(
                    f"{source[name]} gives {name}={merged[name]!r}, {other} gives {name}={value!r}"
                )
            merged[name] = value
            source[name] = other
    # The attribute may be the argument's default, which all parses share: it is not written to.
    config = {**(namespace.additional_config or {})}
    if merged:
        config["remix"] = merged
    namespace.additional_config = config


def _options_help() -> str:
    """One line for each option, with what is allowed and its default."""
    defaults = PRESET_VALUES["remix"] | ENGINE_DEFAULTS | {"decoding": "remix", "preset": "remix"}
    lines = [f"Options as a JSON object, or one by one as {REMIX_CONFIG}.NAME VALUE:"]
    for name, field in (REQUEST_FIELDS | ENGINE_FIELDS).items():
        default = json.dumps(defaults[name]) if name in defaults else "the model's"
        lines.append(f"- {name}: {_allowed(name, field)}; default {default}")
    fixed = ", ".join(ENGINE_FIELDS)
    lines.append(f"Requests may set all of these but {fixed} for themselves, in vllm_xargs.")
    return "\n\n".join(lines)


def _allowed(name: str, field: OptionField) -> str:
    """What the error about a value that no option takes says is allowed."""
    try:
        field.check(name, ...)
    except OptionError as error:
        return str(error).partition(": ")[2]
    raise AssertionError(f"option {name} takes any value")
