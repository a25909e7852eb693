"""Models, options and one way to run the oracle, for its tests."""

from collections.abc import Collection, Iterator

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st

from remix_vllm.config import EngineOptions, RequestOptions
from remix_vllm.decoding.reference import Generation, ReferenceModel, generate
from tests.models.scripted import ScriptedModel, peaked
from tests.models.small import SmallModel

VOCAB = 12
MASK = 11
PROMPT = [3, 1, 4]

# The same examples each time: two float32 computations of one thing may part at a near tie.
fixed_examples = settings(max_examples=60, deadline=None, derandomize=True)
small_models = st.builds(
    SmallModel,
    seed=st.integers(0, 2**32 - 1),
    vocab_size=st.just(VOCAB),
    scale=st.sampled_from([1.0, 3.0, 6.0]),
    favoured=st.fixed_dictionaries({MASK: st.sampled_from([0.0, 3.0, 6.0])}),
)


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    # Rows this small are slower on several threads, much slower on a busy machine.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def options(**given_options: object) -> RequestOptions:
    return EngineOptions.parse({"block_length": 4} | given_options, 4).defaults


def run(
    model: ReferenceModel,
    length: int,
    opts: RequestOptions,
    window: int = 256,
    stop_token_ids: Collection[int] = (),
) -> Generation:
    prompt = [] if isinstance(model, ScriptedModel) else PROMPT
    return generate(model, prompt, length, opts, MASK, VOCAB, window, stop_token_ids)


def states_of(generation: Generation, position: int) -> str:
    return "".join(step.input_state[position] for step in generation.trace)


def mask_predicting_model() -> ScriptedModel:
    """Position 0 is the mask id for two steps, position 3 (in the last block) always."""

    def script(position: int, step: int) -> list[float]:
        is_mask = (position == 0 and step < 2) or position == 3
        return peaked(MASK if is_mask else position + 1, 0.95, VOCAB)

    return ScriptedModel(script, VOCAB)
