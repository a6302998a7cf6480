"""Milepost's UDP protocol as a carrier: sessions of datagrams, encrypted or plain."""
