"""KV policies as the mock engine runs them, and what the oracle says of requests under them."""

from dataclasses import dataclass, field
from typing import Any

from remix_vllm.config import EngineOptions
from remix_vllm.decoding.reference import Generation, generate
from tests.models.mock_worker import MAX_MODEL_LEN, VALID_TOKENS
from tests.models.toy import ToyModel
from tests.models.toy_attention import BlockCausalToy, CachedToy

PAGE = 8


@dataclass(frozen=True)
class Policy:
    name: str
    settings: dict[str, Any]

    @property
    def block_causal(self) -> bool:
        return self.settings.get("kv_cache") == "block"

    @property
    def checkpoint_block(self) -> int | None:
        """Block length of the model's own, if it has one."""
        return self.settings["block_length"] if self.block_causal else None

    def model(self, seed: int) -> ToyModel:
        """The toy that this policy's sequences attend like, for the oracle as for the worker."""
        sharpness = [1.0, 4.0, 9.0][seed % 3]
        if self.block_causal:
            block = BlockCausalToy(seed, sharpness=sharpness)
            block.block_length = self.settings["block_length"]
            return block
        if self.settings["kv_cache"] == "none":
            return ToyModel(seed, sharpness=sharpness)
        cached = CachedToy(seed, sharpness=sharpness)
        cached.policy = self.settings["kv_cache"]
        cached.refresh_interval = self.settings.get("refresh_interval", 0)
        return cached


NONE = Policy("none", {"kv_cache": "none", "block_length": 8, "window": 20})
PREFIX = Policy("prefix", {"kv_cache": "prefix", "block_length": 8, "window": 20})
DUAL = Policy("dual", {"kv_cache": "dual", "block_length": 8, "window": 20, "refresh_interval": 4})
BLOCK4 = Policy("block4", {"kv_cache": "block", "block_length": 4})
BLOCK8 = Policy("block8", {"kv_cache": "block", "block_length": 8})
POLICIES = [NONE, PREFIX, DUAL, BLOCK4, BLOCK8]


@dataclass(frozen=True)
class ToyRequest:
    """A request to a toy model of its own."""

    seed: int
    prompt: list[int]
    max_tokens: int
    options: dict[str, Any] = field(default_factory=dict)
    stop: tuple[int, int] | None = None
    """A stop token and the only absolute position at which the model predicts it."""
    priority: int = 0

    def model(self, policy: Policy) -> ToyModel:
        model = policy.model(self.seed)
        if self.stop is not None:
            token, position = self.stop
            model.bias[token] = -100.0
            model.forced = {position: token}
        return model

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return () if self.stop is None else self.stop[:1]

    def expected(self, policy: Policy, engine: EngineOptions) -> Generation:
        """What the oracle answers."""
        options, model = engine.request_options(self.options), self.model(policy)
        return generate(
            model,
            self.prompt,
            min(self.max_tokens, MAX_MODEL_LEN - len(self.prompt)),
            options,
            model.mask_token_id,
            VALID_TOKENS,
            engine.window,
            self.stop_token_ids,
            len(self.prompt) % options.block_length if policy.block_causal else 0,
            getattr(model, "before_forward", None),
        )
