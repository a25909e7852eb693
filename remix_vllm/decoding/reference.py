"""The oracle: ReMix decoding of one request, literally and slowly, in plain torch.

:func:`generate` says what the engine must compute, token for token and forward for forward, for
every option; :func:`generate_official` is the authors' own loop, which it must equal under the
preset ``official``. Rules and symbols are those of the paper, arXiv 2602.22868.

A generation position is in one of three states: M, its input is the mask embedding; C, its input
blends the mask embedding with those of the tokens it was last predicted to be; T, it is decided.
Nothing here is shared with the batched rules. Thresholds are compared in float32.
"""

from collections.abc import Callable, Collection

import torch
from torch import Tensor

from remix_vllm.config import RequestOptions
from remix_vllm.decoding.generation import Generation, ReferenceModel, StepTrace
from remix_vllm.decoding.official import generate_official, js_divergence

__all__ = [
    "Generation",
    "ReferenceModel",
    "StepTrace",
    "generate",
    "generate_official",
    "js_divergence",
    "mixed_embedding",
]


@torch.no_grad()
def generate(
    model: ReferenceModel,
    prompt_ids: list[int],
    max_tokens: int,
    options: RequestOptions,
    mask_token_id: int,
    num_valid_tokens: int,
    window: int = 256,
    stop_token_ids: Collection[int] = (),
    grid_offset: int = 0,
    before_forward: Callable[[int, int, int], None] | None = None,
) -> Generation:
    """Decode one request greedily (the paper's Algorithm 1 and its variants).

    Args:
        model: gives ``[L, V]`` logits for ``[L, H]`` inputs, in any floating dtype.
        prompt_ids: fed as they are; a mask id among them is never decided.
        max_tokens: size of the generation region.
        options: what to decode with.
        mask_token_id: the token an undecided position holds.
        num_valid_tokens: ids from here on are rows of padding in the vocabulary.
        window: a forward sees the region up to this many positions after the active block's start.
        stop_token_ids: the generation ends at the first of these once all before it is final.
        grid_offset: prompt tokens inside the first block, where blocks are counted from position 0.
        before_forward: told, before each forward, the absolute start and end of the active block
            and the steps the block has had; a model that approximates its forwards goes by it.

    Raises:
        ValueError: ``window`` is below ``options.block_length``.
    """
    if window < options.block_length:
        raise ValueError(f"window ({window}) is below block_length ({options.block_length})")
    tokens = [mask_token_id] * max_tokens
    history: dict[int, Tensor] = {}  # position -> distribution its next one is compared with
    trace: list[StepTrace] = []
    num_blocks = -(-(max_tokens + grid_offset) // options.block_length)

    for block in range(num_blocks):
        start = block * options.block_length - grid_offset
        end = min(start + options.block_length, max_tokens)
        visible = min(start + window, max_tokens)
        # Positions left of the block are here only if they were decided as the mask id.
        undecided = [i for i in range(end) if tokens[i] == mask_token_id]
        block_size, step = len(undecided), 0
        mixing: dict[int, Tensor] = {}  # position in state C -> distribution to mix
        if not options.history_across_blocks:
            history.clear()

        while undecided:
            # 1. One forward over the prompt and the visible part of the region.
            inputs = torch.tensor(prompt_ids + tokens[:visible], device=model.embedding.device)
            inputs_embeds = model.embed(inputs).clone()
            for i, p in mixing.items():
                row = mixed_embedding(p, model.embedding, mask_token_id, options)
                inputs_embeds[len(prompt_ids) + i] = row.to(inputs_embeds.dtype)
            if before_forward is not None:
                before_forward(len(prompt_ids) + start, len(prompt_ids) + end, step)
            state = "".join(
                "C" if i in mixing else "M" if tokens[i] == mask_token_id else "T"
                for i in range(visible)
            )
            logits = model(inputs_embeds)[len(prompt_ids) :].to(torch.float32, copy=True)
            if options.exclude_mask:
                logits[:, mask_token_id] = -torch.inf
                logits[:, num_valid_tokens:] = -torch.inf
            probs = logits.softmax(dim=-1)
            # By logits: two that differ may round to one probability. Ties: the lowest id.
            predicted = logits.argmax(dim=-1)
            confidence = probs.gather(-1, predicted[:, None])[:, 0]

            # 2. Decide the most confident positions. Ties: leftmost.
            num_passing = int((confidence[undecided] > options.threshold).sum())
            count = max(
                num_to_decide(len(undecided), num_passing, block_size, step, options),
                needed_for_max_nfe(
                    len(undecided),
                    len(undecided) + max_tokens - end,
                    num_blocks - block - 1,
                    None if options.max_nfe is None else options.max_nfe - len(trace),
                ),
            )
            by_confidence = sorted(undecided, key=lambda i: (-confidence[i].item(), i))
            accepted = sorted(by_confidence[:count])
            for i in accepted:
                tokens[i] = int(predicted[i])
            undecided = [i for i in undecided if i not in accepted]
            trace.append(StepTrace(block, state, accepted))
            step += 1

            # 3. Stop. A mask id decided before the last block is not final: the next reopens it.
            open_positions = undecided
            if end < max_tokens:
                open_positions = [i for i in range(end) if tokens[i] == mask_token_id]
            for i in range(min(open_positions, default=end)):
                if tokens[i] in stop_token_ids:
                    return Generation(tokens[: i + 1], len(trace), trace)

            # 4. Reject or mix what is still undecided.
            mixing = {}
            if not options.mixes:
                continue
            for i in range(visible):
                if i in undecided:
                    rejected = i in history and bool(
                        js_divergence(history[i], probs[i]) > options.js_threshold
                    )
                    history[i] = probs[i]
                    if rejected and options.rejection == "sticky":
                        history[i] = torch.zeros_like(probs[i])
                    elif rejected:
                        del history[i]
                    if not rejected and len(trace) >= options.mixing_start:
                        mixing[i] = probs[i]
                elif options.history_across_blocks and tokens[i] == mask_token_id:
                    history[i] = probs[i]
    return Generation(tokens, len(trace), trace)


def num_to_decide(
    num_undecided: int, num_passing: int, block_size: int, step: int, options: RequestOptions
) -> int:
    """How many positions a step decides, at least one, before ``max_nfe`` has its say.

    The fallback to one position is not in the paper and is needed for termination; the cap is the
    official code's, inherited from WINO. ``low_confidence`` is LLaDA's schedule: ``block_size``
    positions spread over the block's steps, the first ones taking the remainder.
    """
    if options.decoding == "low_confidence":
        base, remainder = divmod(block_size, options.steps_per_block or block_size)
        return min(max(base + (step < remainder), 1), num_undecided)
    if options.accept_cap:
        # In whole numbers: the float product may fall below a whole 0.7 n.
        num_passing = min(num_passing, max(num_undecided * 7 // 10, 5), 20)
    return max(num_passing, 1)


def needed_for_max_nfe(
    num_undecided: int, num_open: int, blocks_after: int, forwards_left: int | None
) -> int:
    """How many positions this step must decide for the request to keep ``max_nfe``.

    Args:
        num_undecided: undecided positions of the active block.
        num_open: these and all positions of later blocks.
        blocks_after: blocks after the active one; each takes a forward at least.
        forwards_left: forwards that remain, this one included; may be negative; None is no bound.
    """
    if forwards_left is None:
        return 0
    if forwards_left <= blocks_after + 1:
        return num_undecided
    return min(num_undecided, -(-num_open // forwards_left))


def mixed_embedding(
    p: Tensor, embedding: Tensor, mask_token_id: int, options: RequestOptions
) -> Tensor:
    """Input of a position in state C: ``(1 - beta) e_M + beta W^T p``, p cut to its likely tokens.

    The cut is the official code's (the paper: adaptive top-p): of the ``mix_top_k`` most likely
    tokens those whose inclusive running sum is at most
    ``clamp(alpha_scale * max p, alpha_min, alpha_max)``, and always the first. What is cut goes to
    the mask embedding. Ties: lowest id.

    Args:
        p: float32 distribution ``[V]``.
        embedding: input embedding table ``[V, H]``.

    Returns:
        float32 ``[H]``.
    """
    sorted_probs, sorted_ids = p.sort(descending=True, stable=True)
    top, ids = sorted_probs[: options.mix_top_k], sorted_ids[: options.mix_top_k]
    alpha = (options.alpha_scale * top[0]).clamp(options.alpha_min, options.alpha_max)
    keep = top.cumsum(dim=0) <= alpha
    keep[0] = True
    kept, rows = top[keep], embedding[ids[keep]].float()
    e_mask = embedding[mask_token_id].float()
    soft = kept @ rows + (1 - kept.sum().clamp(0, 1)) * e_mask
    return (1 - options.beta_mix) * e_mask + options.beta_mix * soft
