"""Deliberate faults, planted one at a time by `python -m tests.mutations`.

Each is a real error of mathematics, of resuming, of privacy or of a commit. A group has the
folder that its code lies in, the tests that are to catch it, and a row for each fault: its
name, a piece of code that stands in one file of the folder, and what takes its place.

`python -m tests.mutations.faults` lists the pieces that code no longer has, each with the
lines that are the most like it: copy what is there now into the row.
"""

import difflib
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "sae_lens_c2r"


@dataclass(frozen=True)
class Fault:
    """A deliberate fault: in which folder, what takes the place of what, and who notices."""

    name: str
    folder: str
    old: str
    new: str
    tests: tuple[str, ...]

    def files(self, package: Path = PACKAGE) -> list[Path]:
        """The files that have the code: one, as long as the fault fits."""
        files = sorted((package / self.folder).rglob("*.py"))
        return [path for path in files if self.old in path.read_text()]

    def plant(self, package: Path) -> None:
        """Put the fault into a copy of the package."""
        (path,) = self.files(package)
        path.write_text(path.read_text().replace(self.old, self.new))

    def __str__(self) -> str:
        return f"{self.folder}: {self.name}"


PENALTIES = "tests/penalties tests/test_laws.py"
SCHEDULE = "tests/architectures/test_schedule.py tests/architectures tests/test_processes.py"
STREAMS = "tests/training/test_stream.py tests/training/test_shared_stream.py"
SPLIT = "tests/training/test_joined.py"
RELEASES = "tests/training/test_train.py tests/training/test_plan.py"
RESUMED = "tests/training/test_checkpoint.py tests/training/test_killing.py"
RANKS = "tests/training/test_ranks.py"
STARTS = "tests/saes/test_start_from.py tests/training/test_starts.py"
LOCAL = "tests/hub/test_local_saes.py tests/hub/test_starts.py"
CARDS = "tests/hub/test_card.py"
COMMITS = "tests/hub/test_uploading.py"

GATE = "return (cosines - threshold).clamp(0, 1).square()"
GROUPS: list[tuple[str, str, list[tuple[str, str, str]]]] = [
    (
        "penalties",
        PENALTIES,
        [
            ("gate not squared", GATE, GATE.removesuffix(".square()")),
            ("gate not differentiated", GATE, GATE.replace("cosines", "cosines.detach()")),
            ("neighbour's norm left out", "norms + norms[neighbors]", "norms + norms"),
            ("sum instead of mean", "exponent)).mean()", "exponent)).sum()"),
            ("exponent ignored", "if exponent == 1:", "if exponent != 0.5:"),
            ("infinite gradient at 0", "torch.where(positive, base, 1.0) **", "base **"),
            ("a pair with itself", "masked_fill(itself, 0.0).sum()", "sum()"),
            ("norm over the wrong axis", "square().sum(dim=0)", "square().sum(dim=1).sum()"),
            ("last tile of samples only", "energy += ", "energy = "),
            ("self not excluded", "cosines.fill_diagonal_(-torch.inf)", "pass"),
            ("columns of tiles forgotten", "if i < j:", "if False:"),
            ("NaN hidden", "~(values <= highest)", "values > highest"),
            ("always the same chunks", 'f"{seed}:{step}"', 'f"{seed}"'),
            ("global random state drawn from", "d_sae, generator=generator)", "d_sae)"),
            ("decoder not normalized", "(unit_rows(W_dec[rows]) *", "(W_dec[rows] *"),
            ("tiles' gradients overwritten", "in_rows[rows] +=", "in_rows[rows] ="),
            (
                "the excess gate opens at 0",
                "return max(0.0, chance",
                "return 0 * max(0.0, chance",
            ),
            ("scaling inverted", "papers_chance / _chance", "1 / papers_chance * _chance"),
        ],
    ),
    (
        "penalties",
        "tests/test_processes.py",
        [
            (
                "others' gradients left out",
                "return _Sum.apply(gradient, ctx.process_group), None",
                "return gradient, None",
            ),
            (
                "every process with chunks of its own",
                "    broadcast_(order, process_group)\n",
                "",
            ),
            (
                "others' samples left out of r",
                "join_samples(norms.flatten(), process_group)",
                "norms.flatten()",
            ),
        ],
    ),
    (
        "architectures",
        SCHEDULE,
        [
            (
                "factor T missing",
                ": interval * effective * measured",
                "effective * measured",
            ),
            (
                "coefficient 0 still applied",
                "applied = due and coefficient > 0",
                "applied = due",
            ),
            (
                "decoder norms forgotten",
                "return norms * torch.linalg",
                "return norms; torch.linalg",
            ),
            (
                "activations not differentiated",
                "norms(feature_acts,",
                "norms(feature_acts.detach(),",
            ),
            ("backbone's losses dropped", "return {**losses, **self", "return {**self"),
            ("OrtSAE not scaled for chance", "return factor * input_norm", "return input_norm"),
            (
                "others' samples left out of B",
                "sae_in.shape[:-1].numel(), self.process_group,",
                "sae_in.shape[:-1].numel(), None,",
            ),
        ],
    ),
    (
        "training",
        SPLIT,
        [
            (
                "k of the own part",
                "acts.shape[:-1].numel() * dist.get_world_size(self.process_group)",
                "acts.shape[:-1].numel()",
            ),
            ("threshold of the largest part", "ReduceOp.MIN", "ReduceOp.MAX"),
            ("penalties of the own part", "if isinstance(sae, PenalizedMixin):", "if False:"),
            (
                "gradients summed",
                "copy_(total / dist.get_world_size(process_group))",
                "copy_(total)",
            ),
            ("every part the first", "[dist.get_rank(process_group)]", "[0]"),
            (
                "dead latents of the own part",
                "trainer.n_forward_passes_since_fired[fired > 0] = 0",
                "pass",
            ),
        ],
    ),
    (
        "training",
        STREAMS,
        [
            (
                "part of the buffer forgotten",
                'self._buffer.served = state["served"]',
                'self._buffer.served = state["served"][:0]',
            ),
            ("rows read again", "in tqdm(range(rows_of_epoch)", "in tqdm(range(0)"),
            (
                "batches in another order for another number of processes",
                "self.rows_of_epoch = n_read",
                "self.rows_of_epoch = self._n_read",
            ),
            (
                "a batch of features by the state of whoever makes it",
                "FIRST_SEED + self._n_given + self._ranks.rank",
                "FIRST_SEED + self._n_given",
            ),
        ],
    ),
    (
        "training",
        RELEASES,
        [
            (
                "the seed of the weights ignored",
                "torch.manual_seed(plan.seeds[sae_id])",
                "pass",
            ),
            (
                "the seed of the data ignored",
                "torch.manual_seed(config.seed)",
                "torch.manual_seed(0)",
            ),
            (
                "an unfinished SAE taken for finished",
                "return (out / sae_id / RECORD).is_file()",
                "return (out / sae_id).is_dir()",
            ),
            ("other settings continued", "elif before != now:", "elif False:"),
        ],
    ),
    (
        "training",
        "tests/training/test_annealing.py",
        [
            (
                "the k of another step",
                "k_at(step_input.n_training_steps,",
                "k_at(step_input.n_training_steps + 1,",
            ),
        ],
    ),
    (
        "training",
        RESUMED,
        [
            ("a checkpoint's files not compared", "if _digest(path) != digest:", "if False:"),
            (
                "random state not restored",
                "restore_random(self.data_state",
                "print(self.data_state",
            ),
        ],
    ),
    (
        "_support",
        RESUMED,
        [
            (
                "a folder written before it is whole",
                "    partial = begin_folder(beside)",
                "    partial = final; final.mkdir(parents=True)",
            ),
        ],
    ),
    (
        "training",
        RANKS,
        [
            (
                "each process stops by itself",
                "decided = self.ranks.largest(wish)",
                "decided = wish",
            ),
            ("folders that are not shared trained into", "if not all(found):", "if False:"),
        ],
    ),
    (
        "saes",
        STARTS,
        [
            (
                "an origin taken that has changed since",
                "if self.sha256 and self.sha256 != sha256:",
                "if False:",
            ),
        ],
    ),
    (
        "hub",
        LOCAL,
        [
            ("secrets published", "if re.search(pattern, text):", "if False:"),
            (
                "paths published",
                "return bool(_WORDS.fullmatch(value)) and not _PLACE.search(value)",
                "return True",
            ),
            (
                "weights that are not finite published",
                "if not (math.isfinite(low) and math.isfinite(high)):",
                "if False:",
            ),
            (
                "another inference form published",
                "if not encodes_alike(found, sae.trained.to_dense(), dtype=published.dtype):",
                "if False:",
            ),
            (
                "a licence without derivatives not heeded",
                "if submission.license is None:",
                "if False:",
            ),
        ],
    ),
    (
        "hub",
        CARDS,
        [
            (
                "measurements of other weights on a card",
                'of = ("weights_sha256", "architecture", "options")',
                'of = ("architecture", "options")',
            ),
            (
                "an earlier upload's SAEs off the card",
                "saes = {**self.saes, **later.saes}",
                "saes = dict(later.saes)",
            ),
            (
                "an author's words overwritten",
                "return body[: begins[0].start()] + block + body[ends[0].end() :]",
                "return block",
            ),
        ],
    ),
    (
        "hub",
        COMMITS,
        [
            (
                "a branch overwritten that has moved",
                "parent_commit=parent",
                "parent_commit=None",
            ),
            ("a lost answer not looked into", "_ATTEMPTS = 4", "_ATTEMPTS = 1"),
            ("a repository made public", "private=not target.public", "private=False"),
            (
                "the tag set whatever verification says",
                "if found.sha256[name] != digest:",
                "if False:",
            ),
            ("another commit verified than was made", '{"commit": commit}', "{}"),
        ],
    ),
]
FAULTS = [
    Fault(name, folder, old, new, tuple(tests.split()))
    for folder, tests, rows in GROUPS
    for name, old, new in rows
]


def main() -> None:
    """Print what has to be adapted."""
    for fault in FAULTS:
        if len(files := fault.files()) != 1:
            print(f"{fault}: in {len(files)} files: {fault.old.strip()}")
            for path in sorted((PACKAGE / fault.folder).rglob("*.py")):
                lines = path.read_text().splitlines()
                for line in difflib.get_close_matches(fault.old, lines, n=1):
                    number = lines.index(line) + 1
                    print(f"    {path.relative_to(PACKAGE)}:{number}: {line.strip()}")
    for test in sorted({test for fault in FAULTS for test in fault.tests}):
        if not (PACKAGE.parent / test).exists():
            print(f"{test} is gone.")


if __name__ == "__main__":
    main()
