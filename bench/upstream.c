// Imitates an OpenAI-compatible server (the answers are vLLM's) so cheaply that it is never what a benchmark measures:
// one thread, epoll, every event printed before the first request.
//
//   upstream PORT                    listens on 127.0.0.1
//
// What a request gets is said by a marker in its prompt, [[u:MODE:TOKENS:MS]]:
//
//   j   one JSON body, also for a request that asks for a stream
//   s   an event stream, all of it in one write; one JSON body for a request that does not ask for a stream
//   f   an event stream with one write for each token, as fast as they can be taken; streams take turns
//   p   an event stream with one write for each token, the first at once, then one every MS milliseconds
//
// Token number i is the text " t<i>", so that the other end can check that none is lost or out of order. Like vLLM it
// puts the usage on every event of a request that asks for `continuous_usage_stats`. GET /stats tells what it has done;
// any other GET lists a model.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define TOKENS_MAX 1024
#define PROMPT_TOKENS 312
#define REQUEST_BYTES_MAX (1 << 27)
// One list of streams for each of the next so many milliseconds; a pace cannot be slower.
#define WHEEL_SLOTS 4096

typedef struct text {
  const char *bytes;
  size_t length;
} text;

// A place in a ring, which knows its neighbours: a member's, or the head.
typedef struct ring {
  struct ring *next, *previous;
} ring;

typedef struct connection {
  ring place; // first, so that a place is its connection; among those who take turns, in a slot of the wheel, or alone
  int fd;
  bool is_closed;
  char *request;
  size_t request_length, request_capacity;

  bool is_streaming;
  char mode;
  int tokens, pace_ms, next_token;
  bool is_text, shows_usage;
  long due_ms;
  text unsent;     // what the socket has not taken yet
  char tail[1024]; // finish, usage, [DONE] and the end of the body
  size_t tail_length;
  bool is_tail_sent;
  struct connection *next_closed;
} connection;

static int epoll_fd, listener_fd;
static ring taking_turns;
static ring wheel[WHEEL_SLOTS];
static long wheel_ms;
static connection *closed_connections; // freed when no event of the current batch can name them
static struct { long whole, streams, finished, aborted, running; } count;

static void open_listener(int port);
static void accept_connections(void);
static void handle(connection *c, unsigned events);
static void play_due_streams(void);
static void play_ring(ring *waiting);
static void print_events(void);
static void free_closed(void);
static void ring_init(ring *head) { head->next = head->previous = head; }
static bool ring_is_empty(const ring *head) { return head->next == head; }

int main(int argc, char **argv) {
  if (argc != 2) return fprintf(stderr, "usage: upstream PORT\n"), 64;
  signal(SIGPIPE, SIG_IGN);
  print_events();
  ring_init(&taking_turns);
  for (int i = 0; i < WHEEL_SLOTS; i++) ring_init(&wheel[i]);
  open_listener(atoi(argv[1]));

  struct epoll_event events[512];
  for (;;) {
    int wait_ms = !ring_is_empty(&taking_turns) ? 0 : count.running > 0 ? 1 : -1;
    int ready = epoll_wait(epoll_fd, events, 512, wait_ms);
    play_due_streams();
    for (int i = 0; i < ready; i++) {
      connection *c = events[i].data.ptr;
      if (c == NULL) accept_connections();
      else if (!c->is_closed) handle(c, events[i].events);
    }
    play_ring(&taking_turns);
    free_closed();
  }
}

// ---- rings and clock

static void ring_add(ring *head, ring *member) {
  member->next = head;
  member->previous = head->previous;
  head->previous->next = member;
  head->previous = member;
}

static void ring_leave(ring *member) {
  member->previous->next = member->next;
  member->next->previous = member->previous;
  ring_init(member);
}

// Moves all members to `into`, so that those who come back while they are worked through wait for the next round.
static void ring_move(ring *from, ring *into) {
  ring_init(into);
  if (ring_is_empty(from)) return;
  *into = *from;
  into->next->previous = into->previous->next = into;
  ring_init(from);
}

static long now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000L + time.tv_nsec / 1000000;
}

// ---- what is sent

static const char stream_head[] = "HTTP/1.1 200 OK\r\n"
                                  "date: Fri, 21 Nov 2025 01:00:00 GMT\r\n"
                                  "server: uvicorn\r\n"
                                  "content-type: text/event-stream; charset=utf-8\r\n"
                                  "transfer-encoding: chunked\r\n\r\n";
// Of a chat completion, and of a text completion.
static const char *const event_starts[2] = {
    "data: {\"id\":\"chatcmpl-6f2a1c0e9b7d4e3f8a5b2c1d0e9f8a7b\",\"object\":\"chat.completion.chunk\","
    "\"created\":1763687000,\"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":[",
    "data: {\"id\":\"cmpl-6f2a1c0e9b7d4e3f8a5b2c1d0e9f8a7b\",\"object\":\"text_completion\","
    "\"created\":1763687000,\"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":["};
static text token_events[2][2][TOKENS_MAX]; // of a chat or a text; without and with usage
static text single_writes[2][2][TOKENS_MAX + 1];
static text json_answers[TOKENS_MAX + 1];

static text copied(const char *bytes, size_t length) {
  char *copy = malloc(length + 1);
  memcpy(copy, bytes, length);
  copy[length] = 0;
  return (text){copy, length};
}

// One chunk of the body.
static int print_chunk(char *out, const char *event, int length) {
  return sprintf(out, "%x\r\n%.*s\r\n", (unsigned)length, length, event);
}

static void print_usage(char *out, int completion_tokens) {
  sprintf(out, "{\"prompt_tokens\":%d,\"total_tokens\":%d,\"completion_tokens\":%d}", PROMPT_TOKENS, PROMPT_TOKENS + completion_tokens,
          completion_tokens);
}

static int print_text(char *out, bool is_text, const char *role, const char *words) {
  return is_text ? sprintf(out, "\"text\":\"%s\"", words) : sprintf(out, "\"delta\":{%s\"content\":\"%s\"}", role, words);
}

static void print_events(void) {
  for (int is_text = 0; is_text < 2; is_text++)
    for (int with_usage = 0; with_usage < 2; with_usage++)
      for (int i = 0; i < TOKENS_MAX; i++) {
        char usage[128], word[16], said[128], event[1024], chunk[1100];
        print_usage(usage, i + 1);
        sprintf(word, " t%d", i);
        print_text(said, is_text, i == 0 ? "\"role\":\"assistant\"," : "", word);
        int length = sprintf(event, "%s{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":null}]%s%s}\n\n", event_starts[is_text], said,
                             with_usage ? ",\"usage\":" : "", with_usage ? usage : "");
        token_events[is_text][with_usage][i] = copied(chunk, print_chunk(chunk, event, length));
      }
}

static int print_tail(char *out, bool is_text, int tokens, bool shows_usage) {
  char usage[128], said[128], event[1024];
  print_usage(usage, tokens);
  print_text(said, is_text, "", "");
  int length = sprintf(event, "%s{\"index\":0,%s,\"logprobs\":null,\"finish_reason\":\"stop\",\"stop_reason\":null}]%s%s}\n\n",
                       event_starts[is_text], said, shows_usage ? ",\"usage\":" : "", shows_usage ? usage : "");
  int written = print_chunk(out, event, length);
  length = sprintf(event, "%s],\"usage\":%s}\n\n", event_starts[is_text], usage);
  written += print_chunk(out + written, event, length);
  return written + sprintf(out + written, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n");
}

static text single_write(bool is_text, int tokens, bool shows_usage) {
  text *cached = &single_writes[is_text][shows_usage][tokens];
  if (cached->bytes != NULL) return *cached;
  char *all = malloc(sizeof stream_head + (size_t)tokens * 600 + 1100);
  size_t length = sprintf(all, "%s", stream_head);
  for (int i = 0; i < tokens; i++) {
    text event = token_events[is_text][shows_usage][i];
    memcpy(all + length, event.bytes, event.length);
    length += event.length;
  }
  length += print_tail(all + length, is_text, tokens, shows_usage);
  return *cached = (text){all, length};
}

static text json_answer(int tokens) {
  text *cached = &json_answers[tokens];
  if (cached->bytes != NULL) return *cached;
  static char content[TOKENS_MAX * 8], body[TOKENS_MAX * 8 + 1000], answer[TOKENS_MAX * 8 + 1300];
  size_t length = 0;
  for (int i = 0; i < tokens; i++) length += sprintf(content + length, " t%d", i);
  char usage[128];
  print_usage(usage, tokens);
  int body_length = sprintf(body,
                            "{\"id\":\"chatcmpl-6f2a1c0e9b7d4e3f8a5b2c1d0e9f8a7b\",\"object\":\"chat.completion\",\"created\":1763687000,"
                            "\"model\":\"meta-llama/Llama-3.1-8B-Instruct\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
                            "\"reasoning_content\":null,\"content\":\"%s\",\"tool_calls\":[]},\"logprobs\":null,\"finish_reason\":\"stop\","
                            "\"stop_reason\":null}],\"usage\":%s,\"prompt_logprobs\":null}",
                            content, usage);
  int answer_length = sprintf(answer,
                              "HTTP/1.1 200 OK\r\ndate: Fri, 21 Nov 2025 01:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: %d\r\n"
                              "content-type: application/json\r\n\r\n%s",
                              body_length, body);
  return *cached = copied(answer, answer_length);
}

// ---- sending

static void watch(connection *c, bool for_room) {
  struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP | (for_room ? EPOLLOUT : 0), .data.ptr = c};
  epoll_ctl(epoll_fd, EPOLL_CTL_MOD, c->fd, &event);
}

static void close_connection(connection *c) {
  if (c->is_closed) return;
  if (c->is_streaming) count.aborted++, count.running--;
  ring_leave(&c->place);
  close(c->fd);
  free(c->request);
  c->is_closed = true;
  c->next_closed = closed_connections;
  closed_connections = c;
}

static void free_closed(void) {
  while (closed_connections != NULL) {
    connection *c = closed_connections;
    closed_connections = c->next_closed;
    free(c);
  }
}

// Whether all of it is with the socket; if not, the rest follows when there is room, or the connection is closed.
static bool put(connection *c, text bytes) {
  ssize_t sent = send(c->fd, bytes.bytes, bytes.length, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent == (ssize_t)bytes.length) return true;
  if (sent < 0 && errno != EAGAIN) return close_connection(c), false;
  size_t taken = sent < 0 ? 0 : sent;
  c->unsent = (text){bytes.bytes + taken, bytes.length - taken};
  watch(c, true);
  return false;
}

static void serve(connection *c);

// Sends the next token, and after the last one the tail. Whether the stream goes on and its socket has room.
static bool play_token(connection *c) {
  if (c->next_token < c->tokens) {
    if (!put(c, token_events[c->is_text][c->shows_usage][c->next_token++])) return false;
    if (c->next_token < c->tokens) return true;
  }
  if (!c->is_tail_sent) {
    c->is_tail_sent = true;
    if (!put(c, (text){c->tail, c->tail_length})) return false;
  }
  c->is_streaming = false;
  count.finished++, count.running--;
  serve(c);
  return false;
}

// Tokens come in ticks of a millisecond: several streams together, as the steps of a batching engine make them.
static void await_turn(connection *c) {
  if (c->mode != 'p') return ring_add(&taking_turns, &c->place);
  c->due_ms += c->pace_ms;
  if (c->due_ms <= wheel_ms) c->due_ms = wheel_ms + 1;
  ring_add(&wheel[c->due_ms % WHEEL_SLOTS], &c->place);
}

static void play_ring(ring *waiting) {
  ring turn;
  ring_move(waiting, &turn);
  while (!ring_is_empty(&turn)) {
    connection *c = (connection *)turn.next;
    ring_leave(&c->place);
    if (play_token(c)) await_turn(c);
  }
}

static void play_due_streams(void) {
  for (long now = now_ms(); wheel_ms < now;) play_ring(&wheel[++wheel_ms % WHEEL_SLOTS]);
}

// There is room again. Meanwhile the stream was in no ring, so a reader who does not keep up holds nobody else up.
static void resume(connection *c) {
  text rest = c->unsent;
  c->unsent = (text){NULL, 0};
  watch(c, false);
  if (!put(c, rest)) return;
  if (c->is_streaming) await_turn(c);
  else serve(c);
}

// ---- requests

typedef struct order {
  enum { ANSWER, STATS, MODELS, COUNT, NONSENSE } kind;
  char mode;
  int tokens, pace_ms;
  bool is_text, shows_usage, wants_stream;
} order;

static bool starts_with(const char *bytes, const char *word) { return strncmp(bytes, word, strlen(word)) == 0; }
static bool contains(const char *bytes, size_t length, const char *word) { return memmem(bytes, length, word, strlen(word)) != NULL; }

static order read_order(const char *head, const char *body, size_t body_length) {
  order o = {.kind = ANSWER, .shows_usage = contains(body, body_length, "\"continuous_usage_stats\":true")};
  o.is_text = starts_with(head, "POST /v1/completions ");
  o.wants_stream = contains(body, body_length, "\"stream\":true") || contains(body, body_length, "\"stream\": true");
  if (starts_with(head, "GET /stats ")) o.kind = STATS;
  else if (starts_with(head, "GET ")) o.kind = MODELS;
  else if (starts_with(head, "POST /tokenize ")) o.kind = COUNT;
  else {
    const char *marker = memmem(body, body_length, "[[u:", 4);
    bool is_read = marker != NULL && sscanf(marker, "[[u:%c:%d:%d]]", &o.mode, &o.tokens, &o.pace_ms) == 3;
    if (!is_read || strchr("jsfp", o.mode) == NULL || o.tokens < 1 || o.tokens > TOKENS_MAX || o.pace_ms < 0 || o.pace_ms >= WHEEL_SLOTS)
      o.kind = NONSENSE;
  }
  return o;
}

// Whether a whole request had arrived. It is taken out of the buffer.
static bool take_request(connection *c, order *o) {
  if (c->request_length == 0) return false;
  c->request[c->request_length] = 0;
  char *head_end = strstr(c->request, "\r\n\r\n");
  if (head_end == NULL) return false;
  char *body = head_end + 4, *end = c->request + c->request_length;
  size_t body_length = 0;
  head_end[2] = 0;
  const char *content_length = strcasestr(c->request, "\r\ncontent-length:");
  bool is_chunked = strcasestr(c->request, "\r\ntransfer-encoding: chunked") != NULL;
  head_end[2] = '\r';
  if (is_chunked) {
    // Good enough for JSON, whose strings have no bare line ends.
    const char *last = memmem(body - 2, end - body + 2, "\r\n0\r\n\r\n", 7);
    if (last == NULL) return false;
    body_length = last + 7 - body;
  } else if (content_length != NULL) body_length = strtoul(content_length + 17, NULL, 10);
  if ((size_t)(end - body) < body_length) return false;
  *o = read_order(c->request, body, body_length);
  c->request_length = end - body - body_length;
  memmove(c->request, body + body_length, c->request_length);
  return true;
}

static void put_json(connection *c, const char *body) {
  char answer[1024];
  int length = snprintf(answer, sizeof answer, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %zu\r\n\r\n%s", strlen(body), body);
  if (send(c->fd, answer, length, MSG_NOSIGNAL | MSG_DONTWAIT) != length) close_connection(c);
}

static void put_stats(connection *c) {
  char body[300];
  snprintf(body, sizeof body, "{\"whole\":%ld,\"streams\":%ld,\"finished\":%ld,\"aborted\":%ld,\"running\":%ld}", count.whole, count.streams,
           count.finished, count.aborted, count.running);
  put_json(c, body);
}

static void start_stream(connection *c, const order *o) {
  count.streams++, count.running++;
  c->is_streaming = true;
  c->mode = o->mode, c->tokens = o->tokens, c->pace_ms = o->pace_ms, c->is_text = o->is_text, c->shows_usage = o->shows_usage;
  bool is_single_write = o->mode == 's';
  c->next_token = is_single_write ? o->tokens : 0;
  c->is_tail_sent = is_single_write;
  if (!is_single_write) c->tail_length = print_tail(c->tail, o->is_text, o->tokens, o->shows_usage);
  c->due_ms = now_ms();
  if (!put(c, is_single_write ? single_write(o->is_text, o->tokens, o->shows_usage) : (text){stream_head, sizeof stream_head - 1})) return;
  if (play_token(c)) await_turn(c);
}

static void serve(connection *c) {
  order o;
  while (!c->is_closed && !c->is_streaming && c->unsent.length == 0 && take_request(c, &o)) {
    switch (o.kind) {
    case ANSWER:
      if (o.mode != 'j' && (o.mode != 's' || o.wants_stream)) start_stream(c, &o);
      else count.whole++, put(c, json_answer(o.tokens));
      break;
    case STATS: put_stats(c); break;
    case MODELS: put_json(c, "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\",\"created\":1763687000,\"owned_by\":\"vllm\"}]}"); break;
    case COUNT: put_json(c, "{\"count\":312,\"max_model_len\":131072,\"tokens\":[]}"); break;
    case NONSENSE:
      fprintf(stderr, "upstream: a request without a marker\n");
      close_connection(c);
      break;
    }
  }
}

// ---- connections

static void open_listener(int port) {
  int one = 1;
  listener_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  setsockopt(listener_fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  if (bind(listener_fd, (void *)&address, sizeof address) != 0 || listen(listener_fd, 4096) != 0) perror("upstream"), exit(71);
  epoll_fd = epoll_create1(0);
  struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
  epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener_fd, &event);
  wheel_ms = now_ms();
}

static void accept_connections(void) {
  int fd, one = 1;
  while ((fd = accept4(listener_fd, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connection *c = calloc(1, sizeof *c);
    c->fd = fd;
    ring_init(&c->place);
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.ptr = c};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
  }
}

static void receive(connection *c) {
  if (c->request_capacity - c->request_length < 4096) {
    c->request_capacity = c->request_capacity * 2 + 8192;
    if (c->request_capacity > REQUEST_BYTES_MAX) return close_connection(c);
    c->request = realloc(c->request, c->request_capacity + 1);
  }
  ssize_t length = recv(c->fd, c->request + c->request_length, c->request_capacity - c->request_length, MSG_DONTWAIT);
  if (length < 0 && errno == EAGAIN) return;
  if (length <= 0) return close_connection(c);
  c->request_length += length;
  serve(c);
}

static void handle(connection *c, unsigned events) {
  if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP)) return close_connection(c);
  if (events & EPOLLOUT) resume(c);
  if (!c->is_closed && (events & EPOLLIN)) receive(c);
}
