"""Milepost's UDP protocol as a transport: sessions of datagrams, encrypted or plain."""
