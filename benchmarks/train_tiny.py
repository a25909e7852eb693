"""Trains the shipped model on the CPU.

    python -m torch.distributed.run --nproc-per-node 2 -m benchmarks.train_tiny \\
        --checkpoint run.pt --output remix_vllm/assets/tiny-llada

LLaDA's supervised objective on generated data: the answer, `<|eot_id|>` and end-of-text padding are
masked at a random ratio and predicted with bidirectional attention. A step's data depends only on
the seed and the step, so a resumed run sees what an uninterrupted one would have seen, and so do
two processes, which share the tasks of a step; one process without the launcher does them all.
`--export-only` writes the checkpoint's model without training further.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path
from random import Random

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

from benchmarks.drills import drill
from benchmarks.tasks import TASKS, examples
from benchmarks.tiny_accuracy import evaluate
from benchmarks.tiny_card import Row, model_card
from benchmarks.tiny_tokenizer import EOT, build_tokenizer, render_prompt
from tests.models.plain_llada import PlainLLaDA

SEED = 7
# Rows of each kind in a step, one record a cycle; the second turns to what the first left over.
CYCLES = (
    {"sudoku": 12, "countdown": 6, "addition": 8, "phrases": 8, "word_problems": 8, "drills": 12},
    {"sudoku": 8, "countdown": 12, "addition": 4, "phrases": 20, "word_problems": 10, "drills": 8},
)
CYCLE_STEPS = 2400
DRILL_LENGTH = 48
# One thread each: at this size two processes that meet once a step lose less to a busy machine than
# two threads that meet in every operation. The shares cost about the same.
SHARES = (("sudoku", "addition", "phrases"), ("countdown", "word_problems", "drills"))
LARGEST_PADDING = 96
PEAK_LR, WARMUP_STEPS, EMA_DECAY = 2e-3, 200, 0.998
MAX_LENGTH, VOCAB_SIZE, EMBEDDING_SIZE = 512, 1024, 832

ARCHITECTURE = {
    "architectures": ["LLaDAModelLM"],
    "model_type": "llada",
    "block_type": "llama",
    "d_model": 128,
    "n_layers": 4,
    "n_heads": 4,
    "n_kv_heads": 4,
    "mlp_hidden_size": 384,
    "embedding_size": EMBEDDING_SIZE,
    "vocab_size": EMBEDDING_SIZE,
    "max_sequence_length": MAX_LENGTH,
    "activation_type": "silu",
    "layer_norm_type": "rms",
    "rms_norm_eps": 1e-5,
    "rope": True,
    "rope_theta": 10000.0,
    "rope_full_precision": True,
    "include_bias": False,
    "include_qkv_bias": False,
    "input_emb_norm": False,
    "scale_logits": False,
    "weight_tying": False,
    "use_cache": False,
    "torch_dtype": "float32",
}


def tokenizer_texts() -> list[str]:
    texts = ["user", "assistant", "system", "\n\n"] * 3000
    for seed, task in enumerate(TASKS.values()):
        for example in islice(examples(task, seed, held_out=False), 3000):
            texts += example
    return texts


def model_config(tokenizer) -> dict:
    return ARCHITECTURE | {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
        "mask_token_id": tokenizer.mask_token_id,
    }


def initialise(model: PlainLLaDA) -> None:
    deep = (2 * model.config["n_layers"]) ** -0.5
    for name, parameter in model.named_parameters():
        if parameter.dim() == 2:
            into_residual = (
                name.endswith(("attn_out.weight", "ff_out.weight")) and ".blocks." in name
            )
            nn.init.normal_(
                parameter, std=model.config["d_model"] ** -0.5 * (deep if into_residual else 1.0)
            )
    # Untied, but born equal: copying a word from the prompt is then learned once, not word by word.
    with torch.no_grad():
        model.head.copy_(model.embedding)


def mask_response(length: int, rng: Random) -> list[bool]:
    """At least one position. A quarter of the rows are in the middle of block-wise decoding."""
    if rng.random() < 0.25:
        start, block, ratio = rng.randrange(length), rng.choice((4, 8, 16, 32)), rng.random()
        masked = [
            i >= start and (i >= start + block or rng.random() < ratio) for i in range(length)
        ]
        masked[start] = True
        return masked
    chosen = set(rng.sample(range(length), rng.randint(1, length)))
    return [i in chosen for i in range(length)]


def make_batch(tokenizer, name: str, count: int, rng: Random) -> tuple[Tensor, Tensor, Tensor]:
    """Ids, masked positions and loss weights `[B, L]` of one task. Rows are made equally long with
    end-of-text, which belongs to the answer, so nothing is ever hidden from attention."""
    eot, eos = tokenizer.convert_tokens_to_ids(EOT), tokenizer.eos_token_id
    rows = []
    stream = examples(TASKS[name], rng.getrandbits(63), held_out=False)
    for example in islice(stream, count):
        prompt = tokenizer(render_prompt(example.prompt)).input_ids
        rows.append((prompt, tokenizer(example.answer).input_ids + [eot]))
    longest = max(len(prompt) + len(answer) for prompt, answer in rows)
    total = longest + int(LARGEST_PADDING * rng.random() ** 10)
    if rng.random() < 0.05:  # a request may ask for fewer tokens than the answer has
        total = max(len(prompt) for prompt, _ in rows) + rng.randint(8, 16)

    ids, masked, weights = [], [], []
    for prompt, answer in rows:
        length = total - len(prompt)
        response = (answer + [eos] * length)[:length]
        chosen = mask_response(length, rng)
        # LLaDA weighs by one over the mask ratio; bounded, because its variance would drown a
        # small batch.
        weight = 1 / max(sum(chosen) / length, 0.3)
        ids.append(prompt + response)
        masked.append([False] * len(prompt) + chosen)
        # Padding is easy and can be most of a row; a smaller weight leaves the optimum of each
        # position where it was.
        weights.append(
            [0.0] * len(prompt) + [weight * (0.1 if token == eos else 1.0) for token in response]
        )
    return torch.tensor(ids), torch.tensor(masked), torch.tensor(weights)


def make_drills(tokenizer, count: int, rng: Random) -> tuple[Tensor, Tensor, Tensor]:
    """As `make_batch`, without a prompt. At most half of a row is masked, so that most equations
    keep enough to be solved."""
    ids, masked = [], []
    for _ in range(count):
        text = tokenizer(tokenizer.bos_token + drill(rng)).input_ids
        ids.append(text[:DRILL_LENGTH])
        chosen = set(rng.sample(range(1, DRILL_LENGTH), rng.randint(4, DRILL_LENGTH // 2)))
        masked.append([i in chosen for i in range(DRILL_LENGTH)])
    return torch.tensor(ids), torch.tensor(masked), torch.ones(count, DRILL_LENGTH)


def batch_loss(model: PlainLLaDA, ids: Tensor, masked: Tensor, weights: Tensor) -> Tensor:
    seen = ids.masked_fill(masked, model.config["mask_token_id"])
    hidden = model.hidden(model.model.transformer.wte(seen))[masked]
    losses = F.cross_entropy(F.linear(hidden, model.head), ids[masked], reduction="none")
    return (losses * weights[masked]).sum() / weights[masked].sum()


def learning_rate(step: int) -> float:
    """Level, then down over the last quarter of each cycle, which so ends with a usable model."""
    warmup = min((step + 1) / WARMUP_STEPS, 1.0)
    decay = min((CYCLE_STEPS - step % CYCLE_STEPS) / (CYCLE_STEPS / 4), 1.0)
    return PEAK_LR * min(warmup, decay)


def sum_gradients(model: PlainLLaDA) -> None:
    gradients = [p.grad for p in model.parameters()]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    for gradient, part in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(part.view_as(gradient))


def follow(average: Tensor, current: Tensor, updates: Tensor) -> Tensor:
    """A moving average that is short at first, so that the start is soon forgotten."""
    return torch.lerp(
        average, current, 1 - min(EMA_DECAY, (1 + int(updates)) / (10 + int(updates)))
    )


class Run:
    """Everything a checkpoint holds."""

    def __init__(self, config: dict):
        torch.manual_seed(SEED)
        self.model = PlainLLaDA(config)
        initialise(self.model)
        self.average = AveragedModel(self.model, avg_fn=follow)
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        scales = [p for p in self.model.parameters() if p.dim() == 1]
        groups = [
            {"params": matrices, "weight_decay": 0.05},
            {"params": scales, "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
        self.step, self.seconds = 0, 0.0

    def state(self) -> dict:
        parts = {
            name: getattr(self, name).state_dict() for name in ("model", "average", "optimizer")
        }
        return parts | {"step": self.step, "seconds": self.seconds}

    def save(self, path: Path) -> None:
        partial = path.with_suffix(".partial")
        torch.save(self.state(), partial)
        partial.replace(path)

    def restore(self, path: Path) -> None:
        saved = torch.load(path, weights_only=True)
        for name in ("model", "average", "optimizer"):
            getattr(self, name).load_state_dict(saved[name])
        self.step, self.seconds = saved["step"], saved["seconds"]

    def train_step(self, tokenizer) -> dict[str, float]:
        rows = CYCLES[self.step // CYCLE_STEPS]
        losses = {}
        for name in SHARES[dist.get_rank()] if dist.is_initialized() else rows:
            rng = Random(f"{SEED}:{self.step}:{name}")
            if name == "drills":
                batch = make_drills(tokenizer, rows[name], rng)
            else:
                batch = make_batch(tokenizer, name, rows[name], rng)
            loss = batch_loss(self.model, *batch)
            loss.backward()
            losses[name] = loss.item()
        if dist.is_initialized():
            sum_gradients(self.model)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.average.update_parameters(self.model)
        self.step += 1
        return losses


def export(model: PlainLLaDA, tokenizer, output: Path) -> None:
    # bfloat16 halves the shipped file; accuracy is measured on what is read back.
    model.save(output, dtype=torch.bfloat16)
    tokenizer.save_pretrained(output)
    path = output / "tokenizer_config.json"
    settings = json.loads(path.read_text()) | {"tokenizer_class": "PreTrainedTokenizerFast"}
    path.write_text(json.dumps(settings, indent=2) + "\n")
    stops = [tokenizer.eos_token_id, tokenizer.convert_tokens_to_ids(EOT)]
    generation = {"eos_token_id": stops, "pad_token_id": tokenizer.pad_token_id}
    (output / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def measure(model: PlainLLaDA, tokenizer, count: int, length: int) -> list[Row]:
    rows = []
    for name in TASKS:
        slow = evaluate(model, tokenizer, name, count, length)
        fast = evaluate(model, tokenizer, name, count, length, threshold=0.9)
        rows.append(Row(name, slow, fast))
        print(f"{name}: one token a step {slow}, threshold 0.9 {fast}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=len(CYCLES) * CYCLE_STEPS)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--evaluate", type=int, default=500, help="held-out examples per task in the final table"
    )
    parser.add_argument(
        "--length", type=int, default=32, help="generation length in the final table"
    )
    parser.add_argument("--export-only", action="store_true")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    leads = not dist.is_initialized() or dist.get_rank() == 0
    tokenizer = build_tokenizer(tokenizer_texts(), VOCAB_SIZE, MAX_LENGTH)
    run = Run(model_config(tokenizer))
    if options.checkpoint.exists():
        run.restore(options.checkpoint)
    parameters = sum(p.numel() for p in run.model.parameters())
    print(
        f"{len(tokenizer)} ids, {parameters} parameters, step {run.step}",
        flush=True,
    )

    mark = time.monotonic()
    while run.step < options.steps and not options.export_only:
        losses = run.train_step(tokenizer)
        if run.step % 100 == 0:
            run.seconds, mark = run.seconds + time.monotonic() - mark, time.monotonic()
            shown = " ".join(f"{name} {loss:.3f}" for name, loss in losses.items())
            print(f"step {run.step} {run.seconds:.0f}s {shown}", flush=True)
        if leads and (run.step % 250 == 0 or run.step == options.steps):
            run.save(options.checkpoint)
    if dist.is_initialized():
        dist.destroy_process_group()
    if not leads:
        return

    export(run.average.module, tokenizer, options.output)
    print(f"trained {run.step} steps in {run.seconds:.0f}s", flush=True)
    shipped = PlainLLaDA.load(options.output)
    card = model_card(
        measure(shipped, tokenizer, options.evaluate, options.length),
        options.length,
        parameters=parameters,
        steps=run.step,
        minutes=run.seconds / 60,
        ids=len(tokenizer),
        embedding_rows=EMBEDDING_SIZE,
    )
    (options.output / "README.md").write_text(card)


if __name__ == "__main__":
    main()
