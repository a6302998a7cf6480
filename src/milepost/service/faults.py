"""Faults at the start: each is one line that says what is wrong and what to do next, with the exit status it ends in."""

import errno
from pathlib import Path
from typing import Final

STATUS_FAILED: Final = 1
STATUS_USAGE: Final = 2


class StartFault(Exception):
    """Why a command cannot do what it was asked; the text is for the person who typed it."""

    status: int = STATUS_FAILED


class UsageFault(StartFault):
    """The command line or a file written by hand is wrong: nothing was started."""

    status = STATUS_USAGE


def cannot_listen(address: str, error: OSError) -> StartFault:
    """The fault of an address that cannot be listened at."""
    if error.errno == errno.EADDRINUSE:
        return StartFault(f"{address} is taken by another process: stop it, or listen elsewhere (`address`, --listen)")
    if error.errno == errno.EACCES:
        return StartFault(f"{address} needs rights that this user lacks: take a port above 1023, or grant CAP_NET_BIND_SERVICE")
    if error.errno == errno.EADDRNOTAVAIL:
        return StartFault(f"{address} is not an address of this machine: listen at 0.0.0.0 for all of its IPv4 addresses")
    return StartFault(f"cannot listen at {address}: {error.strerror or error}; choose another address")


def cannot_keep(folder: str, why: str) -> StartFault:
    """The fault of a folder in which nothing can be kept: locked, full, not ours."""
    return StartFault(f"cannot keep anything in {folder}: {why}; or keep it elsewhere (`data`, --data)")


def cannot_read(path: str | Path, error: OSError) -> UsageFault:
    """The fault of a named file that cannot be read."""
    if error.errno == errno.ENOENT:
        return UsageFault(f"{path} is not there: correct the name, or make the file")
    if error.errno == errno.EACCES:
        return UsageFault(f"{path} may not be read by this user: give it the right to, or run as another")
    return UsageFault(f"{path} cannot be read: {error.strerror or error}")
