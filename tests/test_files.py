"""Files written in one rename: all or nothing, with the permissions of any new file."""

import os
import stat

import pytest

from shoal.files import replace_file


def test_a_file_appears_whole_and_alone(tmp_path):
    with replace_file(tmp_path / "a.txt") as scratch:
        scratch.write_text("new")
        assert scratch.name.startswith(".a.txt.")
        assert not (tmp_path / "a.txt").exists()
    assert (tmp_path / "a.txt").read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_failure_leaves_the_file_that_was_there(tmp_path):
    (tmp_path / "a.txt").write_text("old")

    def fail():
        with replace_file(tmp_path / "a.txt") as scratch:
            scratch.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert (tmp_path / "a.txt").read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_permissions_follow_the_umask(tmp_path, umask):
    before = os.umask(umask)
    try:
        with replace_file(tmp_path / "a.txt") as scratch:
            scratch.write_text("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a.txt").stat().st_mode) == 0o666 & ~umask


def test_a_name_as_long_as_names_can_be_is_written(tmp_path):
    path = tmp_path / ("ä" * 127)
    with replace_file(path) as scratch:
        scratch.write_text("new")
    assert path.read_text() == "new"
