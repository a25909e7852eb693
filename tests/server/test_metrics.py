"""``/metrics`` before and after requests, of a server with two API-server processes.

Other tests' requests have ended when these run, so that what moves in between is theirs.
"""

import time

import httpx
import pytest

from tests.server.client import SECONDS, Client

PROMPTS = [[70, 71, 72], [64, 220, 277], list(range(100, 130))]
OPTIONS: list[dict[str, object]] = [
    {},
    {"decoding": "low_confidence"},
    {"js_threshold": 0.0, "threshold": 0.9},
]


def scrape(client: Client) -> dict[str, float]:
    """Every sample of this engine, summed over labels but for the buckets' bounds."""
    samples: dict[str, float] = {}
    for line in httpx.get(f"{client.url}/metrics", timeout=SECONDS).text.splitlines():
        name, _, rest = line.partition("{")
        if line.startswith("vllm:") and 'le="' not in rest and not name.endswith("_created"):
            if name.startswith("vllm:remix_"):
                assert f'engine="0",model_name="{client.model}"' in rest
            samples[name] = samples.get(name, 0.0) + float(rest.rpartition(" ")[2])
    return samples


def settled(client: Client) -> dict[str, float]:
    """A scrape that has the last step's numbers: answers may arrive before them."""
    before = scrape(client)
    for _ in range(20):
        time.sleep(0.25)
        after = scrape(client)
        if after == before:
            return after
        before = after
    raise AssertionError("the metrics of an idle server go on moving")


def test_vllms_own_metrics_are_there_and_move(client: Client) -> None:
    names = ["vllm:prompt_tokens_total", "vllm:generation_tokens_total"]
    before = [client.metric(name) for name in names]
    client.complete([70, 71, 72], 9, ignore_eos=True)
    assert [client.metric(name) for name in names] == [before[0] + 3, before[1] + 9]
    assert client.metric("vllm:num_requests_running") == 0


def test_metrics_add_up_to_what_the_responses_say(client: Client) -> None:
    """Each request has a connection of its own: the kernel spreads them over the API servers."""
    before = settled(client)
    told = []
    for prompt in PROMPTS * 2:
        for options in OPTIONS:
            answer = client.post(
                "completions",
                prompt=prompt,
                max_tokens=20,
                temperature=0,
                ignore_eos=True,
                vllm_xargs=options,
            )
            told.append(answer.json()["metrics"]["speculative_decoding"])
    after = settled(client)
    moved = {name: value - before.get(name, 0.0) for name, value in after.items()}

    nfe = [request["num_spec_steps"] for request in told]
    assert moved["vllm:remix_request_nfe_count"] == len(told)
    assert moved["vllm:remix_request_nfe_sum"] == sum(nfe)
    assert moved["vllm:remix_request_tokens_per_forward_count"] == len(told)
    ratios = sum(20 / n for n in nfe)
    assert moved["vllm:remix_request_tokens_per_forward_sum"] == pytest.approx(ratios)
    assert moved["vllm:remix_positions_accepted_total"] == 20 * len(told)
    assert moved["vllm:remix_positions_mixed_total"] > 0
    assert moved["vllm:remix_positions_rejected_total"] > 0
    # Blocks of 16: two for 20 tokens.
    assert moved["vllm:remix_blocks_committed_total"] == 2 * len(told)
    assert moved["vllm:remix_sequence_refreshes_total"] == 0
    assert moved["vllm:remix_corrupt_requests_total"] == 0
    assert after["vllm:remix_history_bytes"] == 16 * 832 * 4 * 32

    assert moved["vllm:diffusion_num_denoising_steps_total"] == sum(nfe)
    assert moved["vllm:diffusion_num_committed_tokens_total"] == 20 * len(told)
    drafted = sum(request["num_draft_tokens"] for request in told)
    assert moved["vllm:diffusion_num_canvas_positions_total"] == drafted
