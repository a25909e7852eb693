"""What the scheduler knows of one running request: how far it is, and how many forwards it took."""

import copy

from vllm.v1.metrics.stats import RequestSpecDecodeMetrics
from vllm.v1.request import Request

from remix_vllm.config import EngineOptions, RequestOptions


class Progress:
    """Canvas geometry and forward count of one request.

    The count is kept in vLLM's own per-request record, ``RequestSpecDecodeMetrics``: one observation per
    forward, so ``num_spec_steps`` is the NFE and ``num_accepted_draft_tokens`` the tokens returned. It is
    what ``RequestOutput.outputs[0].spec_decode_metrics`` and the API's ``metrics.speculative_decoding``
    show.
    """

    def __init__(self, request: Request, engine: EngineOptions, max_model_len: int) -> None:
        params = request.sampling_params
        assert params is not None
        self.options: RequestOptions = engine.request_options(params.extra_args)
        self.window = engine.window
        self.prompt_len = request.num_prompt_tokens
        self.region_len = min(request.max_tokens, max_model_len - request.num_prompt_tokens)
        longest = self.region_len if self.options.needs_whole_region else self.options.block_length
        self.metrics = RequestSpecDecodeMetrics.new(longest)
        self._at_block_start = copy.deepcopy(self.metrics)
        self._block_start = 0

    @property
    def nfe(self) -> int:
        return sum(self.metrics.histogram)

    def block_start(self, returned: int) -> int:
        """Start of the active block once ``returned`` tokens are final."""
        if self.options.needs_whole_region:
            return 0
        return returned // self.options.block_length * self.options.block_length

    def sequence_len(self, returned: int) -> int:
        """Tokens of a step: prompt, returned tokens and the canvas up to ``window`` from the block's start."""
        return self.prompt_len + min(self.region_len, self.block_start(returned) + self.window)

    def observe(self, undecided: int, returned_before: int, returned_now: int) -> None:
        """Count one forward that returned ``returned_now`` tokens after ``returned_before``."""
        self.metrics.observe(num_draft_tokens=undecided, num_accepted=returned_now)
        start = self.block_start(returned_before + returned_now)
        if start != self._block_start:
            self._block_start = start
            self._at_block_start = copy.deepcopy(self.metrics)

    def restart_block(self) -> int:
        """Forget the forwards of the active block, which a preempted request does again.

        Returns:
            The forwards that remain counted.
        """
        self.metrics = copy.deepcopy(self._at_block_start)
        return self.nfe
