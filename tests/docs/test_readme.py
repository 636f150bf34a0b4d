"""The README begins with how to train, pages are short, and it cites as CITATION.cff does."""

import re

import yaml

import sae_lens_c2r
from tests.docs.blocks import PAGES
from tests.docs.test_site import PROJECT, URLS
from tests.forkserver import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAPER = CITATION["preferred-citation"]


def test_training_and_loading_come_first() -> None:
    before = README.split("## Does it help?")[0]
    assert before.count('"architecture": "batchtopk_c2r"') == 2
    assert before.count("LanguageModelSAERunnerConfig(") == 2
    assert "SAE.load_from_disk" in before
    assert len(before.splitlines()) <= 75


def test_pages_are_read_in_a_few_minutes() -> None:
    words = {page.name: len(page.read_text(encoding="utf-8").split()) for page in PAGES}
    assert words.pop("README.md") <= 900
    words.pop("CONTRIBUTING.md")
    assert sum(words.values()) <= 14_000
    assert max(words.values()) <= 2_500


def test_version_licence_addresses_and_paper_are_those_of_the_citation_file() -> None:
    assert CITATION["version"] == sae_lens_c2r.__version__
    assert f'license = "{CITATION["license"]}"' in PROJECT
    assert CITATION["repository-code"] == SITE["repo_url"] == URLS["Repository"]
    assert SITE["site_url"] == URLS["Documentation"]
    authors = [f"{each['family-names']}, {each['given-names']}" for each in PAPER["authors"]]
    assert f"author    = {{{' and '.join(authors)}}}" in README
    title = PAPER["title"].replace("C²R", "C$^2$R")
    assert f"title     = {{{title}}}" in README
    assert re.search(rf"year += \{{{PAPER['year']}\}}", README)
    assert PAPER["url"] in README
    assert PAPER["repository-code"] in README
