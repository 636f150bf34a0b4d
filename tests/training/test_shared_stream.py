"""One stream for all processes: whoever makes a batch, and however many of them there are."""

from itertools import islice
from pathlib import Path

import pytest
import torch
from sae_lens.training.prefetch import PrefetchingIterator
from torch import Tensor

from sae_lens_c2r.training.joining import joined_ranks
from sae_lens_c2r.training.ranks import ALONE
from sae_lens_c2r.training.shared_stream import FEATURES, KnownFeatures
from sae_lens_c2r.training.stream import ActivationStream
from tests.language_model import HOOK
from tests.training.rank_processes import ends, start_ranks
from tests.training.test_stream import CASES, make_store

# Tokens of many norms are above 1.1 times their median, so that batches lose some.
FILTERED, MULTIPLE = "without massive norms", 1.1


def read_on(folder: Path, name: str, n_batches: int) -> None:
    """What a process does: read some batches of each case, from where others have stopped."""
    with joined_ranks() as ranks:
        for case, (data, options) in [*CASES.items(), (FILTERED, CASES["texts"])]:
            norm_multiple = MULTIPLE if case == FILTERED else None
            kept = folder / f"{case}.pt"
            state = torch.load(kept) if kept.exists() else None
            store = make_store(data(), seed=ranks.rank, **options)
            stream = ActivationStream(
                store, prefetch=2, state=state, ranks=ranks, norm_multiple=norm_multiple
            )
            read = []
            for _ in range(n_batches):
                read.append(next(stream.batches)[HOOK])
                torch.rand(ranks.rank)  # whatever else draws random numbers in one of them
            torch.save(read, folder / f"{case} {name} {ranks.rank}.pt")
            ranks.gather(None)  # all have read the state
            if ranks.is_first:
                torch.save(stream.state(), kept)
            if isinstance(stream.batches, PrefetchingIterator):
                stream.batches.close()  # its thread would draw from the next one's random state


@pytest.mark.filterwarnings("ignore:All samples in the training dataset", "ignore:Dataset is")
@pytest.mark.parametrize("sizes", [(3,), (2, 1, 3)])
def test_the_batches_of_any_number_of_processes_are_those_of_sae_lens(
    sizes: tuple[int, ...], tmp_path: Path
) -> None:
    n_batches = 42 // len(sizes)  # several epochs
    for part, size in enumerate(sizes):
        arguments = (tmp_path, str(part), n_batches)
        assert ends(start_ranks(size, tmp_path / "logs", read_on, *arguments)) == [0] * size
    for case, (data, options) in CASES.items():
        theirs = make_store(data(), seed=0, **options).get_multi_hook_data_loader()
        for part, size in enumerate(sizes):
            expected = [batch[HOOK] for batch in islice(theirs, n_batches)]
            for rank in range(size):
                found = torch.load(tmp_path / f"{case} {part} {rank}.pt")
                assert all(map(torch.equal, found, expected)), (case, part, rank)
    data, options = CASES["texts"]
    alone = ActivationStream(
        make_store(data(), seed=0, **options), state=None, norm_multiple=MULTIPLE
    )
    for part, size in enumerate(sizes):
        expected = [batch[HOOK] for batch in islice(alone.batches, n_batches)]
        for rank in range(size):
            found = torch.load(tmp_path / f"{FILTERED} {part} {rank}.pt")
            assert all(map(torch.equal, found, expected)), (part, rank)


def make() -> Tensor:
    return torch.rand(3, 2)


def test_known_features_depend_on_the_number_of_the_batch_alone() -> None:
    stream = KnownFeatures(make, ALONE, "cpu")
    torch.manual_seed(0)
    before = torch.get_rng_state()
    batches = [batch[FEATURES] for batch in islice(stream, 6)]
    assert torch.equal(torch.get_rng_state(), before)
    assert len({batch.sum().item() for batch in batches}) == 6
    torch.manual_seed(1)
    half = KnownFeatures(make, ALONE, "cpu")
    continued = [next(half)[FEATURES] for _ in range(3)]
    later = KnownFeatures(make, ALONE, "cpu", half.state())
    continued += [next(later)[FEATURES] for _ in range(3)]
    assert all(map(torch.equal, continued, batches))


def test_a_stream_of_an_earlier_version_goes_on_by_torchs_random_state() -> None:
    torch.manual_seed(0)
    expected = [make() for _ in range(4)]
    torch.manual_seed(0)
    found = [make()]
    state = {"random": {"cpu": torch.get_rng_state(), "cuda": []}}
    for seed in (1, 2, 3):
        torch.manual_seed(seed)
        stream = KnownFeatures(make, ALONE, "cpu", state)
        found.append(next(stream)[FEATURES])
        state = stream.state()
    assert all(map(torch.equal, found, expected))
