"""The subcommands of `milepost`, one module each.

A module has `add_to(commands)`, which adds its parser and names the function that runs it with `set_defaults(run=...)`. That
function takes what was typed and gives the exit status, or raises a `StartFault`; it imports inside whatever is heavy, because
`milepost --help` must stay light. A new module is listed in `milepost.service.command`.
"""
