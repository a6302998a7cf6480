"""The UDP door: datagrams to what the corridor is asked, and what it says back to datagrams."""
