"""UDP, the edge's own protocol: sessions of datagrams, sealed or plain."""
