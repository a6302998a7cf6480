"""Processes: settings, adapters and roles joined into an edge, a central hub, pipelines, a map, an agent."""
