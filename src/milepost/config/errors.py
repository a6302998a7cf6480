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
    return StartFault(f"{purpose} needs the extra {extra!r}, which is not installed: run `{command}` in the clone of Milepost")


JAVA_MIN: Final = 17
"""Minimum Java version of Kafka 4 and Spark 4."""


def missing_java(found: str) -> StartFault:
    """Return the fault of a Java runtime that is missing, too old or broken; *found* says which."""
    install = f"install it (on Debian: apt-get install openjdk-{JAVA_MIN}-jre-headless), or set JAVA_HOME"
    return StartFault(f"Kafka, ZooKeeper and Spark need Java {JAVA_MIN} or newer, but {found}: {install}")


def require_module(module: str, purpose: str, extra: str) -> None:
    """Raise a `StartFault` if a module of an extra is not installed; the module is not imported."""
    if importlib.util.find_spec(module) is None:
        raise missing_extra(purpose, extra)


def cannot_listen(address: str, error: OSError) -> StartFault:
    """Return the fault of an address that cannot be bound."""
    if error.errno == errno.EADDRINUSE:
        return StartFault(f"{address} is in use by another process: stop it, or listen at another address (`address`, --listen)")
    if error.errno == errno.EACCES:
        return StartFault(f"{address} needs privileges: use a port above 1023, or grant CAP_NET_BIND_SERVICE")
    if error.errno == errno.EADDRNOTAVAIL:
        return StartFault(f"{address} is not an address of this machine: listen at 0.0.0.0 for all of its IPv4 addresses")
    return StartFault(f"cannot listen at {address}: {error.strerror or error}; choose another address")


def cannot_store(folder: str, why: str) -> StartFault:
    """Return the fault of a storage folder that cannot be used: locked, full, or not permitted."""
    return StartFault(f"cannot store data in {folder}: {why}; or use another folder (`data`, --data)")


COPY_FROM_AUTHORITY: Final = "copy it from the folder of the certificate authority"
"""The remedy if a revocation list is missing: it is signed, and cannot be created elsewhere."""


def cannot_read(path: str | Path, error: OSError, *, key: str = "", remedy: str = "create the file") -> UsageFault:
    """Return the fault of a file that cannot be read; *key* is the setting that names it, *remedy* helps if it is missing."""
    where = f"{key}: {path}" if key else f"{path}"
    if error.errno == errno.ENOENT:
        return UsageFault(f"{where} does not exist: correct the path, or {remedy}")
    if error.errno == errno.EACCES:
        return UsageFault(f"{where} is not readable by this user: change its permissions, or run as another user")
    return UsageFault(f"{where} cannot be read: {error.strerror or error}")
