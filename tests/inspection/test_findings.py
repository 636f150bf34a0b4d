"""`inspect` goes through SAEs; what is wrong with one is told, and the others are measured."""

from pathlib import Path
from typing import Any

import pytest
import torch

from sae_lens_c2r._support.errors import UserError
from sae_lens_c2r.inspection import findings as findings_module
from sae_lens_c2r.inspection.findings import inspect
from sae_lens_c2r.saes.sae_ref import SAERef
from tests.inspection.planted import Words, planted_sae, text_of


class Planted(SAERef):
    """An SAE that is loaded from nowhere."""

    def load(self, device: str) -> Any:
        assert device == "cpu"
        if "missing" in self.name:
            raise UserError(f"{self.name}: cannot be loaded.")
        sae = planted_sae(torch.eye(4))
        if "nan" in self.name:
            sae.W_dec.data[0, 0] = torch.nan
        return sae


class Reader:
    """A text that some SAEs' models cannot read."""

    named = "planted"

    named_model: str | None = "a-model"

    def name_of_model(self, _sae: Any) -> str:
        if self.named_model is None:
            raise UserError("`model` should be given.")
        return self.named_model

    def activations(self, _sae: Any, name: str) -> Any:
        if "unread" in name:
            raise UserError(f"{name}: `model` should have the hook x.")
        return text_of(torch.ones(20, 4))

    def model_of(self, _sae: Any) -> Any:
        return type("Model", (), {"tokenizer": Words()})


def look_at(
    *names: str, reader: Any = None, latents: tuple[int, ...] = ()
) -> tuple[list[Any], list[str], list[str]]:
    errors: list[str] = []
    told: list[str] = []
    found = inspect(
        [Planted(folder=Path(name)) for name in names],
        device="cpu",
        on_error=errors.append,
        reader=reader,
        latents=latents,
        tell=told.append,
    )
    return found, errors, told


def test_every_sae_is_announced_and_measured_in_order() -> None:
    found, errors, told = look_at("b", "a")
    assert [each.inspection.name for each in found] == ["b", "a"]
    assert told == ["1 of 2: b", "2 of 2: a"]
    assert errors == []
    assert all(each.behavior is None for each in found)


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("missing", "missing: cannot be loaded."),
        ("nan", "nan: `W_dec` should be finite. Found NaN or infinity."),
    ],
)
def test_an_sae_that_cannot_be_measured_is_told_and_left_out(name: str, error: str) -> None:
    found, errors, told = look_at("a", name, "b")
    assert [each.inspection.name for each in found] == ["a", "b"]
    assert errors == [error]
    assert len(told) == 3


def test_on_a_text_every_sae_has_a_behavior() -> None:
    found, errors, _ = look_at("a", "b", reader=Reader())
    assert [each.behavior.times_fired.tolist() for each in found] == [[20] * 4] * 2
    assert {(each.text, each.model) for each in found} == {("planted", "a-model")}
    assert errors == []


def test_what_the_weights_say_is_kept_where_the_text_cannot_be_read() -> None:
    found, errors, _ = look_at("unread", "a", reader=Reader())
    assert [each.inspection.name for each in found] == ["unread", "a"]
    assert [each.behavior is None for each in found] == [True, False]
    assert errors == ["unread: `model` should have the hook x."]


def test_what_an_sae_does_not_have_is_told_before_it_is_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(findings_module, "inspect_sae", None)
    nameless = Reader()
    nameless.named_model = None
    assert look_at("a", reader=nameless)[:2] == ([], ["a: `model` should be given."])
    found, [error], _ = look_at("a", reader=Reader(), latents=(3, 4))
    assert found == []
    assert error.startswith("a: `latents` should be below 4")


def test_no_sae_is_nothing_found() -> None:
    assert look_at() == ([], [], [])


def test_a_program_needs_no_command(tmp_path: Path) -> None:
    planted_sae(torch.eye(4)).save_model(tmp_path / "sae")
    (found,) = inspect([SAERef(folder=tmp_path / "sae")], device="cpu", on_error=print)
    assert found.inspection.d_sae == 4
