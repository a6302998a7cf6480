/* The load generator: one process on one core that never sleeps. Its modes are listed in modes.h. */
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "modes.h"

int main(int count, char **arguments) {
    if (count >= 6 && !strcmp(arguments[1], "throughput")) return run_throughput(atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]), arguments[5]);
    if (count >= 7 && !strcmp(arguments[1], "roundtrips"))
        return run_roundtrips(atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]), atof(arguments[5]), atof(arguments[6]));
    if (count >= 4 && !strcmp(arguments[1], "collect")) return run_collect(atoi(arguments[2]), atol(arguments[3]));
    if (count >= 5 && !strcmp(arguments[1], "storm")) return run_storm(atoi(arguments[2]), atoi(arguments[3]), atoi(arguments[4]));
    die("expected a mode, throughput, roundtrips, collect or storm, and its arguments");
}
