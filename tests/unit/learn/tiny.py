"""A model of a few thousand weights with a tokenizer of words and a chat template, made in a moment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kb_ray.learn.learner import Learner
from kb_ray.learn.objective import LearnerSettings, LoraSettings

KERNEL = """
```python
import triton

@triton.jit
def {0}(x):
    pass

def triton_kernel_wrapper(x):
    return {0}
```
"""
GOOD, WRONG = (KERNEL.format(name) for name in ("good", "wrong"))
"""Whole answers that are one token each."""
WORDS = (
    "<unk>",
    "<|im_start|>",
    "<|im_end|>",
    "user",
    "assistant",
    "system",
    *(f"w{i}" for i in range(26)),
    GOOD,
    WRONG,
)
TEMPLATE = (
    "{% for m in messages %}<|im_start|> {{ m.role }} {{ m.content }} <|im_end|> {% endfor %}"
    "{% if add_generation_prompt %}<|im_start|> assistant {% endif %}"
)


def tokenizer(template: str | None = TEMPLATE) -> Any:
    """Each word a token, told apart by spaces."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    words.pre_tokenizer = WhitespaceSplit()
    found = PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", eos_token="<|im_end|>", pad_token="<|im_end|>"
    )
    found.chat_template = template
    return found


def make_model(folder: Path, seed: int = 0, hidden: int = 32) -> Path:
    """The model as a folder."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS), hidden_size=hidden, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=4096, initializer_range=0.4,
        eos_token_id=2, bos_token_id=1, pad_token_id=2,
    )  # fmt: skip
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return folder


def learner(folder: Path, **settings: Any) -> Learner:
    """A learner of that model on the CPU."""
    lora = LoraSettings(rank=8, alpha=16, dropout=settings.pop("dropout", 0.0))
    given = {"model": str(folder), "lora": lora, "learning_rate": 1e-2} | settings
    return Learner(LearnerSettings(**given), device="cpu")
