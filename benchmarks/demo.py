"""The main job on a machine with nothing but a CPU: serve the shipped model, ask it, compare.

    python -m benchmarks.demo

Starts ``vllm serve <shipped model> --decoding remix``, sends one held-out question of each task
through the ``openai`` client, and the same again decoded one token per step, and prints what both
took.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

import remix_vllm
from benchmarks.server import vllm_serve
from benchmarks.tasks import TASKS, examples

MODEL = Path(remix_vllm.__file__).parent / "assets" / "tiny-llada"
# By default vLLM takes most of the machine's memory for keys and values.
FLAGS = ["--decoding", "remix", "--enforce-eager", "--kv-cache-memory-bytes", "256M"]
MAX_TOKENS = 48
SEED = 7
ONE_TOKEN_PER_STEP = {"decoding": "low_confidence"}


@dataclass(frozen=True)
class Reply:
    text: str
    tokens: int
    nfe: int


def ask(client: OpenAI, prompt: str, options: dict[str, Any]) -> Reply:
    """One chat request; the number of forward evaluations comes in the response's ``metrics``."""
    response = client.chat.completions.create(
        model=str(MODEL),
        messages=[{"role": "user", "content": prompt}],
        max_tokens=MAX_TOKENS,
        temperature=0,
        extra_body={"vllm_xargs": options} if options else None,
    )
    usage, extra = response.usage, response.model_extra or {}
    assert usage is not None
    nfe = extra["metrics"]["speculative_decoding"]["num_spec_steps"]
    return Reply(response.choices[0].message.content or "", usage.completion_tokens, nfe)


def indent(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())


def main() -> None:
    print(f"$ vllm serve remix_vllm/assets/tiny-llada {' '.join(FLAGS)}")
    began = time.monotonic()
    with vllm_serve(MODEL, FLAGS) as server:
        print(f"healthy after {server.start_seconds:.0f} s at {server.url}\n")
        client = OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)
        totals = {"remix": [0, 0], "one token per step": [0, 0]}
        for name, task in TASKS.items():
            example = next(examples(task, SEED, held_out=True))
            replies = {
                "remix": ask(client, example.prompt, {}),
                "one token per step": ask(client, example.prompt, ONE_TOKEN_PER_STEP),
            }
            if name == next(iter(TASKS)):
                print(f"first answers {time.monotonic() - began:.0f} s after the start\n")
            print(f"[{name}]\n{indent(example.prompt)}")
            for label, reply in replies.items():
                verdict = "right" if task.check(example.prompt, reply.text) else "wrong"
                totals[label][0] += reply.tokens
                totals[label][1] += reply.nfe
                print(
                    f"  {label}: {reply.tokens} tokens, {reply.nfe} forward evaluations, "
                    f"{reply.tokens / reply.nfe:.2f} tokens per forward, {verdict}\n"
                    f"{indent(reply.text)}"
                )
            print()
        for label, (tokens, nfe) in totals.items():
            print(
                f"{label}: {tokens} tokens in {nfe} forward evaluations ({tokens / nfe:.2f} each)"
            )
    print("server stopped")


if __name__ == "__main__":
    main()
