"""``sandyard run``: what a command says, takes and ends with."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

from .conftest import Cli, leftovers, processes, wait_for_line


def test_prints_42_and_a_receipt_and_leaves_nothing(fresh_cli: Cli) -> None:
    done = fresh_cli("run", "--receipt", "--", "python3", "-c", "print(6*7)")
    assert (done.returncode, done.stdout) == (0, b"42\n")
    receipt = done.stderr.decode()
    assert re.search(r"boot +cold: .*boot \d+ ms", receipt)
    cpu_ms = int(re.search(r"cpu +(\d+) CPU-ms", receipt)[1])  # type: ignore[index]
    assert cpu_ms > 0
    assert re.search(r"peak [1-9]\d* MiB", receipt)
    assert leftovers(fresh_cli.state_dir) == []
    again = fresh_cli("run", "--receipt", "--", "true").stderr.decode()
    assert re.search(r"boot +template: ", again)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "kill -TERM $$"], 128 + 15),
        (["no-such-command"], 127),
        (["/etc/passwd"], 126),
        (["/no/such/path"], 127),
    ],
)
def test_the_exit_code_is_the_commands_own(cli: Cli, words, code) -> None:
    assert cli("run", "--", *words).returncode == code


def test_a_command_that_does_not_exist_is_named(cli: Cli) -> None:
    done = cli("run", "--", "no-such-command")
    assert b"no-such-command" in done.stderr
    assert b"command-not-found" in done.stderr


# scenario 69: bytes are exact, NUL included; scenario 73: blank lines and missing last newlines are kept
def test_output_streams_as_bytes(cli: Cli) -> None:
    script = "import os,sys; data = bytes(range(256)) * 4096; os.write(1, b'\\n\\n'); sys.stdout.buffer.write(data)"
    done = cli("run", "--", "python3", "-c", script + "; sys.stderr.write('to stderr')")
    assert done.stdout == b"\n\n" + bytes(range(256)) * 4096
    assert done.stderr == b"to stderr"


def test_stdin_is_piped_with_i_and_at_its_end_without(cli: Cli) -> None:
    data = os.urandom(3_000_000)
    assert cli("run", "-i", "--", "cat", stdin=data).stdout == data
    assert cli("run", "--", "cat", stdin=b"not wanted").stdout == b""


def test_stdin_of_a_command_that_does_not_read_it_is_no_error(cli: Cli) -> None:
    assert cli("run", "-i", "--", "true", stdin=bytes(5_000_000)).returncode == 0


# scenario 76 and 77: the whole group dies at the timeout, and the result says so
def test_timeout_ends_the_whole_group_with_124(cli: Cli) -> None:
    began = time.monotonic()
    done = cli("run", "--timeout", "1s", "--", "bash", "-c", "echo begun; sleep 1000 | cat")
    assert (done.returncode, done.stdout) == (124, b"begun\n")
    assert b"after 1 s" in done.stderr
    assert time.monotonic() - began < 60


@pytest.mark.parametrize(
    ("limit_mib", "grow"),
    [
        (128, "x = bytearray(10**9)"),  # the sandbox kernel is the biggest process: all of it dies
        (768, "x = b'x' * 2**29; y = bytearray(x)"),  # the process is: it dies alone
    ],
)
def test_what_is_killed_for_memory_exits_137_and_says_why(cli: Cli, limit_mib, grow) -> None:
    done = cli("run", "--memory", f"{limit_mib}m", "--", "python3", "-c", f"{grow}; print('not reached')")
    assert (done.returncode, done.stdout) == (137, b"")
    assert f"limit of {limit_mib} MiB".encode() in done.stderr
    assert b"out-of-memory" in done.stderr


# scenario 109 (P0): no shell ever sees what the user gave
def test_values_reach_the_command_untouched(cli: Cli) -> None:
    nasty = "a'b\"c $(touch /pwned) `id` ; \n last"
    script = "import os,sys; sys.stdout.write(os.environ['NASTY'] + '|' + sys.argv[1])"
    done = cli("run", "--env", f"NASTY={nasty}", "--", "python3", "-c", script, nasty)
    assert done.stdout.decode() == f"{nasty}|{nasty}"


def test_user_workdir_and_env_are_the_callers(cli: Cli) -> None:
    script = 'id -u; id -g; pwd; echo "$COLOR"'
    done = cli("run", "-u", "1234:4321", "-w", "/usr/lib", "-e", "COLOR=red", "--", "sh", "-c", script)
    assert done.stdout.decode().split() == ["1234", "4321", "/usr/lib", "red"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--user", "nobody-here"], "user-not-found", "nobody-here"),
        (["--workdir", "/no/such/dir"], "cwd-not-found", "/no/such/dir"),
        (["--workdir", "relative"], "invalid-spec", "absolute"),
        (["--memory", "0"], "invalid-spec", "memory is 0 MiB"),
        (["--memory", "9999g"], "invalid-spec", "this host can give"),
        (["--memory", "lots"], "invalid-request", "not a size"),
        (["--cpus", "0"], "invalid-spec", "cpus is 0"),
        (["--env", "=x"], "invalid-spec", "no name"),
        (["--env", "NOT_SET_ANYWHERE"], "invalid-spec", "not set here"),
        (["--timeout", "0"], "invalid-request", "no time"),
        (["--image", "UPPER/case"], "invalid-request", "UPPER/case"),
        (["--image", "127.0.0.1:1/nothing:1"], "registry-unreachable", "127.0.0.1:1"),
        (["--image", "oci:/no/such/folder"], "image-not-found", "/no/such/folder"),
        (["-i", "-t"], "not-a-terminal", "not one"),
    ],
)
def test_bad_input_is_told_kindly_and_leaves_nothing(cli: Cli, options, code, says) -> None:
    done = cli("run", *options, "--", "true")
    said = done.stderr.decode()
    assert done.returncode == 125, said
    assert f"[{code}]" in said
    assert says in said
    assert "Traceback" not in said


def test_nothing_to_run_is_told(cli: Cli) -> None:
    done = cli("run", "--entrypoint", "")
    assert (done.returncode, b"[no-command]" in done.stderr) == (125, True)


# scenario 36: Ctrl-C stops the command and leaves nothing behind
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_the_command_and_the_sandbox(cli: Cli, number, code) -> None:
    process = cli.start("run", "--", "sh", "-c", "echo ready; sleep 1000")
    assert wait_for_line(process) == b"ready\n"
    process.send_signal(number)
    process.communicate(timeout=30)
    assert process.returncode == code
    assert leftovers(cli.state_dir) == []


def test_ctrl_c_while_it_starts_leaves_nothing(cli: Cli) -> None:
    cli("run", "--", "true")
    for delay_ms in (300, 500, 700):
        process = cli.start("run", "--", "sleep", "1000")
        time.sleep(delay_ms / 1000)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
        assert process.returncode in {130, -signal.SIGINT}
    assert cli.ok("sandboxes", "list", "--json") == "[]\n"
    assert leftovers(cli.state_dir) == []


# scenario 32 (P0): a client killed with -9 leaves a sandbox that the next command cleans away
def test_a_one_off_whose_client_is_killed_is_gone_with_the_next_command(cli: Cli) -> None:
    process = cli.start("run", "--", "sh", "-c", "echo ready; sleep 1000")
    assert wait_for_line(process) == b"ready\n"
    process.kill()
    process.communicate()
    [sandbox_id] = [path.name for path in (cli.state_dir / "sandboxes").iterdir()]
    assert processes(sandbox_id) != []
    assert cli.ok("sandboxes", "list", "--json") == "[]\n"
    assert leftovers(cli.state_dir) == []


# scenario 88 and 84: exit code and keys pass through a terminal, which has a size
def test_a_terminal_has_a_size_and_passes_keys_and_exit_code(cli: Cli) -> None:
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 111, 0, 0))
    argv, env = cli.command("run", "-i", "-t", "--", "sh", "-c", "stty size; read line; echo got $line; exit 7")
    process = subprocess.Popen(argv, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True)
    os.close(slave)
    seen = _read_until(master, b"33 111")
    os.write(master, b"typed\r")
    seen += _read_until(master, b"got typed")
    assert process.wait(timeout=30) == 7
    os.close(master)


def _read_until(fd: int, wanted: bytes) -> bytes:
    seen = b""
    until = time.monotonic() + 60
    while wanted not in seen:
        assert select.select([fd], [], [], max(0, until - time.monotonic()))[0], seen
        seen += os.read(fd, 4096)
    return seen


# scenario 80: orphans are reaped
def test_orphans_do_not_stay_as_zombies(cli: Cli) -> None:
    script = "for n in $(seq 50); do (sleep 0.05 &) ; done; sleep 1; grep -l '^State:.Z' /proc/[0-9]*/status | wc -l"
    assert cli.ok("run", "--", "bash", "-c", script) == "0\n"


def test_a_closed_stdout_ends_it_quietly(cli: Cli) -> None:
    process = cli.start("run", "--", "sh", "-c", "while echo more; do :; done")
    assert wait_for_line(process) == b"more\n"
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(timeout=60) == 141
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()


def test_a_reader_that_stopped_does_not_keep_it_from_ending(cli: Cli) -> None:
    process = cli.start("run", "--", "sh", "-c", "while echo more; do :; done")
    assert wait_for_line(process) == b"more\n"
    time.sleep(1)  # its stdout, which nobody reads any more, is full by now
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143
    process.communicate()
    assert leftovers(cli.state_dir) == []
