/* What the generator can do; each mode stands in a file of its own and explains its arguments there. */
int run_fan(int port, int is_tls, int qos, const char *shape);
int run_trips(int port, int clients, int in_flight, double seconds, double warm);
int run_collect(int port, long expected);
int run_storm(int port, int clients, int at_a_time);
