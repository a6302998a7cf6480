"""Listeners: sockets, the event loop, and the transport protocols (TLS, HTTP, WebSocket, MQTT, UDP) on top of them."""
