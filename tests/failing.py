"""`python tests/failing.py HOW NAME …`: run.py in this process until it first passes the failpoint NAME.

HOW it ends there: `die` as by power loss, `stop` as a process that is paused, or `vanish` as a host that is gone while
nothing tells its peers.
"""

import ctypes
import os
import signal
import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import run
from service import failpoints

SO_ATTACH_FILTER = 26


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
    """Stop this process, after its kernel was told to drop all that arrives on its connections without acknowledging it."""
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
    """Drop every packet that arrives, and send none: no acknowledgement, no probe, no reset."""
    # Return 0: keep nothing of the packet
    program = (_Instruction * 1)(_Instruction(0x06, 0, 0, 0))
    connection.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, bytes(_Filter(1, program)))
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 0)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 0)


ENDS = {
    "die": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "vanish": vanish,
}

if __name__ == "__main__":
    failpoints.set_action(sys.argv[2], ENDS[sys.argv[1]])
    sys.exit(run.main(sys.argv[3:]))
