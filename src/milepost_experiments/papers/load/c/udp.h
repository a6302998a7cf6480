/* What the UDP programs share: clocks, command-line arguments, loopback sockets, batches of datagrams. */
#ifndef UDP_H
#define UDP_H

#include <netinet/in.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#define BATCH 512
#define DATAGRAM_MAX 2048
#define BUFFER_BYTES (4 << 20) /* send and receive buffer of a socket, if the system allows it */
#define SECONDS_MAX 600.0
#define SOCKETS_MAX 1024
#define SESSIONS_MAX 1000000

/* A batch of datagrams, each with its own buffer. */
typedef struct {
    struct mmsghdr heads[BATCH];
    struct iovec pieces[BATCH];
    struct sockaddr_in addresses[BATCH];
    uint8_t bytes[BATCH][DATAGRAM_MAX];
} Batch;

void die(const char *what) __attribute__((noreturn));
void check(int is_good, const char *what);

int64_t now_ns(void);  /* monotonic */
int64_t wall_ns(void); /* UTC since 1970 */
double cpu_s(void);    /* user and system time of this process */
void pin(long core);   /* to one core; -1: none */
void sleep_us(long us);

/* The value of `--name VALUE`, else the fallback; a value outside the bounds is an error. */
double number_of(int count, char **arguments, const char *name, double fallback, double least, double most);
const char *text_of(int count, char **arguments, const char *name); /* NULL if it is not there */
double argument(int count, char **arguments, int at, double least, double most);

int open_socket(int port); /* on loopback, not blocking; port 0: any */
int port_of(int fd);
struct sockaddr_in loopback(int port);
void prepare(Batch *batch);
int64_t dropped(int fd); /* datagrams for which the socket had no space */
#endif
