"""Outputs of the package: whole or not at all, and nothing takes the place of a link, a pipe or a device."""

import os
import stat
import threading

import pytest

import waykeeper as wk
from waykeeper import outputs


def test_a_file_is_replaced_and_a_link_to_it_stays(tmp_path):
    file, link, dangling = tmp_path / "file", tmp_path / "link", tmp_path / "dangling"
    file.write_text("old")
    file.chmod(0o640)
    link.symlink_to("file")
    dangling.symlink_to("new")
    for path in (link, dangling):
        outputs.write(path, "ü")
        assert path.is_symlink() and path.read_bytes() == "ü".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o640
    outputs.write(file, b"\xff")
    assert link.read_bytes() == b"\xff"
    assert sorted(os.listdir(tmp_path)) == ["dangling", "file", "link", "new"]


def test_a_pipe_is_written_through(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="pipe cannot be written: it is a pipe that no process reads"):
        outputs.write(pipe, "ours")
    keep = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()), daemon=True)
    reader.start()
    # More than a pipe holds.
    outputs.write(pipe, "x" * 1_000_000)
    reader.join()
    os.close(keep)
    assert read == ["x" * 1_000_000]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_what_cannot_be_written_is_an_error_that_names_it(tiny, tmp_path):
    run = wk.run(tiny, progress=False)
    for place, why in ((tmp_path, "it is a directory"), (tmp_path / "none/page", "No such file")):
        with pytest.raises(OSError, match=f"{place} cannot be written: {why}"):
            run.report(place)
        with pytest.raises(OSError, match=f"{place} cannot be written: {why}"):
            run.way_map("default").save(place)
    assert os.listdir(tmp_path) == []


def test_a_link_to_nowhere_is_no_folder_and_a_dash_is_a_file(tmp_path, monkeypatch):
    (tmp_path / "link").symlink_to("none")
    with pytest.raises(wk.BadInput, match="out .*link.*is no folder; name another place"):
        outputs.check_folder("out", tmp_path / "link/below")
    monkeypatch.chdir(tmp_path)
    outputs.write("-", "ours")
    assert (tmp_path / "-").read_text() == "ours"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: it makes a device")
def test_a_full_device_is_an_error_and_stays(tmp_path):
    full = tmp_path / "full"
    os.mknod(full, stat.S_IFCHR | 0o600, os.makedev(1, 7))
    with pytest.raises(OSError, match="full cannot be written: No space left"):
        outputs.write(full, "ours")
    assert stat.S_ISCHR(full.lstat().st_mode)
