"""SAELens clips gradients right after `backward()`: averaging them needs a copied method.

Proposal: a method `after_backward(self, sae, output)`, called between, that does nothing.
"""

import inspect

from sae_lens.training.sae_trainer import SAETrainer

source = inspect.getsource(SAETrainer._train_step).split("loss.backward()")[1]
code = [line.strip() for line in source.splitlines() if line.split("#")[0].strip()]
assert code[0].startswith("torch.nn.utils.clip_grad_norm_("), "SAELens has mended this."
