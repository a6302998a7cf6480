/* The load generator: one process, one core, no sleep. What it can do is listed in modes.h. */
#include <stdlib.h>
#include <string.h>

#include "link.h"
#include "modes.h"

int main(int count, char **words) {
    if (count >= 6 && !strcmp(words[1], "fan")) return run_fan(atoi(words[2]), atoi(words[3]), atoi(words[4]), words[5]);
    if (count >= 7 && !strcmp(words[1], "trips"))
        return run_trips(atoi(words[2]), atoi(words[3]), atoi(words[4]), atof(words[5]), atof(words[6]));
    if (count >= 4 && !strcmp(words[1], "collect")) return run_collect(atoi(words[2]), atol(words[3]));
    if (count >= 5 && !strcmp(words[1], "storm")) return run_storm(atoi(words[2]), atoi(words[3]), atoi(words[4]));
    die("say fan, trips, collect or storm, and its arguments");
}
