"""Make a tiny Qwen3 checkpoint with random weights, for running real engines without a GPU or a model hub.

The weights come from a seed, so the same seed gives the same model on every machine, and another seed gives a model
of the same shape that answers differently: what a test needs to show that a pool mixed up two models.
Scales are chosen so that attention is far from uniform and every token depends on the whole prefix; a model
initialised with the usual small weights would give the same answer whatever KV it was handed.

Needs only numpy, safetensors and tokenizers: writing the tensors by name takes a second, importing torch takes many.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

LAYERS = 4
HIDDEN = 256
INTERMEDIATE = 512
HEADS = 4
KV_HEADS = 2
HEAD_DIM = 64
VOCABULARY = 512
MAX_POSITIONS = 16384
END_OF_TEXT = "<|endoftext|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)


def config() -> dict[str, object]:
    """The Hugging Face configuration of the model."""
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "model_type": "qwen3",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": None,
        "eos_token_id": 0,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "hidden_size": HIDDEN,
        "initializer_range": 0.02,
        "intermediate_size": INTERMEDIATE,
        "max_position_embeddings": MAX_POSITIONS,
        "num_attention_heads": HEADS,
        "num_hidden_layers": LAYERS,
        "num_key_value_heads": KV_HEADS,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "float32",
        "use_cache": True,
        "vocab_size": VOCABULARY,
    }


def weights(seed: int) -> dict[str, np.ndarray]:
    """All tensors of the model, drawn from `seed`."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / np.sqrt(columns)).astype(np.float32)

    def ones(size: int) -> np.ndarray:
        return np.ones(size, dtype=np.float32)

    tensors = {
        "model.embed_tokens.weight": rng.standard_normal((VOCABULARY, HIDDEN)).astype(np.float32),
        "model.norm.weight": ones(HIDDEN),
        "lm_head.weight": 2 * matrix(VOCABULARY, HIDDEN),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}"
        tensors |= {
            f"{prefix}.input_layernorm.weight": ones(HIDDEN),
            f"{prefix}.post_attention_layernorm.weight": ones(HIDDEN),
            f"{prefix}.self_attn.q_proj.weight": matrix(HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.k_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.v_proj.weight": matrix(KV_HEADS * HEAD_DIM, HIDDEN),
            f"{prefix}.self_attn.o_proj.weight": matrix(HIDDEN, HEADS * HEAD_DIM),
            f"{prefix}.self_attn.q_norm.weight": ones(HEAD_DIM),
            f"{prefix}.self_attn.k_norm.weight": ones(HEAD_DIM),
            f"{prefix}.mlp.gate_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.up_proj.weight": matrix(INTERMEDIATE, HIDDEN),
            f"{prefix}.mlp.down_proj.weight": matrix(HIDDEN, INTERMEDIATE),
        }
    return tensors


def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer trained on generated words; the same for every seed."""
    rng = random.Random(0)
    syllables = [c + v for c in "bcdfghklmnprstvwz" for v in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(400)]
    text = [" ".join(rng.choices(words, k=12)) for _ in range(400)]
    result = Tokenizer(models.BPE())
    result.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    result.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    result.train_from_iterator(text, trainer)
    if result.get_vocab_size() != VOCABULARY:
        raise SystemExit(f"the tokenizer has {result.get_vocab_size()} tokens, expected {VOCABULARY}")
    return result


def make(directory: Path, seed: int) -> None:
    """Write model and tokenizer to `directory`."""
    directory.mkdir(parents=True, exist_ok=True)
    save_file(weights(seed), directory / "model.safetensors", metadata={"format": "pt"})
    tokenizer().save(str(directory / "tokenizer.json"))
    documents: dict[str, dict[str, object]] = {
        "config.json": config(),
        "generation_config.json": {"eos_token_id": 0},
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": END_OF_TEXT,
            "pad_token": END_OF_TEXT,
            "model_max_length": MAX_POSITIONS,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document, indent=2) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    make(arguments.directory, arguments.seed)


if __name__ == "__main__":
    main()
