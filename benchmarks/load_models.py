"""What `serve_load` serves: a LLaDA, a Llama of the same dimensions, and prompts for both.

The Llama has the LLaDA's own tensors under Llama's names. As a causal model it writes nonsense, in
the time a trained one would take.
"""

import json
import shutil
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any

import remix_vllm
from benchmarks.tasks import TASKS, examples

SHIPPED = Path(remix_vllm.__file__).parent / "assets" / "tiny-llada"
SEED = 7
PROMPTS = 256
# Vocabulary and special tokens of LLaDA-8B; heads of a size that vLLM's attention on the CPU takes.
LARGE_CONFIG: dict[str, Any] = {
    "d_model": 512,
    "n_layers": 7,
    "n_heads": 8,
    "n_kv_heads": 8,
    "mlp_hidden_size": 1024,
    "embedding_size": 126464,
    "vocab_size": 126464,
    "max_sequence_length": 512,
    "eos_token_id": 126081,
    "pad_token_id": 126081,
    "mask_token_id": 126336,
    "weight_tying": False,
    # Else transformers asks whether to run the code it names.
    "auto_map": None,
}
LARGE_SPECIAL_TOKENS = {
    "<|startoftext|>": 126080,
    "<|endoftext|>": 126081,
    "<|mdm_mask|>": 126336,
    "<|eot_id|>": 126348,
}
LARGE_PROMPT_TOKENS = 64
LARGE_MAX_TOKENS = 32
SHIPPED_MAX_TOKENS = 48
LLAMA_NAMES = {
    "attn_norm": "input_layernorm",
    "q_proj": "self_attn.q_proj",
    "k_proj": "self_attn.k_proj",
    "v_proj": "self_attn.v_proj",
    "attn_out": "self_attn.o_proj",
    "ff_norm": "post_attention_layernorm",
    "ff_proj": "mlp.gate_proj",
    "up_proj": "mlp.up_proj",
    "ff_out": "mlp.down_proj",
}


@dataclass(frozen=True)
class Model:
    """One size: its checkpoints and prompts on disk, and how it is asked."""

    name: str
    llada: Path
    llama: Path
    prompts: Path
    """For vLLM's `sharegpt` data set: a list of a prompt and its answer each."""
    parameters: int
    max_tokens: int
    waves: int
    """Requests of a run for each that is under way at once: few where one takes seconds."""
    scripted: bool
    """Random weights: the options say how many positions a step decides, and nothing stops a
    request before ``max_tokens``."""


def shipped_model(folder: Path) -> Model:
    """The trained model, asked questions of its tasks."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED)
    streams = [examples(task, SEED, held_out=True) for task in TASKS.values()]
    pairs = []
    for n in islice(count(), PROMPTS):
        example = next(streams[n % len(streams)])
        chat = [{"role": "user", "content": example.prompt}]
        prompt = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        # The Llama is to write as many tokens as a right answer has, the one that ends it included.
        pairs.append((prompt, example.answer + tokenizer.eos_token))
    llama, parameters = _write_llama(folder, SHIPPED)
    prompts = _write_prompts(folder, pairs)
    return Model("shipped", SHIPPED, llama, prompts, parameters, SHIPPED_MAX_TOKENS, 4, False)


def large_model(folder: Path) -> Model:
    """Random weights under the real vocabulary, asked random tokens."""
    from tests.models.checkpoints import write_llada

    llada = write_llada(folder / "llada", seed=SEED, **LARGE_CONFIG)
    _large_tokenizer().save_pretrained(llada)
    eos = {"eos_token_id": LARGE_CONFIG["eos_token_id"]}
    (llada / "generation_config.json").write_text(json.dumps(eos))
    rng = Random(SEED)
    pairs = [
        (_words(rng, LARGE_PROMPT_TOKENS), _words(rng, LARGE_MAX_TOKENS)) for _ in range(PROMPTS)
    ]
    llama, parameters = _write_llama(folder, llada)
    prompts = _write_prompts(folder, pairs)
    return Model("large", llada, llama, prompts, parameters, LARGE_MAX_TOKENS, 1, True)


MODELS = {"shipped": shipped_model, "large": large_model}


def _words(rng: Random, length: int) -> str:
    return " ".join(f"t{rng.randrange(126000)}" for _ in range(length))


def _large_tokenizer() -> Any:
    """A word a token: ``t17`` is token 17."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    names = {token: text for text, token in LARGE_SPECIAL_TOKENS.items()}
    vocabulary = {names.get(n, f"t{n}"): n for n in range(LARGE_CONFIG["vocab_size"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token="<|startoftext|>",
        eos_token="<|endoftext|>",
        pad_token="<|endoftext|>",
        mask_token="<|mdm_mask|>",
    )


def _write_prompts(folder: Path, pairs: list[tuple[str, str]]) -> Path:
    path = folder / "prompts.json"
    turns = [{"conversations": [{"value": text} for text in pair]} for pair in pairs]
    path.write_text(json.dumps(turns))
    return path


def _write_llama(folder: Path, llada: Path) -> tuple[Path, int]:
    """The Llama of a LLaDA checkpoint, with its tokenizer, and the number of its parameters."""
    from safetensors.torch import load_file

    from tests.models.checkpoints import write_checkpoint

    source = json.loads((llada / "config.json").read_text())
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": source["d_model"],
        "intermediate_size": source["mlp_hidden_size"],
        "num_hidden_layers": source["n_layers"],
        "num_attention_heads": source["n_heads"],
        "num_key_value_heads": source["n_kv_heads"],
        "vocab_size": source["embedding_size"],
        "max_position_embeddings": source["max_sequence_length"],
        "rms_norm_eps": source["rms_norm_eps"],
        "rope_theta": source["rope_theta"],
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": source["weight_tying"],
        "eos_token_id": source["eos_token_id"],
        "torch_dtype": "float32",
    }
    tensors = {
        _llama_name(name): tensor for name, tensor in load_file(llada / "model.safetensors").items()
    }
    path = write_checkpoint(folder / "llama", config, tensors)
    for file in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(llada / file, path)
    return path, sum(tensor.numel() for tensor in tensors.values())


def _llama_name(name: str) -> str:
    parts = name.removeprefix("model.transformer.").removesuffix(".weight").split(".")
    if parts[0] == "blocks":
        return f"model.layers.{parts[1]}.{LLAMA_NAMES[parts[2]]}.weight"
    top = {"wte": "model.embed_tokens", "ln_f": "model.norm", "ff_out": "lm_head"}
    return f"{top[parts[0]]}.weight"
