"""RAVEL takes a layer's output for a tuple, which transformers 5 no longer returns.

Proposal: `outputs[0] if isinstance(outputs, tuple) else outputs`, and the same where the hidden
states are put back.
"""

import torch
from sae_bench.sae_bench_utils.activation_collection import get_layer_activations
from transformers import BatchEncoding, GPTNeoXConfig, GPTNeoXForCausalLM

config = GPTNeoXConfig(
    vocab_size=16,
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
)
model = GPTNeoXForCausalLM(config)
model.config.architectures = ["GPTNeoXForCausalLM"]
tokens = torch.zeros(2, 5, dtype=torch.long)
inputs = BatchEncoding({"input_ids": tokens, "attention_mask": torch.ones_like(tokens)})
try:
    get_layer_activations(model, 0, inputs, torch.tensor([1, 2]))
except IndexError as error:
    print(error)
else:
    raise AssertionError("SAEBench, or transformers, has mended this.")
