"""Commands side by side: at the same time, outputs apart, signals handed on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from ops.beside import AT_ONCE, Command, run_beside

# Ends only when the other one has started.
MEET = """
import os, pathlib, sys, time
me, other = map(pathlib.Path, sys.argv[1:3])
me.touch()
while not other.exists():
    time.sleep(0.01)
print(me.name, os.environ["WHO"])
sys.exit(int(sys.argv[3]))
"""


def test_commands_run_at_the_same_time_and_their_outputs_stay_apart(tmp_path: Path) -> None:
    commands = {
        name: Command(
            [sys.executable, "-c", MEET, str(tmp_path / name), str(tmp_path / other), code], {"WHO": name * 2}
        )
        for name, other, code in (("a", "b", "0"), ("b", "a", "3"))
    }
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    ended = {name: (code, file.read_text()) for name, code, file in run_beside(commands, outputs, tmp_path)}
    assert ended == {"a": (0, "a aa\n"), "b": (3, "b bb\n")}


def test_a_command_ended_by_a_signal_has_the_code_that_a_shell_gives(tmp_path: Path) -> None:
    killing = Command([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"], {})
    assert [code for _, code, _ in run_beside({"it": killing}, tmp_path, tmp_path)] == [137]


WAITING = """
import sys
from pathlib import Path
from ops.beside import Command, run_beside
say = "import signal, time; print('up', flush=True); signal.pause()"
folder = Path(sys.argv[1])
print([code for _, code, _ in run_beside({n: Command([sys.executable, "-c", say], {}) for n in "ab"}, folder, folder)])
"""


def test_sigterm_reaches_all_of_them_and_none_stays(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", WAITING, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    while not all((tmp_path / name).is_file() and (tmp_path / name).read_text() for name in "01"):
        assert parent.poll() is None
    os.kill(parent.pid, signal.SIGTERM)
    assert parent.communicate(timeout=60)[0] == f"{[128 + signal.SIGTERM] * 2}\n"


# Says how many of its kind run at the moment.
COUNTING = """
import pathlib, sys, time
here = pathlib.Path(sys.argv[1])
mine = here / sys.argv[2]
mine.touch()
time.sleep(0.5)
print(len(list(here.glob("run-*"))))
mine.unlink()
"""


def test_no_more_than_a_few_run_at_once_and_all_run(tmp_path: Path) -> None:
    (tmp_path / "outputs").mkdir()
    names = [f"run-{number}" for number in range(2 * AT_ONCE + 1)]
    commands = {name: Command([sys.executable, "-c", COUNTING, str(tmp_path), name], {}) for name in names}
    ended = {
        name: (code, int(file.read_text())) for name, code, file in run_beside(commands, tmp_path / "outputs", tmp_path)
    }
    assert ended.keys() == set(names)
    assert {code for code, _ in ended.values()} == {0}
    assert 1 < max(count for _, count in ended.values()) <= AT_ONCE


def test_after_a_signal_no_other_is_started_and_none_is_forgotten(tmp_path: Path) -> None:
    names = "abcdefgh"
    script = WAITING.replace('"ab"', f'"{names}"')
    parent = subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    started = [tmp_path / str(number) for number in range(AT_ONCE)]
    while not all(file.is_file() and file.read_text() for file in started):
        assert parent.poll() is None
    os.kill(parent.pid, signal.SIGTERM)
    assert parent.communicate(timeout=60)[0] == f"{[128 + signal.SIGTERM] * len(names)}\n"
    assert sorted(file for file in tmp_path.iterdir() if file.read_text()) == started
