/* The modes of the generator; each is in its own file, which documents its arguments. */
int run_throughput(int port, int is_tls, int qos, const char *shape);
int run_roundtrips(int port, int clients, int in_flight, double seconds, double warm);
int run_collect(int port, long expected);
int run_storm(int port, int clients, int at_a_time);
