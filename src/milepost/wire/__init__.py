"""Bytes and text ↔ values, without I/O: MQTT, datagrams (protobuf), JSON, GeoJSON, WKT, human-readable times."""
