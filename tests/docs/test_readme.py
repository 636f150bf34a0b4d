"""The README cites as CITATION.cff does."""

import re

import yaml

import sae_lens_c2r
from tests.docs.test_site import PROJECT, URLS
from tests.forkserver import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
SITE = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
PAPER = CITATION["preferred-citation"]


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
