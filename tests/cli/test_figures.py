"""``doxa figures``: pictures and a page that shows them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from doxa.cli import main
from doxa.reproduce import fuzzy_figures

# the labels of the dissertation, and two figures for claims that have none there
LABELS = {
    "ratio_2_yager",
    "decision_tree",
    "yager2_norm",
    "yager2_deriv",
    "prod_norm",
    "kd_godel",
    "yager-r-s-impl",
    "deriv_yager_sI2",
    "yager-r-deriv",
    "goguen-i",
    "reichenbach-aggregators",
    "deriv_goguen",
    "log_dmp",
    "deriv_rcsigm",
    "probsum_sigm_s",
    "success_rates",
    "reichenbach_path",
}


def test_every_figure_of_the_chapter_is_there() -> None:
    assert set(fuzzy_figures()) == LABELS


def test_pictures_and_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "folder"
    assert main(["figures", "fuzzy", "--out", str(out), "--only", "decision_tree", "deriv_goguen"]) == 0
    files = ["decision_tree.png", "deriv_goguen.png", "index.html"]
    assert capsys.readouterr().out.splitlines() == [str(out / name) for name in files]
    assert sorted(file.name for file in out.iterdir()) == files
    for name in files[:2]:
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    page = (out / "index.html").read_text(encoding="utf-8")
    assert re.findall(r'<img src="([^"]+)"', page) == files[:2]
    assert "what autograd finds at 20,000 random points" in page
    assert re.search(r"<th>share of \+1</th><td>0\.2\d+</td>", page)


def test_the_seed_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = []
    for seed, folder in (("0", "a"), ("0", "b"), ("1", "c")):
        command = [
            "figures",
            "fuzzy",
            "--out",
            str(tmp_path / folder),
            "--only",
            "decision_tree",
            "--seed",
            seed,
            "--json",
        ]
        assert main(command) == 0
        files = json.loads(capsys.readouterr().out)["files"]
        assert [Path(file).name for file in files] == ["decision_tree.png", "index.html"]
        pages.append((tmp_path / folder / "index.html").read_text(encoding="utf-8"))
    assert pages[0] == pages[1] != pages[2]


def test_unknown_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "fuzzy", "--out", str(tmp_path / "none"), "--only", "deriv_gogen"]) == 1
    assert "there is no figure 'deriv_gogen'; did you mean 'deriv_goguen'" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


def test_out_must_be_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "taken"
    file.write_text("", encoding="utf-8")
    assert main(["figures", "fuzzy", "--out", str(file), "--only", "decision_tree"]) == 1
    assert str(file) in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_gallery(tmp_path: Path) -> None:
    assert main(["figures", "fuzzy", "--out", str(tmp_path)]) == 0
    assert {file.stem for file in tmp_path.glob("*.png")} == LABELS
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert set(re.findall(r'<figure id="([^"]+)"', page)) == LABELS
    assert "exact 7/8" in page and "exact 5/6" in page
