"""Messages to the supervisor that has started the process."""

import os
import socket

READY, STOPPING = "READY=1", "STOPPING=1"


def notify_supervisor(state: str) -> None:
    """Report a state to systemd, if it waits for one: units of the type notify."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = f"\0{address[1:]}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.sendto(state.encode(), address)
