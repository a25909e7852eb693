"""The authors' decoding loop, kept literal.

It is ``decoding_remix`` of Serpientw/ReMix-DLLM, commit aea1fd9, with one difference: the softmax
is in float32, not in the embedding table's dtype. The preset ``official`` of
:func:`remix_vllm.decoding.reference.generate` decides the same for a prompt without mask ids.
"""

import torch
from torch import Tensor

from remix_vllm.decoding.generation import Generation, ReferenceModel, StepTrace

JS_EPS = torch.finfo(torch.float32).eps
"""Probabilities below this count as this in the Jensen-Shannon divergence."""


@torch.no_grad()
def generate_official(
    model: ReferenceModel,
    prompt_ids: list[int],
    gen_length: int,
    block_length: int,
    threshold: float,
    js_threshold: float,
    beta_mix: float,
    mask_token_id: int,
) -> Generation:
    """Decode one request as the official code does, in float32.

    Its quirks are kept: everything is over the whole sequence, a mask id in the prompt is decided,
    a position decided as the mask id is reopened by the next block, a rejected row of the history
    is zero, nothing ends the generation early. The one addition is the order of ties (lowest id,
    leftmost), which the official top-k leaves open.

    Args:
        prompt_ids: may hold the mask id; such a position is decided, but is no part of the result.
        gen_length: generated positions, a multiple of ``block_length``.

    Raises:
        ValueError: ``gen_length`` is no multiple of ``block_length``.
    """
    if gen_length % block_length:
        raise ValueError(f"gen_length ({gen_length}) is no multiple of {block_length}")
    prompt_length = len(prompt_ids)
    table = model.embedding.float()
    e_mask = table[mask_token_id]
    x = torch.tensor(prompt_ids + [mask_token_id] * gen_length, device=table.device)
    prob_history: Tensor | None = None
    trace: list[StepTrace] = []

    for block in range(gen_length // block_length):
        undecided = x == mask_token_id
        undecided[prompt_length + (block + 1) * block_length :] = False
        ready = False
        while undecided.any():
            inputs_embeds = table[x]
            mixing = torch.zeros_like(undecided)
            if prob_history is not None and ready:
                top, ids = (t[:, :50] for t in prob_history.sort(descending=True, stable=True))
                keep = top.cumsum(dim=-1) <= (2 * top[:, :1]).clamp(0.2, 0.9)
                keep[:, 0] = True
                selected = torch.zeros_like(prob_history).scatter(-1, ids, top * keep)
                kept_mass = selected.sum(dim=-1, keepdim=True).clamp(0, 1)
                soft = selected @ table + (1 - kept_mass) * e_mask
                mixed = (1 - beta_mix) * inputs_embeds + beta_mix * soft
                inputs_embeds = torch.where(undecided[:, None], mixed, inputs_embeds)
                mixing = undecided & (prob_history != 0).any(dim=-1)
            logits = model(inputs_embeds).float()
            p = logits.softmax(dim=-1)
            predicted = logits.argmax(dim=-1)
            confidence = p.gather(-1, predicted[:, None])[:, 0]
            confidence = torch.where(undecided, confidence, -torch.inf)

            cap = min(max(int(undecided.sum()) * 7 // 10, 5), 20)
            order = confidence.argsort(descending=True, stable=True)
            accept = confidence > threshold
            if accept.sum() > cap:
                accept = torch.zeros_like(accept)
                accept[order[:cap]] = True
            elif not accept.any():
                accept[order[0]] = True
            state = "".join(
                "C" if mixing[i] else "M" if x[i] == mask_token_id else "T"
                for i in range(prompt_length, len(x))
            )
            x = torch.where(accept, predicted, x)
            undecided = undecided & ~accept
            positions = (accept.nonzero()[:, 0] - prompt_length).tolist()
            trace.append(StepTrace(block, state, [i for i in positions if i >= 0]))

            if prob_history is None:  # the very first forward of the call
                prob_history = p
            else:
                rejected = undecided & (js_divergence(prob_history, p) > js_threshold)
                prob_history = p.masked_fill(rejected[:, None], 0)
                ready = True
    return Generation(x[prompt_length:].tolist(), len(trace), trace)


def js_divergence(previous: Tensor, current: Tensor) -> Tensor:
    """Jensen-Shannon divergence (natural log) of float32 distributions ``[..., V]``, ``[...]``.

    As in the official code both are clamped below and not renormalised, so that an all-zero
    ``previous`` (a sticky rejection) gives 0.31 to 0.35: above every shipped ``js_threshold``.
    """
    p, q = previous.clamp_min(JS_EPS), current.clamp_min(JS_EPS)
    m = (p + q) / 2
    kl_p = (p * (p.log() - m.log())).sum(dim=-1)
    kl_q = (q * (q.log() - m.log())).sum(dim=-1)
    return (kl_p + kl_q) / 2
