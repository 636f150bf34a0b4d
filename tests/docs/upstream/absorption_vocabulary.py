"""SAEBench's absorption goes through the vocabulary in another order each time.

For tokenizers written in Rust the order is that of a hash table.
Proposal: go through `sorted(tokenizer.vocab)`.
"""

from string import ascii_lowercase

from sae_bench.evals.absorption.vocab import get_alpha_tokens
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

pairs = [a + b for a in ascii_lowercase for b in ascii_lowercase]
words = {pair: number for number, pair in enumerate(pairs)}


def load():
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="aa"))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="aa")


first, second = (get_alpha_tokens(load()) for _ in range(2))
assert sorted(first) == sorted(second)
assert first != second, "SAEBench, or tokenizers, has mended this."
