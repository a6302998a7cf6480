"""What evaluations and benchmarks load the system with: programs in C, endpoints over UDP, edges and towns as processes."""
