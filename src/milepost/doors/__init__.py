"""Doors: where bytes come in and go out; sockets, and the protocols around them that are not ours."""
