"""Runs a command of run.py, in this process, until it reaches a failpoint."""

import ctypes
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from service import failpoints
from service.commands.main import main

SO_ATTACH_FILTER = 26
#: (how, name of the failpoint), as in `fail_at`
Failure = tuple[str, str]


class _Instruction(ctypes.Structure):
    _fields_ = [
        ("code", ctypes.c_ushort),
        ("jt", ctypes.c_ubyte),
        ("jf", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    ]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(_Instruction))]


def vanish() -> None:
    """Stop this process, and make its kernel drop all packets of its connections unacknowledged."""
    for descriptor in Path("/proc/self/fd").iterdir():
        try:
            connection = socket.socket(fileno=os.dup(int(descriptor.name)))
        except OSError:  # not a socket, or the directory itself
            continue
        if connection.family == socket.AF_INET and connection.type == socket.SOCK_STREAM:
            _fall_silent(connection)
        connection.close()
    os.kill(os.getpid(), signal.SIGSTOP)


def _fall_silent(connection: socket.socket) -> None:
    """Drop every incoming packet, and send no acknowledgement, probe or reset."""
    # The filter returns 0: no byte of the packet is kept.
    program = (_Instruction * 1)(_Instruction(0x06, 0, 0, 0))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(_Filter(1, program)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


ENDS = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "vanish": vanish,
}


def fail_at(how: str, name: str) -> None:
    """End this process at a failpoint.

    `how` is `die`, like a power loss, `stop`, which pauses it, or `vanish`, which makes it
    disappear like a lost host that closes no connection.
    """
    failpoints.actions[name] = ENDS[how]


def run_command(arguments: Sequence[str], failure: Failure | None = None) -> None:
    """Run a command of run.py, which may end at a failpoint."""
    sys.argv[:] = ["run.py", *arguments]
    if failure:
        fail_at(*failure)
    main(list(arguments))


def run_interpreter(root: Path, arguments: Sequence[str]) -> None:
    """Replace this process by an interpreter that runs a command of the run.py in a folder."""
    os.chdir(root)
    os.execv(sys.executable, [sys.executable, "run.py", *arguments])
