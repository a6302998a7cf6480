"""The backbone: the log that the edges of a site, its handlers and the centre share."""
