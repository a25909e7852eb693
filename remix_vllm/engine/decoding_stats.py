"""What the scheduler tells the metrics, on its way to the front end.

``SchedulerStats`` is a record of fixed fields that crosses a process boundary. Its
``SpecDecodingStats`` is what vLLM's own diffusion metrics are made of: denoising steps, positions
and tokens in the places of drafts, draft tokens and accepted tokens. For a diffusion model nothing
in vLLM 0.32 reads the two lists per position in it (``v1/spec_decode/metrics.py``); the rest of
this record travels there.
"""

from dataclasses import dataclass, field

from vllm.v1.spec_decode.metrics import SpecDecodingStats

from remix_vllm.engine.progress import Forward
from remix_vllm.engine.step_counts import StepCounts


@dataclass
class DecodingStats:
    """Sums over the requests of the steps since the last report."""

    forwards: int = 0
    """Denoising steps, counted once per request. A preempted request repeats some of its own."""
    positions: int = 0
    """Positions of active blocks that were not returned before the step."""
    tokens: int = 0
    """Tokens returned."""
    accepted: int = 0
    mixed: int = 0
    rejected: int = 0
    refreshes: int = 0
    """Forwards over a whole sequence under a policy that does not always compute it."""
    blocks: int = 0
    """Blocks whose last token was returned."""
    corrupt_requests: int = 0
    finished: list[tuple[int, int]] = field(default_factory=list)
    """Forwards and tokens of each request that came to its end."""

    def add_forward(self, forward: Forward) -> None:
        self.forwards += 1
        self.positions += forward.positions
        self.tokens += forward.tokens
        self.refreshes += forward.refreshes
        self.blocks += forward.blocks

    def add_counts(self, counts: StepCounts, index: int) -> None:
        """Add what became of the rows of one request of a step."""
        self.accepted += counts.accepted[index]
        self.mixed += counts.mixed[index]
        self.rejected += counts.rejected[index]
        self.corrupt_requests += counts.corrupt[index] > 0

    def pack(self) -> SpecDecodingStats | None:
        """As vLLM's record; None if there is nothing to tell."""
        if self == DecodingStats():
            return None
        return SpecDecodingStats(
            num_spec_tokens=0,
            num_drafts=self.forwards,
            num_draft_tokens=self.positions,
            num_accepted_tokens=self.tokens,
            num_accepted_tokens_per_pos=[
                self.accepted,
                self.mixed,
                self.rejected,
                self.refreshes,
                self.blocks,
                self.corrupt_requests,
            ],
            num_draft_tokens_per_pos=[number for request in self.finished for number in request],
        )

    @classmethod
    def unpack(cls, packed: SpecDecodingStats) -> "DecodingStats":
        """The inverse of :meth:`pack`."""
        accepted, mixed, rejected, refreshes, blocks, corrupt = packed.num_accepted_tokens_per_pos
        numbers = packed.num_draft_tokens_per_pos
        return cls(
            forwards=packed.num_drafts,
            positions=packed.num_draft_tokens,
            tokens=packed.num_accepted_tokens,
            accepted=accepted,
            mixed=mixed,
            rejected=rejected,
            refreshes=refreshes,
            blocks=blocks,
            corrupt_requests=corrupt,
            finished=list(zip(numbers[::2], numbers[1::2], strict=True)),
        )
