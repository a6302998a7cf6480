"""Load generation for evaluations and benchmarks: programs in C, endpoints over UDP, edges and testbeds as processes."""
