"""Downloads against real servers: good ones, and ones that ignore ranges, die, lie or have moved."""

from __future__ import annotations

import json
import random
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from file_server import FileServer
from shoal.datasets.download import download_file
from shoal.errors import ShoalError

BODY = random.Random(0).randbytes(3_000_000)
FAST = {"pause": 0.01, "timeout": 5.0}


def leftovers(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_file_arrives_whole_under_its_name_and_nothing_else_stays(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    with FileServer({"/a.bin": BODY}) as server:
        path = download_file(
            f"{server.address}/a.bin", tmp_path / "a.bin", progress=lambda *p: seen.append(p), **FAST
        )
    assert path.read_bytes() == BODY
    assert leftovers(tmp_path) == {"a.bin"}
    assert seen[0] == (0, len(BODY))
    assert seen[-1] == (len(BODY), len(BODY))


def test_server_that_dies_half_way_is_asked_only_for_the_rest(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.die_after, server.deaths = 1_000_000, 2
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert server.ranges_asked == [None, "bytes=1000000-", "bytes=2000000-"]
    assert sum(sent for _, _, sent in server.requests) == len(BODY)


def test_given_up_download_keeps_partial_and_same_call_resumes(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        url = f"{server.address}/a.bin"
        server.die_after, server.deaths = 1_000_000, 1
        with pytest.raises(
            ShoalError, match=r"1,000,000 bytes are kept in .*a\.bin\.partial, the same command resumes"
        ):
            _fail_after_first(server, url, tmp_path / "a.bin")
        assert leftovers(tmp_path) == {"a.bin.partial", "a.bin.partial.json"}
        assert (tmp_path / "a.bin.partial").read_bytes() == BODY[:1_000_000]
        server.failures = 0
        download_file(url, tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert server.requests[-1] == ("/a.bin", "bytes=1000000-", 2_000_000)


def _fail_after_first(server: FileServer, url: str, target: Path) -> None:
    def stop_serving(done: int, total: int | None) -> None:
        server.failures = 100

    download_file(url, target, retries=0, progress=stop_serving, **FAST)


def test_server_that_ignores_ranges_restarts_from_zero(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.ranges, server.die_after, server.deaths = False, 1_000_000, 1
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert [sent for _, _, sent in server.requests] == [1_000_000, len(BODY)]


def test_server_that_ignores_ranges_and_always_dies_is_given_up(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.ranges, server.die_after = False, 1_000_000
        with pytest.raises(ShoalError, match="connection ended after 1,000,000 of 3,000,000 bytes"):
            download_file(f"{server.address}/a.bin", tmp_path / "a.bin", retries=2, **FAST)
    assert len(server.requests) == 4  # the first got further than nothing; then three in a row did not
    assert not (tmp_path / "a.bin").exists()


def test_file_that_changed_meanwhile_is_fetched_anew_not_stitched(tmp_path: Path) -> None:
    other = random.Random(1).randbytes(len(BODY))
    with FileServer({"/a.bin": BODY}) as server:
        url = f"{server.address}/a.bin"
        server.die_after, server.deaths = 1_000_000, 1
        with pytest.raises(ShoalError):
            _fail_after_first(server, url, tmp_path / "a.bin")
        server.files["/a.bin"], server.etag, server.failures = other, '"v2"', 0
        download_file(url, tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == other


def test_partial_of_another_address_is_not_continued(tmp_path: Path) -> None:
    (tmp_path / "a.bin.partial").write_bytes(b"x" * 500)
    (tmp_path / "a.bin.partial.json").write_text(
        json.dumps({"url": "http://elsewhere/", "validator": '"v1"', "total": 9})
    )
    with FileServer({"/a.bin": BODY}) as server:
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert server.ranges_asked == [None]


def test_partial_that_was_complete_is_only_renamed(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        url = f"{server.address}/a.bin"
        (tmp_path / "a.bin.partial").write_bytes(BODY)
        (tmp_path / "a.bin.partial.json").write_text(
            json.dumps({"url": url, "validator": '"v1"', "total": len(BODY)})
        )
        download_file(url, tmp_path / "a.bin", **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY
    assert sum(sent for _, _, sent in server.requests) == 0


def test_server_that_promises_more_than_it_sends_is_refused(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.extra_length, server.ranges = 10, False
        with pytest.raises(ShoalError, match="3,000,000 of 3,000,010 bytes"):
            download_file(f"{server.address}/a.bin", tmp_path / "a.bin", retries=1, **FAST)
    assert not (tmp_path / "a.bin").exists()


def test_size_other_than_registered_is_refused_before_fetching(tmp_path: Path) -> None:
    with (
        FileServer({"/a.bin": BODY}) as server,
        pytest.raises(ShoalError, match="3,000,000 bytes, expected 7"),
    ):
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", size=7, **FAST)
    assert (tmp_path / "a.bin.partial").stat().st_size == 0


def test_registered_size_is_checked_where_the_server_gives_no_length(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.say_length, server.die_after, server.deaths = False, 1_000_000, 1
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", size=len(BODY), **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_busy_server_is_asked_again_but_a_missing_file_is_not(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.failures = 2
        download_file(f"{server.address}/a.bin", tmp_path / "a.bin", **FAST)
        assert len(server.requests) == 3
        with pytest.raises(ShoalError, match=r"/b\.bin answered 404 Not Found: the address has moved"):
            download_file(f"{server.address}/b.bin", tmp_path / "b.bin", **FAST)
        assert len(server.requests) == 4


def test_silent_server_is_left_after_the_time_limit(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.stall_after = 1000
        with pytest.raises(ShoalError, match="no answer in time"):
            download_file(f"{server.address}/a.bin", tmp_path / "a.bin", retries=0, pause=0.01, timeout=0.3)


def test_web_page_instead_of_the_file_is_refused(tmp_path: Path) -> None:
    with FileServer({"/a.bin": b"<html>are you sure?</html>"}) as server:
        server.content_type = "text/html"
        with pytest.raises(ShoalError, match="a web page instead of the file"):
            download_file(f"{server.address}/a.bin", tmp_path / "a.bin", **FAST)


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://host/a", "data:,x", "a.bin"])
def test_only_http_addresses_are_fetched(tmp_path: Path, url: str) -> None:
    with pytest.raises(ShoalError, match="not an http or https address"):
        download_file(url, tmp_path / "a.bin")


def test_redirect_to_a_local_file_is_not_followed(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        server.redirect = "file:///etc/hostname"
        with pytest.raises(ShoalError):
            download_file(f"{server.address}/a.bin", tmp_path / "a.bin", retries=0, **FAST)
    assert not (tmp_path / "a.bin").exists()


def test_two_downloads_to_one_name_do_not_mix(tmp_path: Path) -> None:
    with FileServer({"/a.bin": BODY}) as server:
        url = f"{server.address}/a.bin"

        def intrude(done: int, total: int | None) -> None:
            with pytest.raises(ShoalError, match="being written by another process"):
                download_file(url, tmp_path / "a.bin", **FAST)

        download_file(url, tmp_path / "a.bin", progress=intrude, **FAST)
    assert (tmp_path / "a.bin").read_bytes() == BODY


def test_full_disk_is_one_sentence_and_the_rest_is_fetched_later(tmp_path: Path) -> None:
    program = (
        "import sys; from shoal.datasets.download import download_file; from shoal.errors import ShoalError\n"
        "try: download_file(sys.argv[1], sys.argv[2])\n"
        "except ShoalError as error: print(error)"
    )
    target = tmp_path / "a.bin"
    with FileServer({"/a.bin": BODY}) as server:
        url = f"{server.address}/a.bin"
        limit = (1_500_000, 1_500_000)
        run = subprocess.run(
            [sys.executable, "-c", program, url, str(target)],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
            capture_output=True,
            text=True,
            timeout=30,
        )
        assert run.stdout.startswith(f"no space left for {target}.partial"), run.stderr
        assert "the same command resumes" in run.stdout
        assert not target.exists()
        kept = Path(f"{target}.partial").stat().st_size
        assert 0 < kept <= 1_500_000
        download_file(url, target, **FAST)
    assert target.read_bytes() == BODY
    assert server.ranges_asked[-1] == f"bytes={kept}-"
