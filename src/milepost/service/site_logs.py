"""Opening the log of a site, whichever keeps it."""

from pathlib import Path
from typing import TYPE_CHECKING

from milepost.backbone.log import LogRefused, LogUnavailable
from milepost.model.survives import Survives
from milepost.service.faults import StartFault
from milepost.service.site_settings import Backbone, SiteLog

if TYPE_CHECKING:
    from milepost.backbone.log import Log


def open_log(site: SiteLog, survives: Survives, client_id: str) -> "Log":
    """The log of a site; raises a `StartFault` that says what to do."""
    try:
        if site.backbone is Backbone.EMBEDDED:
            from milepost.backbone.embedded import EmbeddedLog  # noqa: PLC0415  # only what is used is loaded

            return EmbeddedLog(Path(site.folder), survives)
        from milepost.backbone.kafka import KafkaLog  # noqa: PLC0415  # an extra that not everybody installs

        options = dict(one.split("=", 1) for one in site.options)
        return KafkaLog(site.address, survives, prefix=site.prefix, client_id=client_id, options=options)
    except (LogUnavailable, LogRefused) as fault:
        raise StartFault(f"the log of site {site.name} cannot be opened: {fault}") from None
    except ModuleNotFoundError as fault:
        raise StartFault(f"{fault}; install it: pip install 'milepost[kafka]'") from None
