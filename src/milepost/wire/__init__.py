"""Bytes and text ↔ values, without I/O: datagrams (protobuf), JSON, GeoJSON, WKT, times as people write them."""
