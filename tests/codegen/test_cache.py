"""The kernel cache: what it keeps, what it refuses to load, and that its failures do not stop a build."""

from __future__ import annotations

import hashlib
import logging
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import platformdirs
import pytest

import bilinear
from bilinear.codegen.cache import Cache, default_cache

KEY = Cache.key("source", "option")
TEXT, IMAGE = "the log: 3 ≤ 4\n", bytes(range(256)) * 3


@pytest.fixture
def fresh_default() -> Iterator[None]:
    default_cache.cache_clear()
    yield
    default_cache.cache_clear()


def entry(folder: Path) -> Path:
    return folder / KEY[:2] / KEY


def socket_at(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def test_an_entry_outlives_its_process(tmp_path: Path) -> None:
    Cache(tmp_path / "deep" / "folder").put(KEY, TEXT, IMAGE)
    assert Cache(tmp_path / "deep" / "folder").get(KEY) == (TEXT, IMAGE)
    assert Cache(tmp_path / "deep" / "folder").get(Cache.key("other")) is None


def test_keys_tell_parts_apart() -> None:
    keys = [Cache.key(*parts) for parts in [("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""), ("", "abc"), ("2:ab", "c"), ()]]
    assert len(set(keys)) == len(keys)


def test_an_empty_log_and_an_empty_image_are_kept(tmp_path: Path) -> None:
    Cache(tmp_path).put(KEY, "", b"")
    assert Cache(tmp_path).get(KEY) == ("", b"")


def test_every_damaged_byte_and_every_cut_is_noticed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    Cache(tmp_path).put(KEY, "log", b"image")
    whole = entry(tmp_path).read_bytes()
    damaged = [whole[:i] + bytes([whole[i] ^ 0x10]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole[:i] for i in range(len(whole))] + [whole + b"\0"]
    for content in damaged:
        entry(tmp_path).write_bytes(content)
        assert Cache(tmp_path).get(KEY) is None
    assert caplog.messages == [f"kernel cache entry {KEY} is damaged and is built again"] * len(damaged)
    Cache(tmp_path).put(KEY, "log", b"image")
    assert Cache(tmp_path).get(KEY) == ("log", b"image")


def test_an_entry_under_another_key_is_not_loaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    other = Cache.key("other")
    Cache(tmp_path).put(KEY, TEXT, IMAGE)
    (tmp_path / other[:2]).mkdir(exist_ok=True)
    (tmp_path / other[:2] / other).write_bytes(entry(tmp_path).read_bytes())
    assert Cache(tmp_path).get(other) is None
    assert caplog.messages == [f"kernel cache entry {other} is damaged and is built again"]


@pytest.mark.parametrize("change", ["owner", "mode"])
def test_an_entry_that_another_user_may_have_written_is_not_loaded(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    Cache(tmp_path).put(KEY, TEXT, IMAGE)
    if change == "mode":
        entry(tmp_path).chmod(0o620)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert Cache(tmp_path).get(KEY) is None
    assert caplog.messages == [f"kernel cache entry {KEY} cannot be read: another user may have written it"]


@pytest.mark.parametrize("body", [b"", b"\n", b"x\nimage", b"-1\nimage", b"9" * 5000 + b"\nimage"])
def test_a_checksum_that_is_right_does_not_make_an_entry(tmp_path: Path, body: bytes) -> None:
    entry(tmp_path).parent.mkdir(parents=True)
    entry(tmp_path).write_bytes(hashlib.sha256(KEY.encode() + b"\n" + body).digest() + body)
    assert Cache(tmp_path).get(KEY) is None


def make_larger_than_is_loaded(path: Path) -> None:
    path.write_bytes(b"")
    os.truncate(path, 2**40)


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero"), make_larger_than_is_loaded, socket_at])
def test_what_is_no_entry_neither_hangs_nor_takes_memory_and_is_replaced(tmp_path: Path, make: Callable[[Path], None]) -> None:
    entry(tmp_path).parent.mkdir(parents=True)
    make(entry(tmp_path))
    assert Cache(tmp_path).get(KEY) is None
    Cache(tmp_path).put(KEY, TEXT, IMAGE)
    assert Cache(tmp_path).get(KEY) == (TEXT, IMAGE) and entry(tmp_path).is_file()


def test_a_folder_in_the_place_of_an_entry_means_memory(tmp_path: Path) -> None:
    entry(tmp_path).mkdir(parents=True)
    cache = Cache(tmp_path)
    assert cache.get(KEY) is None
    cache.put(KEY, TEXT, IMAGE)
    assert cache.get(KEY) == (TEXT, IMAGE) and Cache(tmp_path).get(KEY) is None


def test_processes_at_once_never_see_half_an_entry(tmp_path: Path) -> None:
    """Every process writes and reads the same keys again and again. A read finds nothing or the right entry."""
    program = """
import random, sys
from pathlib import Path
from bilinear.codegen.cache import Cache
folder, seed = Path(sys.argv[1]), int(sys.argv[2])
chance = random.Random(seed)
for _ in range(300):
    number = chance.randrange(5)
    key, image = Cache.key(str(number)), bytes([number]) * (20000 + number)
    if chance.randrange(2):
        Cache(folder).put(key, str(number), image)
    assert Cache(folder).get(key) in (None, (str(number), image))
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(bilinear.__file__).parents[1])}
    command = [sys.executable, "-W", "error", "-c", program, str(tmp_path)]
    pipe = subprocess.PIPE
    running = [subprocess.Popen([*command, str(seed)], env=environment, stdout=pipe, stderr=pipe, text=True) for seed in range(4)]
    for process in running:
        assert process.communicate(timeout=300) == ("", "")
        assert process.returncode == 0
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == sorted(Cache.key(str(number)) for number in range(5))


def check_memory_only(cache: Cache) -> None:
    assert cache.folder is None
    cache.put(KEY, TEXT, IMAGE)
    assert cache.get(KEY) == (TEXT, IMAGE)
    assert cache.size() == 0
    cache.clear()
    assert cache.get(KEY) is None


def test_a_place_that_is_no_folder_means_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    (tmp_path / "file").write_text("taken")
    check_memory_only(Cache(tmp_path / "file" / "cache"))
    assert caplog.messages == [f"kernel cache {tmp_path / 'file' / 'cache'} cannot be written; kernels are kept in memory"]


def test_a_read_only_folder_means_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    tmp_path.chmod(0o555)
    user = os.geteuid()
    if user == 0:  # root may write anywhere, so become `nobody`
        os.seteuid(65534)
    try:
        cache = Cache(tmp_path)
    finally:
        os.seteuid(user)
        tmp_path.chmod(0o755)
    check_memory_only(cache)
    assert len(caplog.messages) == 1
    assert not any(tmp_path.iterdir())


def test_no_folder_means_memory_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "bilinear")
    check_memory_only(Cache(None))
    assert not caplog.messages


def test_a_full_disk_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def full(source: str, target: Path) -> None:
        raise OSError(28, "No space left on device")

    caplog.set_level(logging.INFO, "bilinear")
    monkeypatch.setattr("bilinear.codegen.cache.os.replace", full)
    cache = Cache(tmp_path)
    cache.put(KEY, TEXT, IMAGE)
    assert cache.get(KEY) == (TEXT, IMAGE)
    assert cache.size() == 0
    assert len(caplog.messages) == 1
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_clearing_takes_entries_and_leavings_and_nothing_else(tmp_path: Path) -> None:
    mine = [tmp_path / "letter.txt", tmp_path / "work" / KEY, tmp_path / "ab" / "notes", tmp_path / KEY]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    cache = Cache(tmp_path)
    assert cache.size() == 0
    cache.put(KEY, TEXT, IMAGE)
    (entry(tmp_path).parent / "tmp123.unfinished").write_bytes(b"x" * 1000)
    assert cache.size() == entry(tmp_path).stat().st_size + 1000
    cache.clear()
    assert (cache.size(), cache.get(KEY), Cache(tmp_path).get(KEY)) == (0, None, None)
    assert [path.read_text() for path in mine] == ["mine"] * len(mine)
    cache.put(KEY, TEXT, IMAGE)
    assert Cache(tmp_path).get(KEY) == (TEXT, IMAGE)


@pytest.mark.usefixtures("fresh_default")
def test_the_environment_names_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BILINEAR_CACHE_DIR", "here")
    assert default_cache().folder == tmp_path / "here"
    assert default_cache() is default_cache()


@pytest.mark.usefixtures("fresh_default")
def test_an_empty_name_means_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BILINEAR_CACHE_DIR", "")
    check_memory_only(default_cache())


@pytest.mark.usefixtures("fresh_default")
def test_unnamed_it_lies_where_caches_lie(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BILINEAR_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / name)
    assert default_cache().folder == tmp_path / "bilinear" / "kernels"


def fails(name: str) -> Path:
    raise RuntimeError("could not determine the home directory")


@pytest.mark.usefixtures("fresh_default")
@pytest.mark.parametrize("answer", [fails, lambda name: Path("~/.cache") / name])
def test_without_a_home_it_is_in_memory(
    answer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a home platformdirs fails; older versions leave the tilde, which would become a folder of that name."""
    caplog.set_level(logging.INFO, "bilinear")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BILINEAR_CACHE_DIR", raising=False)
    monkeypatch.setattr(platformdirs, "user_cache_path", answer)
    check_memory_only(default_cache())
    assert caplog.messages == ["there is no home folder for the kernel cache; kernels are kept in memory"]
    assert not any(tmp_path.iterdir())
