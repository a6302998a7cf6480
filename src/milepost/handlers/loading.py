"""Loading the file of a handler: it is run once, and must make one `Handler`."""

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

from milepost.handlers.handler import Handler
from milepost.handlers.serving import described


class Unusable(Exception):
    """Why a file cannot be run as a handler: the text is for its author."""


def load(path: Path) -> Handler:
    """The handler in a Python file; raises `Unusable`."""
    if not path.is_file():
        raise Unusable(f"{path} is not there: correct the name, or make the file")
    spec = spec_from_file_location(f"handler_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise Unusable(f"{path} is no Python file: its name ends in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))  # so that it can import what lies beside it
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        raise Unusable(f"{path} cannot be loaded: {described(fault)}") from fault
    found = {id(one): one for one in vars(module).values() if isinstance(one, Handler)}
    if len(found) != 1:
        raise Unusable(f'{path} has {len(found)} handlers: make one, such as app = Handler("parking")')
    handler = next(iter(found.values()))
    if not handler.routes:
        raise Unusable(f"{path}: the handler {handler.name} has no function; put @app.on(...) before one")
    return handler
