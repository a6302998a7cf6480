"""Start-up errors: a message of one line with the problem and the remedy, and the exit status of the command."""

import errno
import importlib.util
import sys
from pathlib import Path
from typing import Final

STATUS_FAILED: Final = 1
STATUS_USAGE: Final = 2


class StartFault(Exception):
    """A command failed; the text is a message to the user."""

    status: int = STATUS_FAILED


class UsageFault(StartFault):
    """The command line or a settings file is wrong; nothing was started."""

    status = STATUS_USAGE


def missing_extra(purpose: str, extra: str) -> StartFault:
    """Return the fault of a purpose that needs packages of an extra that is not installed."""
    command = f"{sys.executable} -m pip install -e '.[{extra}]'"
    return StartFault(f"{purpose} needs the extra {extra!r}, which is not installed: in the clone of Milepost, run {command}")


def require_module(module: str, purpose: str, extra: str) -> None:
    """Raise a `StartFault` if a module of an extra is not installed; the module is not imported."""
    if importlib.util.find_spec(module) is None:
        raise missing_extra(purpose, extra)


def cannot_listen(address: str, error: OSError) -> StartFault:
    """Return the fault of an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return StartFault(f"{address} is taken by another process: stop it, or listen elsewhere (`address`, --listen)")
    if error.errno == errno.EACCES:
        return StartFault(f"{address} needs rights that this user lacks: take a port above 1023, or grant CAP_NET_BIND_SERVICE")
    if error.errno == errno.EADDRNOTAVAIL:
        return StartFault(f"{address} is not an address of this machine: listen at 0.0.0.0 for all of its IPv4 addresses")
    return StartFault(f"cannot listen at {address}: {error.strerror or error}; choose another address")


def cannot_keep(folder: str, why: str) -> StartFault:
    """Return the fault of a storage folder that cannot be used: locked, full, or not permitted."""
    return StartFault(f"cannot keep anything in {folder}: {why}; or keep it elsewhere (`data`, --data)")


def cannot_read(path: str | Path, error: OSError) -> UsageFault:
    """Return the fault of a file that cannot be read."""
    if error.errno == errno.ENOENT:
        return UsageFault(f"{path} is not there: correct the name, or make the file")
    if error.errno == errno.EACCES:
        return UsageFault(f"{path} may not be read by this user: give it the right to, or run as another")
    return UsageFault(f"{path} cannot be read: {error.strerror or error}")
