"""Read an export of a company over HTTP, to measure it."""

import http.client
import time
from contextlib import closing

from programs import ProgramError

PATH = "/api/invoices/export-all"
MARK = b'"invoiceCodeWithPrefixAndDigits"'
TIMEOUT_SECONDS = 300


def read_export(port: int, key: str) -> tuple[int, float]:
    """Return (invoices, seconds) of an export of a company. Raises ProgramError if it is cut."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_SECONDS)
    buffer, tail, invoices, began = bytearray(2**18), b"", 0, time.perf_counter()
    with closing(connection):
        connection.request("GET", PATH, headers={"X-API-Key": key})
        response = connection.getresponse()
        while length := response.readinto(buffer):
            piece = tail + buffer[:length]  # The mark may be split between two pieces.
            invoices += piece.count(MARK)
            tail = bytes(piece[1 - len(MARK) :])
    seconds = time.perf_counter() - began
    if response.status != 200 or not tail.endswith(b"]"):
        raise ProgramError(f"The export has status {response.status}, or was cut.")
    return invoices, seconds
