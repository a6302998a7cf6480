"""Federation: edges of a site that share a log, endpoints that roam between them, and the central hub between sites."""
