"""Which process trains which SAEs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from sae_lens_c2r.training.data_parallel import place, step_cost
from tests.architectures.training import make_config


def test_matryoshka_weighs_more() -> None:
    options: dict[str, Any] = {"d_in": 4, "d_sae": 64, "k": 2}
    plain = make_config("batchtopk", **options)
    wide = make_config("batchtopk", **{**options, "d_sae": 128})
    nested = make_config("matryoshka_batchtopk", **options, matryoshka_widths=[16, 64])
    assert step_cost(plain) < step_cost(nested) < step_cost(wide)
    costly = {"a": plain, "b": nested, "c": plain, "d": plain}
    assert place(costly, 2) == [["b", "d"], ["a", "c"]]


@given(sizes=st.lists(st.integers(1, 50), min_size=1, max_size=8), n_ranks=st.integers(1, 5))
def test_every_sae_is_placed_once_in_order_and_no_process_has_too_much(
    sizes: list[int], n_ranks: int
) -> None:
    configs = {str(i): make_config("topk", d_in=2, d_sae=n, k=1) for i, n in enumerate(sizes)}
    shares = place(configs, n_ranks)
    assert sorted(sae_id for share in shares for sae_id in share) == sorted(configs)
    assert all(share == sorted(share, key=int) for share in shares)
    costs = [sum(step_cost(configs[i]) for i in share) for share in shares]
    assert max(costs) - min(costs) <= max(map(step_cost, configs.values()))
