"""The installed command as a process: streams, signals, and what is left on the disk."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and pipes of POSIX systems")

COMMAND = shutil.which("bhclust", path=str(Path(sys.executable).parent))
GUESTS = "name,age,member\nAda,31.5,true\nBob,?,false\nCy,64.0,true\nDee,29.5,NA\n"


def bhclust(*args, **options):
    assert COMMAND is not None
    given = {"capture_output": True, "text": True, "timeout": 300, **options}
    return subprocess.run([COMMAND, *map(str, args)], **given)


def said(result):
    """Return the lines on standard error but for the one about kernels that are compiled anew."""
    lines = result.stderr.splitlines()
    return [line for line in lines if "compiling kernels" not in str(line)]


def entries(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A small result, fitted by the installed command from standard input."""
    path = tmp_path_factory.mktemp("installed")
    result = bhclust("fit", "-", "--out", path / "out", "--id-column", "name", input=GUESTS)
    assert (result.returncode, said(result)) == (0, [])
    assert "clusters" in result.stdout
    (path / "guests.csv").write_text(GUESTS)
    return path


def test_one_pass_through_everything(folder):
    written = ["labels.csv", "model.npz", "report.html", "table.npz", "tree.nwk"]
    assert entries(folder / "out") == written
    result = bhclust("predict", folder / "out", folder / "guests.csv", "--id-column", "name")
    assert result.returncode == 0
    assert result.stdout.splitlines()[0].startswith("row,cluster,p_0")
    assert len(result.stdout.splitlines()) == 5
    result = bhclust("cut", folder / "out", "--clusters", 2, "--json")
    assert json.loads(result.stdout)["n_clusters"] == 2


@pytest.mark.parametrize(
    ("args", "status", "message"),
    [
        (["fit", "no.csv", "--out", "x"], 1, "no.csv cannot be read: No such file"),
        (["fit", "empty.csv", "--out", "x"], 1, "empty.csv is empty"),
        (["fit", "latin.csv", "--out", "x"], 1, "is not UTF-8 text (line 2)"),
        (["fit", "guests.csv", "--out", "x", "--method", "ward"], 2, "--method"),
    ],
)
def test_mistakes_end_in_one_line_and_a_status(folder, args, status, message):
    (folder / "empty.csv").write_text("")
    (folder / "latin.csv").write_bytes(b"a,b\n1,caf\xe9\n2,x\n")
    result = bhclust(*args, cwd=folder)
    assert (result.returncode, result.stdout) == (status, "")
    assert result.stderr.startswith("bhclust: ")
    assert result.stderr.count("\n") == 1
    assert message in result.stderr
    assert not (folder / "x").exists()


@pytest.mark.parametrize("args", [["cut", "out"], ["cut", "out", "--json"], ["fit", "--help"]])
def test_a_reader_that_has_gone(folder, args):
    """Like ``| head`` that has read enough: silence, and the status of a closed pipe."""
    assert COMMAND is not None
    with subprocess.Popen(
        [COMMAND, *args], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        words = process.stderr.read()
        assert (process.wait(), words) == (141, b"")


def test_an_encoding_without_line_drawing(folder):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": "60"}
    rows = "name,größe\na,1.5\nb,1.6\nc,9.5\nd,9.6\n"
    args = ("fit", "-", "--out", folder / "ascii", "--id-column", "name", "--clusters", 2)
    result = bhclust(*args, input=rows.encode(), text=False, env=environment)
    assert (result.returncode, said(result)) == (0, [])
    assert b"+---" in result.stdout
    assert b"gr??e" in result.stdout or b"gr?e" in result.stdout
    assert max(map(len, result.stdout.split(b"\n\n")[1].splitlines())) <= 60


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk(folder):
    with open("/dev/full", "w") as full:
        result = bhclust(
            "cut", folder / "out", capture_output=False, stdout=full, stderr=subprocess.PIPE
        )
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1
    assert "No space left" in result.stderr


def big_table(path):
    """Write a table whose fit takes far longer than a test may."""
    X = np.random.default_rng(0).normal(size=(4000, 12))
    np.save(path, X)


def wait_for(condition, process):
    give_up = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the command ended too soon"
        assert time.monotonic() < give_up, "nothing happened for two minutes"
        time.sleep(0.05)


def test_an_interrupted_run_shows_progress_and_leaves_nothing(tmp_path):
    """On a terminal of its own: a bar after two seconds; Ctrl-C; one line, 130, no file."""
    pty = pytest.importorskip("pty")
    big_table(tmp_path / "big.npy")
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    shown = bytearray()

    def read():
        with contextlib.suppress(OSError):
            shown.extend(os.read(ours, 65536))
        return bytes(shown)

    assert COMMAND is not None
    command = [COMMAND, "fit", "big.npy", "--out", "out", "--learn", "all", "--restarts", "50"]
    environment = {**os.environ, "PYTHONIOENCODING": "utf-8", "COLUMNS": "100"}
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        wait_for(lambda: b" left" in read() and "█".encode() in shown, process)
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        out = process.stdout.read()
        status = process.wait(timeout=120)
    text = read().decode()
    os.close(ours)
    assert status == 130, text
    assert out == b""
    assert "about " in text
    assert text.rstrip().endswith("bhclust: interrupted")
    assert "Traceback" not in text
    assert entries(tmp_path) == ["big.npy"]


def test_an_earlier_result_survives_an_interruption(folder, tmp_path):
    big_table(tmp_path / "big.npy")
    shutil.copytree(folder / "out", tmp_path / "out")
    before = {name: (tmp_path / "out" / name).read_bytes() for name in entries(tmp_path / "out")}
    assert COMMAND is not None
    command = [COMMAND, "fit", "big.npy", "--out", "out", "--learn", "all", "--restarts", "50"]
    with subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        time.sleep(3)
        process.send_signal(signal.SIGTERM)
        _, words = process.communicate(timeout=120)
        assert process.returncode in (143, -signal.SIGTERM)  # before or after Python is up
    assert b"Traceback" not in words
    assert {name: (tmp_path / "out" / name).read_bytes() for name in before} == before
    assert entries(tmp_path) == ["big.npy", "out"]
