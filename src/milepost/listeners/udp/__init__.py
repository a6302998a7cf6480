"""The UDP listener: datagrams to broker calls, and broker actions to datagrams."""
