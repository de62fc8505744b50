// Load generator for HTTP/1.1 on 127.0.0.1: sends one request again and again and checks every answer.
//
//   load -p PORT -f REQUEST_FILE -c CONNECTIONS -t SECONDS -e TOKENS [-r REQUESTS_PER_SECOND] [-a PERCENT] [-o]
//        [-k FIELD] [-d WORD] [-s STATUS]
//
// Without -r the loop is closed: each connection sends its next request when it has the answer. With -r it is open: the
// requests are due at even times whatever the other end does, and every time is measured from when a request was due, so
// that a stall is not hidden by requests that were never sent. -a closes so many of the connections in mid-answer. With -o
// the other end may be overloaded: a 429 is not bad but `refused`, with times of its own, and a connection that is closed
// before the first byte of an answer is `lost`. With -s answers of that status are the good ones, whatever they say. Where the
// request has ########, each one has a number of its own there.
//
// An answer is good when its status is 200, its body is whole, a stream has the word that -d says ([DONE]), and its text, in
// fields of the name that -k says (content), is " t0 t1 …" up to exactly -e tokens, in order, however the tokens are cut into
// events. Prints one line of JSON; times in microseconds.
#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#define REQUEST_BYTES_MAX (1 << 20)
#define HEAD_BYTES_MAX 4096
#define READ_BYTES (1 << 18)
#define SAMPLES_MAX 4000000
// Answers that are still missing so long after the last request are hung.
#define PATIENCE_NS 10000000000LL
#define ABORT_AFTER_TOKENS_MAX 20

typedef int64_t ns;

typedef struct samples {
  float *us;
  size_t length, capacity;
} samples;

typedef struct connection {
  int fd; // -1: none
  bool is_busy, is_connecting;
  ns due;

  // The answer as far as it has been read.
  enum { HEAD, BODY, BODY_TO_CLOSE, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER } phase;
  char head[HEAD_BYTES_MAX];
  size_t head_length; // also of a line of the chunked body
  int status;
  bool is_stream, closes_after;
  size_t left; // bytes of the body or chunk

  // Its text.
  int matched;      // characters of `text_key`; all of them: the value comes next; beyond: inside its quotes
  int digits;       // of the number of the current token; -1: not in a token
  int number;
  int tokens;
  int matched_done; // characters of the word that ends a stream
  bool is_done, is_wrong;
  ns last_token;
  int abort_after; // tokens; 0: never
} connection;

static struct { int port, connections, tokens, abort_percent, status; double seconds, rate; long requests; bool overloads; const char *done; } options = {.done = "[DONE]", .status = 200};
static char request[REQUEST_BYTES_MAX], *number; // `number`: of the request, in it; NULL: it has none
static size_t request_length;
static int epoll_fd, timer_fd;
static connection *all;
static int *idle; // a queue: the connection that has been idle longest comes first
static int idle_first, idle_count;
static char text_key[32] = "\"content\":"; // what stands before the text in an answer
static int text_key_length = sizeof "\"content\":" - 1;
static ns start_time, end_time, last_answer;
static double next_due;
static struct { long started, good, bad, aborted, tokens, refused, lost; } count;
static samples latency, first_token, gap, refusal;

static void read_options(int argc, char **argv);
static void start_due_requests(void);
static bool may_start(void);
static void handle(connection *c, unsigned events);
static void print_results(int hung);

static ns now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

int main(int argc, char **argv) {
  read_options(argc, argv);
  all = calloc(options.connections, sizeof *all);
  idle = calloc(options.connections, sizeof *idle);
  for (int i = 0; i < options.connections; i++) all[i].fd = -1, idle[idle_count++] = i;
  epoll_fd = epoll_create1(0);
  timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
  struct epoll_event timer = {.events = EPOLLIN | EPOLLET, .data.ptr = NULL};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer_fd, &timer);
  start_time = last_answer = now();
  next_due = start_time;
  end_time = start_time + (ns)(options.seconds * 1e9);

  for (;;) {
    start_due_requests();
    int busy = options.connections - idle_count;
    if (busy == 0 && !may_start()) break;
    if (now() > end_time + PATIENCE_NS) break;
    struct epoll_event events[512];
    int ready = epoll_wait(epoll_fd, events, 512, 100);
    for (int i = 0; i < ready; i++) {
      connection *c = events[i].data.ptr;
      if (c != NULL && c->fd >= 0) handle(c, events[i].events);
    }
  }
  print_results(options.connections - idle_count);
}

static void read_options(int argc, char **argv) {
  const char *file = NULL;
  for (int option; (option = getopt(argc, argv, "p:f:c:t:e:r:a:n:ok:d:s:")) > 0;) {
    if (option == 'p') options.port = atoi(optarg);
    else if (option == 'f') file = optarg;
    else if (option == 'c') options.connections = atoi(optarg);
    else if (option == 't') options.seconds = atof(optarg);
    else if (option == 'e') options.tokens = atoi(optarg);
    else if (option == 'r') options.rate = atof(optarg);
    else if (option == 'a') options.abort_percent = atoi(optarg);
    else if (option == 'n') options.requests = atol(optarg);
    else if (option == 'o') options.overloads = true;
    else if (option == 'k') text_key_length = snprintf(text_key, sizeof text_key, "\"%s\":", optarg);
    else if (option == 'd') options.done = optarg;
    else if (option == 's') options.status = atoi(optarg);
    else exit(64);
  }
  if (options.port < 1 || file == NULL || options.connections < 1 || options.seconds <= 0 || options.tokens < 1)
    fprintf(stderr, "usage: load -p PORT -f REQUEST_FILE -c CONNECTIONS -t SECONDS -e TOKENS [-r RATE] [-a PERCENT] [-n REQUESTS] [-o]\n"), exit(64);
  FILE *stream = fopen(file, "rb");
  if (stream == NULL) perror(file), exit(66);
  request_length = fread(request, 1, sizeof request, stream);
  number = memmem(request, request_length, "########", 8);
  fclose(stream);
}

// ---- starting and ending

// Where the other end is overloaded, what is overdue at the end is not sent any more.
static bool may_start(void) {
  if (options.requests > 0 && count.started >= options.requests) return false;
  if (options.rate > 0 && next_due >= end_time) return false;
  return (options.rate > 0 && !options.overloads) || now() < end_time;
}

static void begin(connection *c, ns due);

static void start_due_requests(void) {
  while (idle_count > 0 && may_start()) {
    ns time = now();
    if (options.rate > 0 && next_due > time) {
      struct itimerspec at = {.it_value = {(ns)next_due / 1000000000LL, (ns)next_due % 1000000000LL}};
      timerfd_settime(timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
      return;
    }
    connection *c = &all[idle[idle_first]];
    idle_first = (idle_first + 1) % options.connections;
    idle_count--;
    begin(c, options.rate > 0 ? (ns)next_due : time);
    if (options.rate > 0) next_due += 1e9 / options.rate;
  }
}

static void become_idle(connection *c) {
  c->is_busy = false;
  idle[(idle_first + idle_count++) % options.connections] = c - all;
}

static void hang_up(connection *c) {
  close(c->fd);
  c->fd = -1;
}

static void complain(connection *c, const char *what) {
  if (count.bad++ >= 3) return;
  fprintf(stderr, "load: %s (status %d, %d tokens): %.*s\n", what, c->status, c->tokens, (int)strcspn(c->head, "\r\n"), c->head);
}

static void fail(connection *c, const char *what) {
  complain(c, what);
  hang_up(c);
  become_idle(c);
}

static void send_request(connection *c) {
  char digits[24];
  if (number != NULL) snprintf(digits, sizeof digits, "%08ld", count.started % 100000000), memcpy(number, digits, 8);
  if (send(c->fd, request, request_length, MSG_NOSIGNAL) != (ssize_t)request_length) fail(c, "the request could not be sent");
}

static void begin(connection *c, ns due) {
  bool aborts = rand() % 100 < options.abort_percent;
  *c = (connection){.fd = c->fd, .is_busy = true, .due = due, .digits = -1, .abort_after = aborts ? 1 + rand() % ABORT_AFTER_TOKENS_MAX : 0};
  count.started++;
  if (c->fd >= 0) return send_request(c);

  int one = 1;
  c->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  if (c->fd < 0) perror("load: socket"), exit(71);
  setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(options.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (connect(c->fd, (void *)&address, sizeof address) != 0 && errno != EINPROGRESS) perror("load: connect"), exit(71);
  struct epoll_event event = {.events = EPOLLOUT, .data.ptr = c};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, c->fd, &event);
  c->is_connecting = true;
}

static void connected(connection *c) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) fprintf(stderr, "load: connect: %s\n", strerror(error)), exit(71);
  c->is_connecting = false;
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
  epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
  send_request(c);
}

static void add(samples *s, ns duration) {
  if (s->length == s->capacity) {
    if (s->capacity == SAMPLES_MAX) return;
    s->capacity = s->capacity == 0 ? 1 << 16 : s->capacity * 2 > SAMPLES_MAX ? SAMPLES_MAX : s->capacity * 2;
    s->us = realloc(s->us, s->capacity * sizeof *s->us);
  }
  s->us[s->length++] = duration / 1e3;
}

static void complete(connection *c, ns time) {
  last_answer = time;
  if (c->status == 429 && options.overloads) count.refused++, add(&refusal, time - c->due);
  else if (c->status != options.status) complain(c, "another status");
  else if (c->status != 200) count.good++, add(&latency, time - c->due);
  else if (c->is_wrong || c->tokens != options.tokens) complain(c, "tokens are missing or out of order");
  else if (c->is_stream && !c->is_done) complain(c, "a stream without its end");
  else count.good++, add(&latency, time - c->due);
  if (c->closes_after) hang_up(c);
  become_idle(c);
}

// ---- reading

#define IN_TEXT (text_key_length + 1)

// One token is over.
static void take_token(connection *c, ns time) {
  if (c->digits < 1 || c->number != c->tokens) c->is_wrong = true;
  c->digits = -1;
  c->tokens++, count.tokens++;
  if (c->tokens == 1) add(&first_token, time - c->due);
  else if (c->is_stream) add(&gap, time - c->last_token);
  c->last_token = time;
}

static void read_content(connection *c, char character, ns time) {
  if (character >= '0' && character <= '9' && c->digits >= 0 && c->digits < 9) c->number = c->number * 10 + character - '0', c->digits++;
  else if (character == 't' && c->digits == 0) return;
  else if (character == ' ' || character == '"') {
    if (c->digits >= 0) take_token(c, time);
    if (character == ' ') c->digits = c->number = 0;
    else c->matched = 0;
  } else c->is_wrong = true;
}

static void read_text(connection *c, const char *bytes, size_t length, ns time) {
  const char *end = bytes + length;
  for (const char *at = bytes; at < end; at++) {
    if (c->matched == IN_TEXT) read_content(c, *at, time);
    else if (c->matched == text_key_length) c->matched = *at == ' ' ? c->matched : *at == '"' ? IN_TEXT : 0;
    else if (*at == text_key[c->matched]) c->matched++;
    else {
      c->matched = *at == '"';
      if (c->matched == 0 && (at = memchr(at, '"', end - at)) == NULL) break;
      else if (c->matched == 0) c->matched = 1;
    }
  }
  if (!c->is_stream) return;
  const int done_length = strlen(options.done);
  for (const char *at = bytes; at < end; at++) {
    if (*at == options.done[c->matched_done]) c->is_done |= ++c->matched_done == done_length;
    else c->matched_done = *at == options.done[0];
    if (c->matched_done == done_length) c->matched_done = 0;
    if (c->matched_done == 0 && (at = memchr(at, options.done[0], end - at)) == NULL) break;
    else if (c->matched_done == 0) c->matched_done = 1;
  }
}

// The head is whole: what it says of the body.
static void read_head(connection *c) {
  c->status = atoi(c->head + 9);
  const char *length = strcasestr(c->head, "\r\ncontent-length:");
  c->is_stream = strcasestr(c->head, "\r\ncontent-type: text/event-stream") != NULL;
  c->closes_after = strcasestr(c->head, "\r\nconnection: close") != NULL;
  if (strcasestr(c->head, "\r\ntransfer-encoding: chunked") != NULL) c->phase = CHUNK_SIZE;
  else if (length != NULL) c->phase = BODY, c->left = strtoul(length + 17, NULL, 10);
  else c->phase = BODY_TO_CLOSE, c->closes_after = true;
}

// Adds one byte to the head, or to a line of the chunked body. false: too long.
static bool keep(connection *c, char byte) {
  if (c->head_length + 1 >= HEAD_BYTES_MAX) return false;
  c->head[c->head_length++] = byte;
  c->head[c->head_length] = 0;
  return true;
}

static bool ends_with(const connection *c, const char *end) {
  size_t length = strlen(end);
  return c->head_length >= length && memcmp(c->head + c->head_length - length, end, length) == 0;
}

// Reads what has arrived; afterwards the connection may be idle again.
static void read_answer(connection *c, const char *bytes, size_t length, ns time) {
  const char *end = bytes + length;
  while (bytes < end || (c->phase == BODY && c->left == 0)) {
    if (!c->is_busy) return complain(c, "bytes after the end of an answer"), hang_up(c);
    size_t there = end - bytes, part = there < c->left ? there : c->left;
    switch (c->phase) {
    case HEAD:
      if (!keep(c, *bytes++)) return fail(c, "a head that is too long");
      if (ends_with(c, "\r\n\r\n")) read_head(c), c->head_length = 0;
      break;
    case BODY:
      read_text(c, bytes, part, time);
      bytes += part;
      if ((c->left -= part) == 0) {
        complete(c, time);
        if (bytes == end) return;
      }
      break;
    case BODY_TO_CLOSE:
      read_text(c, bytes, there, time);
      bytes = end;
      break;
    case CHUNK_SIZE:
      if (!keep(c, *bytes++)) return fail(c, "a chunk's line that is too long");
      if (!ends_with(c, "\r\n")) break;
      c->left = strtoul(c->head, NULL, 16);
      c->head_length = 0;
      c->phase = c->left > 0 ? CHUNK : TRAILER;
      break;
    case CHUNK:
      read_text(c, bytes, part, time);
      bytes += part;
      if ((c->left -= part) == 0) c->phase = CHUNK_END, c->left = 2;
      break;
    case CHUNK_END:
      bytes += part;
      if ((c->left -= part) == 0) c->phase = CHUNK_SIZE;
      break;
    case TRAILER:
      if (!keep(c, *bytes++)) return fail(c, "a trailer that is too long");
      if (!ends_with(c, "\r\n")) break;
      if (c->head_length > 2) c->head_length = 0;
      else {
        complete(c, time);
        if (bytes == end) return;
      }
      break;
    }
  }
}

static void handle(connection *c, unsigned events) {
  if (c->is_connecting) return connected(c);
  if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
  static char bytes[READ_BYTES];
  ssize_t length = recv(c->fd, bytes, sizeof bytes, MSG_DONTWAIT);
  if (length < 0 && errno == EAGAIN) return;
  ns time = now();
  if (length <= 0) {
    if (!c->is_busy) return hang_up(c);
    if (length == 0 && c->phase == BODY_TO_CLOSE) return complete(c, time);
    if (options.overloads && c->phase == HEAD && c->head_length == 0) return count.lost++, hang_up(c), become_idle(c);
    return fail(c, "the connection was closed in mid-answer");
  }
  if (!c->is_busy) return complain(c, "bytes that nobody asked for"), hang_up(c);
  read_answer(c, bytes, length, time);
  if (c->is_busy && c->abort_after > 0 && c->tokens >= c->abort_after) {
    count.aborted++;
    hang_up(c);
    become_idle(c);
  }
}

// ---- results

static int compare(const void *a, const void *b) {
  float x = *(const float *)a, y = *(const float *)b;
  return x < y ? -1 : x > y;
}

static double quantile(const samples *s, double q) { return s->length == 0 ? 0 : s->us[(size_t)((s->length - 1) * q)]; }

static void print_quantiles(const char *name, samples *s) {
  if (s->length > 0) qsort(s->us, s->length, sizeof *s->us, compare);
  printf(",\"%s\":{\"count\":%zu,\"p50\":%.1f,\"p90\":%.1f,\"p95\":%.1f,\"p99\":%.1f,\"max\":%.1f}", name, s->length, quantile(s, .5),
         quantile(s, .9), quantile(s, .95), quantile(s, .99), quantile(s, 1));
}

static void print_results(int hung) {
  printf("{\"started\":%ld,\"good\":%ld,\"bad\":%ld,\"hung\":%d,\"aborted\":%ld,\"tokens\":%ld,\"seconds\":%.4f", count.started, count.good, count.bad,
         hung, count.aborted, count.tokens, (last_answer - start_time) / 1e9);
  print_quantiles("latencyUs", &latency);
  print_quantiles("firstTokenUs", &first_token);
  print_quantiles("gapUs", &gap);
  if (options.overloads) {
    printf(",\"refused\":%ld,\"lost\":%ld", count.refused, count.lost);
    print_quantiles("refusalUs", &refusal);
  }
  printf("}\n");
}
