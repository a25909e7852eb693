"""What became of a step's rows, on its way from the worker to the scheduler.

vLLM 0.32 has no field for it, and one that this decoding leaves empty: ``logprobs``. Of what a
sampler puts there the runner only calls ``to_cpu_nonblocking()``, behind its copy stream, and then
``tolists()`` (``v1/worker/gpu/async_utils.py``); the result reaches the scheduler in
``ModelRunnerOutput.logprobs``, pickled if the worker is another process. The Ray executor unpacks
it as a tuple of four and looks for arrays among them (``v1/executor/ray_utils.py``).
"""

from typing import TYPE_CHECKING, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from vllm.v1.outputs import ModelRunnerOutput


class StepCounts(NamedTuple):
    """Per request of the step, in the order of ``req_ids``; all 0 for one that was left alone."""

    accepted: list[int]
    """Rows decided in this step."""
    mixed: list[int]
    """Rows that are fed a blend in the next."""
    rejected: list[int]
    """Rows that go back to the mask because their distribution moved."""
    corrupt: list[int]
    """Rows whose logits hold no distribution: NaN, infinity, or nothing finite."""


class StepCountsTensor(NamedTuple):
    """The same on the device."""

    counts: Tensor
    """``[R, 4]`` int64, columns as the fields of :class:`StepCounts`."""

    def to_cpu_nonblocking(self) -> "StepCountsTensor":
        return StepCountsTensor(self.counts.to("cpu", non_blocking=True))

    def tolists(self) -> StepCounts:
        return StepCounts(*self.counts.T.tolist())


def take_counts(output: "ModelRunnerOutput") -> StepCounts | None:
    """The counts of a step, out of the field that the scheduler would take for logprobs; None if it
    ran no request."""
    counts, output.logprobs = output.logprobs, None
    return counts
