"""Options of ReMix decoding: their names, defaults, ranges, presets and error messages, in one
place.

Two records come out of here. :class:`EngineOptions` is read once per engine from
``vllm_config.additional_config["remix"]`` (the command-line flags write there too, so it reaches
every worker process with the engine configuration). :class:`RequestOptions` is what one request
decodes with: the engine's defaults, overlaid with the request's ``SamplingParams.extra_args``
(``vllm_xargs`` in the OpenAI API). Nothing here imports torch or vLLM.
"""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import msgspec

from remix_vllm.option_fields import OptionError, OptionField, boolean, choice, integer, number

Decoding = Literal["remix", "threshold", "low_confidence"]
Preset = Literal["remix", "official", "paper"]
Rejection = Literal["sticky", "one_step"]
Stream = Literal["committed", "block"]
KVCache = Literal["none", "prefix", "dual", "block"]
History = Literal["full", "compact"]

DECODINGS: tuple[str, ...] = get_args(Decoding)
PRESETS: tuple[str, ...] = get_args(Preset)

RESUME_NFE_KEY = "remix_resume_nfe"
"""Key under which the scheduler tells a worker, in ``extra_args``, how many forwards a preempted
request had done when the block it resumes in began. Never accepted from a client."""

VLLM_EXTRA_ARGS = frozenset({"kv_transfer_params", "ec_transfer_params"})
"""Keys that vLLM itself puts into ``extra_args``; they pass through untouched."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What one request decodes with. Every field is an option of the same name."""

    decoding: Decoding
    """``remix``; ``threshold`` (parallel confidence decoding, no mixing); ``low_confidence``
    (LLaDA's fixed schedule)."""
    preset: Preset
    """Where the values not given come from."""
    threshold: float
    """A position whose top probability exceeds this is decided."""
    js_threshold: float
    """Jensen-Shannon divergence (natural log, at most 0.693) between a position's distributions of
    two consecutive steps above which it is rejected, that is, goes back to the mask embedding."""
    beta_mix: float
    """Weight of the predicted embedding in the input of a mixing position; 0 is threshold
    decoding."""
    block_length: int
    """Positions of one block; only the leftmost unfinished block is decided."""
    max_nfe: int | None
    """Upper bound on the request's forward evaluations, as far as one forward per block allows."""
    steps_per_block: int | None
    """``low_confidence`` only: denoising steps per block; None is one token per step."""
    accept_cap: bool
    """Decide at most ``min(max(int(0.7 n), 5), 20)`` of n undecided positions per step."""
    rejection: Rejection
    """``sticky``: a rejected position is compared with an all-zero row, as in the official code,
    which below js_threshold 0.31 keeps it masked until it is decided. ``one_step``: it is masked
    for one step and compared afresh after it."""
    mixing_start: int
    """Forwards of the request after which positions may mix: 1 is the paper's rule, 2 the official
    code's."""
    history_across_blocks: bool
    """Compare a block's first distributions with those of the step before, made in the previous
    block."""
    exclude_mask: bool
    """Never predict the mask token or an id beyond the tokenizer, nor let one into the mixture."""
    mix_top_k: int
    """Most likely tokens considered for the mixture."""
    alpha_scale: float
    """The mixture keeps tokens while their running sum is at most
    ``clamp(alpha_scale * top probability, alpha_min, alpha_max)``, and always the first."""
    alpha_min: float
    alpha_max: float

    @property
    def mixes(self) -> bool:
        return self.decoding == "remix"

    @property
    def remembers_across_blocks(self) -> bool:
        """Whether the rejection rule's history is kept from block to block."""
        return self.mixes and self.history_across_blocks

    @property
    def needs_whole_region(self) -> bool:
        """True if decisions depend on positions outside the active block: such a request must fit
        the canvas window, and starts again from its first block after preemption."""
        return not self.exclude_mask or self.remembers_across_blocks


REQUEST_FIELDS: dict[str, OptionField] = {
    "decoding": choice(DECODINGS),
    "preset": choice(PRESETS),
    "threshold": number(0.0, 1.0),
    "js_threshold": number(0.0, 1.0),
    "beta_mix": number(0.0, 1.0),
    "block_length": integer(1, 4096),
    "max_nfe": integer(1, None, optional=True),
    "steps_per_block": integer(1, None, optional=True),
    "accept_cap": boolean(),
    "rejection": choice(get_args(Rejection)),
    "mixing_start": integer(1, 2),
    "history_across_blocks": boolean(),
    "exclude_mask": boolean(),
    "mix_top_k": integer(1, 50),
    "alpha_scale": number(0.0, 10.0),
    "alpha_min": number(0.0, 1.0),
    "alpha_max": number(0.0, 1.0),
}

_COMMON: dict[str, Any] = {
    "max_nfe": None,
    "steps_per_block": None,
    "mix_top_k": 50,
    "alpha_scale": 2.0,
    "alpha_min": 0.2,
    "alpha_max": 0.9,
}
_PAPER: dict[str, Any] = _COMMON | {
    "threshold": 0.8,
    "js_threshold": 0.3,
    "beta_mix": 0.5,
    "accept_cap": False,
    "rejection": "one_step",
    "mixing_start": 1,
    "history_across_blocks": False,
    "exclude_mask": True,
}
PRESET_VALUES: dict[str, dict[str, Any]] = {
    "paper": _PAPER,
    "official": _PAPER
    | {
        "accept_cap": True,
        "rejection": "sticky",
        "mixing_start": 2,
        "history_across_blocks": True,
        "exclude_mask": False,
    },
    "remix": _PAPER | {"threshold": 0.95, "js_threshold": 0.1, "beta_mix": 0.4},
}
"""Option values of each preset. ``official`` is what the official code does, in float32; ``paper``
the published rules; ``remix`` the default (measurements: docs/design.md)."""


class EngineOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of one engine. All but the defaults for requests are fixed for its lifetime."""

    defaults: RequestOptions
    """What a request that gives no options decodes with."""
    given: dict[str, Any]
    """Request options the operator set; they hold for requests that do not name another preset."""
    window: int
    """Positions of the canvas counted from the start of the active block: at most this many masks
    are in a forward. A generation of at most ``window`` tokens is the paper's setting."""
    stream: Stream
    """``committed``: the decided prefix is streamed as soon as it stands; ``block``: whole
    blocks."""
    kv_cache: KVCache
    """Which keys and values are kept between steps. Full attention: ``none`` (the whole sequence is
    recomputed each step: exact), ``prefix`` (all before the active block is kept, and refreshed at
    each block's start) or ``dual`` (all but the active block is). Block-causal models: ``block``
    (exact)."""
    refresh_interval: int
    """``prefix`` and ``dual``: also refresh after so many steps of a block; 0 is never."""
    history: History
    """What the rejection rule remembers of a position: its logits (``full``: exact) or its 50 most
    likely tokens (``compact``: some decisions differ)."""
    history_gib: float
    """Most memory the rejection rule's distributions may take, in GiB per worker."""
    statistics_rows: int | None
    """Rows of logits for which temporaries of float32 are held at once while a step is decided;
    None for as many as make 4 MiB each."""

    @property
    def history_rows(self) -> int:
        """Positions per slot for which a distribution and mixing candidates are kept: the active
        block, or the whole window if the engine's own defaults look beyond the block."""
        if self.defaults.needs_whole_region:
            return self.window
        return self.defaults.block_length

    @classmethod
    def parse(
        cls,
        options: Mapping[str, Any] | None,
        default_block_length: int,
        block_causal: bool = False,
    ) -> "EngineOptions":
        """Read ``additional_config["remix"]``.

        Args:
            default_block_length: the family's usual one; for a block-causal model its only one.
            block_causal: whether the model attends block by block.

        Raises:
            OptionError: an unknown key, a wrong type or a value out of range; the text names key,
                value and what is allowed.
        """
        options = dict(options or {})
        _check(options, REQUEST_FIELDS | ENGINE_FIELDS, "engine option")
        given = {k: options.pop(k) for k in list(options) if k in ENGINE_FIELDS}
        engine = ENGINE_DEFAULTS | {"kv_cache": "block" if block_causal else "none"} | given
        if (engine["kv_cache"] == "block") != block_causal:
            allowed = "'block'" if block_causal else "'none', 'prefix' or 'dual'"
            raise OptionError(
                "kv_cache", engine["kv_cache"], f"for this model allowed is {allowed}"
            )
        if block_causal:
            # The forward ends with the active block: nothing after it can be attended to.
            engine["window"] = default_block_length
        base = {
            "decoding": "remix",
            "preset": "remix",
            "block_length": min(default_block_length, engine["window"]),
        }
        defaults = _resolve(base | options)
        if defaults.block_length > engine["window"]:
            raise OptionError(
                "block_length", defaults.block_length, f"at most window ({engine['window']})"
            )
        parsed = cls(defaults=defaults, given=options, **engine)
        parsed._check_policy(defaults)
        return parsed

    def _check_policy(self, options: RequestOptions) -> None:
        if options.needs_whole_region and self.kv_cache != "none":
            name = "history_across_blocks" if options.exclude_mask else "exclude_mask"
            allowed = (
                f"not with kv_cache '{self.kv_cache}', which computes the active block only; "
                f"presets 'remix' and 'paper' do without"
            )
            raise OptionError(name, getattr(options, name), allowed)
        if self.kv_cache == "block" and options.block_length != self.window:
            allowed = f"only {self.window}, with which this block-causal model was trained"
            raise OptionError("block_length", options.block_length, allowed)

    def request_options(self, extra_args: Mapping[str, Any] | None) -> RequestOptions:
        """Options of a request with these ``extra_args``.

        A request that names a preset starts from that preset's values; otherwise the operator's
        hold. ``block_length`` is the operator's either way unless the request gives it.

        Raises:
            OptionError: as :meth:`parse`, or a value this engine has no room for.
        """
        ours = {k: v for k, v in (extra_args or {}).items() if k not in VLLM_EXTRA_ARGS}
        ours.pop(RESUME_NFE_KEY, None)
        if not ours:
            return self.defaults
        _check(ours, REQUEST_FIELDS, "request option")
        base: dict[str, Any] = {
            "decoding": self.defaults.decoding,
            "preset": self.defaults.preset,
        }
        base["block_length"] = self.defaults.block_length
        if "preset" not in ours:
            base |= self.given
        options = _resolve(base | ours)
        self._check_policy(options)
        if options.block_length > self.window:
            raise OptionError(
                "block_length", options.block_length, f"at most the server's window ({self.window})"
            )
        if options.mixes and options.block_length > self.history_rows:
            allowed = (
                f"at most {self.history_rows}, the server's block_length, for decoding 'remix'"
            )
            raise OptionError("block_length", options.block_length, allowed)
        return options

    def check_length(self, options: RequestOptions, max_tokens: int) -> None:
        """Check that a generation of ``max_tokens`` fits what ``options`` need.

        Raises:
            OptionError: the options look beyond the active block and the generation exceeds the
                rows this engine keeps (``window`` of them only under an ``official`` default).
        """
        if not options.needs_whole_region:
            return
        rows = self.history_rows if options.mixes else self.window
        if max_tokens > rows:
            allowed = (
                f"at most {rows} with preset '{options.preset}', whose decisions look at the whole "
                f"region; a server started with it takes up to {self.window}"
            )
            raise OptionError("max_tokens", max_tokens, allowed)


ENGINE_FIELDS: dict[str, OptionField] = {
    "window": integer(1, 65536),
    "stream": choice(get_args(Stream)),
    "kv_cache": choice(get_args(KVCache)),
    "refresh_interval": integer(0, 65536),
    "history": choice(get_args(History)),
    "history_gib": number(0.0, 4096.0),
    "statistics_rows": integer(1, 65536, optional=True),
}
ENGINE_DEFAULTS: dict[str, Any] = {
    "window": 256,
    "stream": "committed",
    "kv_cache": "none",
    "refresh_interval": 0,
    "history": "full",
    "history_gib": 4.0,
    "statistics_rows": None,
}


def _check(options: Mapping[str, Any], fields: Mapping[str, OptionField], kind: str) -> None:
    for name, value in options.items():
        if name not in fields:
            raise OptionError(name, value, f"no {kind}; known are {', '.join(sorted(fields))}")
        fields[name].check(name, value)


def _resolve(options: Mapping[str, Any]) -> RequestOptions:
    values = PRESET_VALUES[options["preset"]] | dict(options)
    for name, field in REQUEST_FIELDS.items():
        values[name] = field.normalise(values[name])
    if values["alpha_min"] > values["alpha_max"]:
        raise OptionError(
            "alpha_min", values["alpha_min"], f"at most alpha_max ({values['alpha_max']})"
        )
    return RequestOptions(**values)
