"""The event log shared by the edges of a site, its pipelines and the central hub."""
