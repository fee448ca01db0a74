"""Every link of the documentation leads somewhere, anchors included; generated pages take part."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import doc_pages
from doc_pages import PAGES, ROOT, list_anchors, list_links, name_page, strip_code

import build  # isort: skip
from pictures import FOLDER, PICTURES  # isort: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The pages of the site, reference and notebooks included."""
    folder = tmp_path_factory.mktemp("site") / "docs"
    build.assemble(folder)
    return folder


def find_broken(page: Path, root: Path) -> list[str]:
    broken = []
    for link in list_links(page):
        parts = urlsplit(link)
        if parts.scheme:
            continue
        target = (page.parent / parts.path).resolve() if parts.path else page
        if (
            not target.exists()
            or not target.is_relative_to(root)
            or (parts.fragment and parts.fragment not in list_anchors(target.read_text()))
        ):
            broken.append(link)
    return broken


def test_links_of_the_site_lead_somewhere(site):
    broken = {
        str(page.relative_to(site)): found
        for page in sorted(site.glob("**/*.md"))
        if (found := find_broken(page, site))
    }
    assert not broken


def test_links_inside_the_repository_lead_somewhere():
    assert not {name_page(page): found for page in PAGES if (found := find_broken(page, ROOT))}


def test_every_page_is_in_the_navigation(site):
    """Lab notes are reached from their list."""
    listed = set(re.findall(r'"([\w/-]+\.md)"', (ROOT / "website/zensical.toml").read_text()))
    pages = {str(page.relative_to(site)) for page in site.glob("**/*.md")}
    assert {page for page in pages - listed if not page.startswith("lab/")} == set()
    assert listed - pages == set()
    notes = {link for link in list_links(ROOT / "docs/lab/index.md") if link.startswith("20")}
    assert {f"lab/{note}" for note in notes} == {page for page in pages - listed if page.startswith("lab/")}


@pytest.mark.parametrize("page", PAGES, ids=name_page)
def test_lines_are_short_and_name_files_that_exist(page):
    for number, line in enumerate(page.read_text().splitlines(), 1):
        assert len(line) <= 240 or line.startswith("<!--"), f"{page.name}:{number} has {len(line)} characters"
    for path in re.findall(r"`(shoal/[\w/]+\.py)`", page.read_text()):
        assert (ROOT / "src" / path).exists(), path
    for path in re.findall(
        r"`((?:benchmarks|tests|examples)/[\w./-]+\.(?:py|jsonl?|sh|yaml))`", page.read_text()
    ):
        assert (ROOT / path).exists(), path
    assert not re.search(
        r"(?<![\w.])/(home|root|mnt|w[o]rk)/", strip_code(page.read_text())
    )  # of one machine


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_what_the_script_draws(name):
    assert PICTURES[name]().render() == (FOLDER / f"{name}.svg").read_text(), "run `make docs`"


def test_screenshots_are_small():
    for picture in (ROOT / "docs/pictures").glob("*.png"):
        assert picture.stat().st_size < 300_000, picture.name


def test_slugs_are_those_of_the_site_generator():
    toc = pytest.importorskip("markdown.extensions.toc")
    for page in PAGES:
        for link in list_links(page):
            if "#" in link and not urlsplit(link).scheme:
                slug = link.split("#")[1]
                assert toc.slugify_unicode(slug.replace("-", " "), "-") == slug, link
    assert doc_pages.slugify("A loss, a metric, a callback") == toc.slugify(
        "A loss, a metric, a callback", "-"
    )


@pytest.mark.slow
def test_the_site_is_built_and_loads_nothing_from_elsewhere(tmp_path, monkeypatch):
    pytest.importorskip("zensical")
    monkeypatch.setattr(build, "BUILD", tmp_path)
    build.main()
    pages = list((tmp_path / "site").glob("**/*.html"))
    assert len(pages) > 40
    for page in pages:
        assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="?https?://', page.read_text()), page


def test_the_decision_picture_has_the_bounds_of_the_rule():
    from shoal.runs import choose, effort, plan

    said = (FOLDER / "choice.svg").read_text()
    assert f"allow {effort.ENOUGH_STEPS} full steps" in said
    assert "half of the nodes" in said
    assert choose._COVERED == 0.5
    assert f"save less than {100 - 100 * plan._FASTER:.0f} %" in said
