/*
 * Makes short steps and chooses tokens on the caller's thread, and asks a grammar about many tokens at once. The addon of node-llama-cpp
 * does each on a thread of Node's pool, for which the loop waits, copies the whole vocabulary for a choice, and can be asked about only one
 * token at a time (docs/decisions/042-embedded-speed.md). The samplers are llama.cpp's own, made and applied as the addon does
 * (AddonSampler.cpp), so a seed gives the same tokens.
 *
 * Contexts, batches and grammars belong to the addon: their addresses are captured when it calls llama.cpp.
 */
#include "choice.h"
#include "llama-library.h"
#include "node-functions.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

/* llama.h */
struct candidate {
  int32_t id;
  float logit;
  float p;
};
struct candidates {
  struct candidate *data;
  size_t size;
  int64_t selected;
  bool sorted;
};

struct batch {
  int32_t tokens;
  int32_t *ids;
  float *embeddings;
  int32_t *positions;
  int32_t *sequence_counts;
  int32_t **sequences;
  int8_t *wants_logits;
};

static struct {
  struct batch (*new_batch)(int32_t tokens, int32_t embedding, int32_t sequences_max);
  int32_t (*decode)(void *context, struct batch);
  void *(*memory)(const void *context);
  bool (*remove)(void *memory, int32_t sequence, int32_t from, int32_t to);
  void (*set_abort)(void *context, bool (*is_over)(void *), void *data);
  bool (*is_recurrent)(const void *model);
  bool (*is_hybrid)(const void *model);
  int32_t (*window)(const void *model);
  void (*synchronize)(void *context);
  float *(*logits)(void *context, int32_t place);
  int32_t (*threads)(void *context);
  const void *(*model)(const void *context);
  const void *(*vocabulary)(const void *model);
  int32_t (*vocabulary_size)(const void *vocabulary);
  void (*apply)(void *sampler, struct candidates *);
  void (*free)(void *sampler);
  void *(*grammar)(const void *vocabulary, const char *gbnf, const char *root);
  void *(*greedy)(void);
  void *(*dist)(uint32_t seed);
  void *(*top_k)(int32_t k);
  void *(*top_p)(float p, size_t least);
  void *(*min_p)(float p, size_t least);
  void *(*temperature)(float t);
} llama;

static void find_functions(void) {
  void *library = llama_library();
  llama.new_batch = dlsym(library, "llama_batch_init");
  llama.decode = dlsym(library, "llama_decode");
  llama.memory = dlsym(library, "llama_get_memory");
  llama.remove = dlsym(library, "llama_memory_seq_rm");
  llama.set_abort = dlsym(library, "llama_set_abort_callback");
  llama.is_recurrent = dlsym(library, "llama_model_is_recurrent");
  llama.is_hybrid = dlsym(library, "llama_model_is_hybrid");
  llama.window = dlsym(library, "llama_model_n_swa");
  llama.synchronize = dlsym(library, "llama_synchronize");
  llama.logits = dlsym(library, "llama_get_logits_ith");
  llama.threads = dlsym(library, "llama_n_threads");
  llama.model = dlsym(library, "llama_get_model");
  llama.vocabulary = dlsym(library, "llama_model_get_vocab");
  llama.vocabulary_size = dlsym(library, "llama_vocab_n_tokens");
  llama.apply = dlsym(library, "llama_sampler_apply");
  llama.free = dlsym(library, "llama_sampler_free");
  llama.greedy = dlsym(library, "llama_sampler_init_greedy");
  llama.dist = dlsym(library, "llama_sampler_init_dist");
  llama.top_k = dlsym(library, "llama_sampler_init_top_k");
  llama.top_p = dlsym(library, "llama_sampler_init_top_p");
  llama.min_p = dlsym(library, "llama_sampler_init_min_p");
  llama.temperature = dlsym(library, "llama_sampler_init_temp");
  llama.grammar = dlsym(library, "llama_sampler_init_grammar");
}

/* JavaScript's handle of a context, which may outlive the context. */
struct context {
  void *context;
  int32_t vocabulary_size;
  /* Whether one of its steps can be given up and repeated. */
  bool forgets_steps;
  /* When the step on JavaScript's thread is given up; 0: never. */
  double deadline_ms;
  /* How often llama.cpp asked whether the step is given up. */
  uint32_t asked;
  struct context *next;
};
static struct context *contexts;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local struct context *latest_context;
static _Thread_local void *latest_grammar;
static _Thread_local struct batch latest_batch;

static void find_functions_once(void) {
  pthread_mutex_lock(&lock);
  if (llama.apply == NULL) find_functions();
  pthread_mutex_unlock(&lock);
}

static double now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/* llama.cpp asks after each node of the graph, a thousand times per step of a small model: checking every eighth time is enough. */
static bool is_over(void *data) {
  struct context *context = data;
  return context->deadline_ms > 0 && context->asked++ % 8 == 0 && now_ms() > context->deadline_ms;
}

/*
 * A recurrent state already contains the tokens of a step that was given up, and cannot be rolled back; a sliding window may have lost
 * tokens to them.
 */
static bool forgets_steps(const void *model) {
  bool can_ask = llama.set_abort && llama.memory && llama.remove && llama.is_recurrent && llama.is_hybrid && llama.window;
  return can_ask && !llama.is_recurrent(model) && !llama.is_hybrid(model) && llama.window(model) <= 0;
}

/*
 * llama.cpp computes a batch of several sequences in parts, and forgets only the part at which it was stopped. A sequence's tokens are
 * consecutive, so it now ends before its first token in the batch.
 */
static void forget_batch(void *context, struct batch batch) {
  for (int32_t i = batch.tokens - 1; i >= 0; i--)
    llama.remove(llama.memory(context), batch.sequences[i][0], batch.positions[i], -1);
}

/* The addon calls this before it sets the number of threads, on the JavaScript thread. */
int32_t llama_n_threads(void *context) {
  find_functions_once();
  pthread_mutex_lock(&lock);
  struct context *known = contexts;
  while (known != NULL && known->context != context) known = known->next;
  if (known == NULL && (known = calloc(1, sizeof *known)) != NULL) {
    known->context = context;
    const void *model = llama.model(context);
    known->vocabulary_size = llama.vocabulary_size(llama.vocabulary(model));
    known->forgets_steps = forgets_steps(model);
    if (known->forgets_steps) llama.set_abort(context, is_over, known);
    known->next = contexts;
    contexts = known;
  }
  latest_context = known;
  pthread_mutex_unlock(&lock);
  return llama.threads(context);
}

void forget_context(void *context) {
  pthread_mutex_lock(&lock);
  for (struct context *each = contexts; each != NULL; each = each->next)
    if (each->context == context) each->context = NULL;
  pthread_mutex_unlock(&lock);
}

/* The addon calls these on the JavaScript thread. */

struct batch llama_batch_init(int32_t tokens, int32_t embedding, int32_t sequences_max) {
  find_functions_once();
  return latest_batch = llama.new_batch(tokens, embedding, sequences_max);
}

void *llama_sampler_init_grammar(const void *vocabulary, const char *gbnf, const char *root) {
  find_functions_once();
  return latest_grammar = llama.grammar(vocabulary, gbnf, root);
}

enum { given_up = 2 /* llama_decode */, sampler_numbers = 5, likeliest = 1000, block = 64 };

struct sampler {
  float temperature;
  int32_t top_k;
  float top_p;
  float min_p;
  uint32_t seed;
  bool is_configured;
  /* NULL: has no effect. */
  void *greedy_of, *top_k_of, *top_p_of, *min_p_of, *temperature_of, *dist_of;
  size_t biases;
  uint32_t *bias_ids;
  float *bias_values;
  /* How far the lowest wanted logit was below the highest in the last choice. */
  float margin;
  struct candidate *data;
  float *biased;
  float *blocks;
  size_t room;
};

static void release(void **sampler) {
  if (*sampler != NULL) llama.free(*sampler);
  *sampler = NULL;
}

static void free_sampler(napi_env env, void *data, void *hint) {
  (void)env, (void)hint;
  struct sampler *s = data;
  void **all[] = {&s->greedy_of, &s->top_k_of, &s->top_p_of, &s->min_p_of, &s->temperature_of, &s->dist_of};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
  free(s->bias_ids);
  free(s->bias_values);
  free(s->data);
  free(s->biased);
  free(s->blocks);
  free(s);
}

static bool has_room(struct sampler *s, size_t size) {
  if (s->room >= size) return true;
  free(s->data);
  free(s->biased);
  free(s->blocks);
  s->data = malloc(size * sizeof *s->data);
  s->biased = malloc(size * sizeof *s->biased);
  s->blocks = malloc((size / block + 1) * sizeof *s->blocks);
  s->room = s->data != NULL && s->biased != NULL && s->blocks != NULL ? size : 0;
  return s->room > 0;
}

/* Logits with biases; NULL where there are none. */
static const float *logits_at(struct sampler *s, struct context *context, int32_t place) {
  const float *logits = context->context == NULL ? NULL : llama.logits(context->context, place);
  size_t size = context->vocabulary_size;
  if (logits == NULL || !has_room(s, size)) return NULL;
  if (s->biases == 0) return logits;
  memcpy(s->biased, logits, size * sizeof *logits);
  for (size_t i = 0; i < s->biases; i++)
    if (s->bias_ids[i] < size) s->biased[s->bias_ids[i]] += s->bias_values[i];
  return s->biased;
}

/*
 * Returns the highest logit, and writes that of each block: a pass over the vocabulary that compilers turn into a few instructions per
 * block.
 */
static float highest(const float *logits, size_t size, float *blocks) {
  float most = -INFINITY;
  for (size_t from = 0; from < size; from += block) {
    float lanes[8];
    size_t to = from + block <= size ? from + block : size;
    for (size_t lane = 0; lane < 8; lane++) lanes[lane] = -INFINITY;
    size_t id = from;
    for (; id + 8 <= to; id += 8)
      for (size_t lane = 0; lane < 8; lane++)
        lanes[lane] = logits[id + lane] > lanes[lane] ? logits[id + lane] : lanes[lane];
    for (; id < to; id++) lanes[0] = logits[id] > lanes[0] ? logits[id] : lanes[0];
    for (size_t lane = 1; lane < 8; lane++) lanes[0] = lanes[lane] > lanes[0] ? lanes[lane] : lanes[0];
    *blocks++ = lanes[0];
    if (lanes[0] > most) most = lanes[0];
  }
  return most;
}

/* Returns at least the `count` likeliest tokens, and all others that are as likely as one of them. */
static struct candidates gather(struct sampler *s, const float *logits, size_t size, size_t count) {
  struct candidates found = {s->data, 0, -1, false};
  float most = highest(logits, size, s->blocks);
  float margin = count == 1 ? 0 : s->margin;
  for (;;) {
    float least = count >= size ? -INFINITY : most - margin;
    found.size = 0;
    for (size_t from = 0; from < size; from += block) {
      if (!(s->blocks[from / block] >= least)) continue;
      for (size_t id = from; id < from + block && id < size; id++)
        if (logits[id] >= least) found.data[found.size++] = (struct candidate){(int32_t)id, logits[id], 0};
    }
    if (found.size >= count || !(least > -INFINITY) || margin > 1e6f) break;
    margin = margin * 1.25f + 0.1f;
  }
  if (count > 1) s->margin = found.size > 2 * count ? margin * 0.9f : margin;
  return found;
}

/* Applies the configured samplers. -1: nothing to choose from. */
static int32_t choose(struct sampler *s, struct candidates *from) {
  if (from->size == 0) return -1;
  void *order[] = {s->greedy_of, s->top_k_of, s->top_p_of, s->min_p_of, s->temperature_of, s->dist_of};
  bool is_greedy = s->temperature <= 0;
  for (size_t i = is_greedy ? 0 : 1; i < (is_greedy ? 1 : sizeof order / sizeof *order); i++)
    if (order[i] != NULL) llama.apply(order[i], from);
  return from->selected >= 0 && (size_t)from->selected < from->size ? from->data[from->selected].id : -1;
}

/* Processor time of this thread only: activity of other threads must not change what is chosen from. */
static double processor_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

/*
 * Sets the logits of tokens that may not come to -INFINITY. False: it takes too long, because the grammar's state has too many branches, as
 * some grammars have after a few characters; nothing can interrupt llama.cpp, so it is asked about gradually larger groups of tokens.
 */
static bool hold_to_grammar(void *grammar, struct candidate *data, size_t size) {
  double begun = processor_ms();
  for (size_t from = 0, count = 1; from < size; from += count, count = count < 512 ? count * 2 : count) {
    struct candidates part = {data + from, from + count < size ? count : size - from, -1, false};
    llama.apply(grammar, &part);
    if (from + count < size && processor_ms() - begun > 5) return false;
  }
  return true;
}

/* Arguments of a call from JavaScript. */

enum { arguments_max = 4 };

static bool external(napi_env env, napi_value value, void **result) {
  return napi_get_value_external(env, value, result) == 0 && *result != NULL;
}

static bool array(napi_env env, napi_value value, int wanted, void **data, size_t *length) {
  int type = -1;
  return napi_get_typedarray_info(env, value, &type, length, data, NULL, NULL) == 0 && type == wanted;
}

static napi_value wrong(napi_env env) {
  napi_throw_error(env, NULL, "wrong arguments");
  return NULL;
}

static napi_value number(napi_env env, int32_t value) {
  napi_value result = NULL;
  napi_create_int32(env, value, &result);
  return result;
}

static napi_value boolean(napi_env env, bool value) {
  napi_value result = NULL;
  napi_get_boolean(env, value, &result);
  return result;
}

static bool arguments_of(napi_env env, napi_callback_info info, napi_value *values, size_t wanted) {
  size_t count = arguments_max;
  return napi_get_cb_info(env, info, &count, values, NULL, NULL) == 0 && count == wanted;
}

/* context(): the one whose number of threads was last set on this thread. */
static napi_value js_context(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value result = NULL;
  if (latest_context == NULL) return wrong(env);
  napi_create_external(env, latest_context, NULL, NULL, &result);
  return result;
}

/* grammar(): the state last made on this thread. It must not be used after the addon's object is gone. */
static napi_value js_grammar(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value result = NULL;
  if (latest_grammar == NULL) return wrong(env);
  napi_create_external(env, latest_grammar, NULL, NULL, &result);
  return result;
}

/*
 * decode(context, tokens, ms): computes the batch last made on this thread, which now has this many tokens, on this thread, and gives it up
 * after this many milliseconds: llama.cpp's threads wait for each other by spinning, so when other processes need the processors, a step of
 * 4 ms can take seconds. Returns what llama.cpp returns; 2: it was given up, and nothing of it remains.
 */
static napi_value js_decode(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  struct context *context;
  int32_t tokens;
  double limit_ms;
  if (!arguments_of(env, info, values, 3) || !external(env, values[0], (void **)&context) ||
      napi_get_value_int32(env, values[1], &tokens) != 0 || napi_get_value_double(env, values[2], &limit_ms) != 0 ||
      context->context == NULL || latest_batch.ids == NULL)
    return wrong(env);
  if (!context->forgets_steps) return number(env, given_up);
  struct batch batch = latest_batch;
  batch.tokens = tokens;
  context->asked = 0;
  context->deadline_ms = now_ms() + limit_ms;
  int32_t outcome = llama.decode(context->context, batch);
  context->deadline_ms = 0;
  if (outcome == 0) llama.synchronize(context->context);
  if (outcome == given_up) forget_batch(context->context, batch);
  return number(env, outcome);
}

/* sampler() */
static napi_value js_sampler(napi_env env, napi_callback_info info) {
  (void)info;
  napi_value result = NULL;
  struct sampler *made = calloc(1, sizeof *made);
  if (made == NULL || napi_create_external(env, made, free_sampler, NULL, &result) != 0) {
    free(made);
    return wrong(env);
  }
  made->margin = 8;
  return result;
}

/* configure(sampler, [temperature, topK, topP, minP, seed], bias ids, bias values) */
static napi_value js_configure(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  struct sampler *s;
  double *numbers;
  uint32_t *ids;
  float *biases;
  size_t counts[3];
  if (!arguments_of(env, info, values, 4) || !external(env, values[0], (void **)&s) ||
      !array(env, values[1], float64_array, (void **)&numbers, &counts[0]) || counts[0] != sampler_numbers ||
      !array(env, values[2], uint32_array, (void **)&ids, &counts[1]) ||
      !array(env, values[3], float32_array, (void **)&biases, &counts[2]) || counts[1] != counts[2])
    return wrong(env);
  bool had_dist = s->dist_of != NULL && s->seed == (uint32_t)numbers[4];
  s->temperature = (float)numbers[0];
  s->top_k = (int32_t)numbers[1];
  s->top_p = (float)numbers[2];
  s->min_p = (float)numbers[3];
  s->seed = (uint32_t)numbers[4];
  void **all[] = {&s->greedy_of, &s->top_k_of, &s->top_p_of, &s->min_p_of, &s->temperature_of};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) release(all[i]);
  s->greedy_of = llama.greedy();
  s->top_k_of = llama.top_k(s->top_k);
  s->top_p_of = s->top_p < 1 ? llama.top_p(s->top_p, 1) : NULL;
  s->min_p_of = s->min_p > 0 ? llama.min_p(s->min_p, 1) : NULL;
  s->temperature_of = llama.temperature(s->temperature);
  /* The random state is kept while the seed stays the same. */
  if (!had_dist) {
    release(&s->dist_of);
    s->dist_of = llama.dist(s->seed);
  }
  free(s->bias_ids);
  free(s->bias_values);
  s->biases = counts[1];
  s->bias_ids = malloc(counts[1] * sizeof *ids + 1);
  s->bias_values = malloc(counts[1] * sizeof *biases + 1);
  if (s->bias_ids == NULL || s->bias_values == NULL) abort();
  memcpy(s->bias_ids, ids, counts[1] * sizeof *ids);
  memcpy(s->bias_values, biases, counts[1] * sizeof *biases);
  s->is_configured = true;
  return NULL;
}

/* Reads the arguments that the three ways of choosing have in common: context, place of the logits, sampler. */
static const float *begin_choice(
  napi_env env, napi_callback_info info, napi_value *values, size_t count, struct sampler **s, size_t *size) {
  struct context *context;
  int32_t place;
  if (!arguments_of(env, info, values, count) || !external(env, values[0], (void **)&context) ||
      napi_get_value_int32(env, values[1], &place) != 0 || !external(env, values[2], (void **)s) || !(*s)->is_configured) {
    wrong(env);
    return NULL;
  }
  *size = context->vocabulary_size;
  const float *logits = logits_at(*s, context, place);
  if (logits == NULL) napi_throw_error(env, NULL, "there are no logits");
  return logits;
}

/* sample(context, place, sampler): -1 if there is no token. */
static napi_value js_sample(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  struct sampler *s;
  size_t size;
  const float *logits = begin_choice(env, info, values, 3, &s, &size);
  if (logits == NULL) return NULL;
  size_t wanted = s->temperature <= 0 ? 1 : s->top_k > 0 ? (size_t)s->top_k : size;
  struct candidates found = gather(s, logits, size, wanted);
  return number(env, choose(s, &found));
}

/* sampleAmong(context, place, sampler, ids) */
static napi_value js_sample_among(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  struct sampler *s;
  size_t size, count;
  uint32_t *ids;
  const float *logits = begin_choice(env, info, values, 4, &s, &size);
  if (logits == NULL) return NULL;
  if (!array(env, values[3], uint32_array, (void **)&ids, &count) || count > size) return wrong(env);
  struct candidates found = {s->data, 0, -1, false};
  for (size_t i = 0; i < count; i++)
    if (ids[i] < size) found.data[found.size++] = (struct candidate){(int32_t)ids[i], logits[ids[i]], 0};
  return number(env, choose(s, &found));
}

/* sampleAllowed(context, place, sampler, grammar): among the likeliest tokens. -1: none of them may come; -2: it takes too long. */
static napi_value js_sample_allowed(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  struct sampler *s;
  size_t size;
  void *grammar;
  const float *logits = begin_choice(env, info, values, 4, &s, &size);
  if (logits == NULL) return NULL;
  if (!external(env, values[3], &grammar)) return wrong(env);
  struct candidates found = gather(s, logits, size, likeliest);
  if (!hold_to_grammar(grammar, found.data, found.size)) return number(env, -2);
  size_t left = 0;
  for (size_t i = 0; i < found.size; i++)
    if (found.data[i].logit > -INFINITY) found.data[left++] = found.data[i];
  found.size = left;
  return number(env, choose(s, &found));
}

/* allowed(grammar, ids, answers): writes 1 in the place of each token that may come, else 0. False: it takes too long. */
static napi_value js_allowed(napi_env env, napi_callback_info info) {
  napi_value values[arguments_max];
  void *grammar;
  uint32_t *ids;
  uint8_t *answers;
  size_t count, room;
  if (!arguments_of(env, info, values, 3) || !external(env, values[0], &grammar) ||
      !array(env, values[1], uint32_array, (void **)&ids, &count) ||
      !array(env, values[2], uint8_array, (void **)&answers, &room) || room < count)
    return wrong(env);
  struct candidate *asked = malloc(count * sizeof *asked + 1);
  if (asked == NULL) return wrong(env);
  for (size_t i = 0; i < count; i++) asked[i] = (struct candidate){(int32_t)ids[i], 1, 0};
  bool is_answered = hold_to_grammar(grammar, asked, count);
  for (size_t i = 0; i < count; i++) answers[i] = asked[i].logit > -INFINITY;
  free(asked);
  return boolean(env, is_answered);
}

napi_value napi_register_module_v1(napi_env env, napi_value exports) {
  static const struct {
    const char *name;
    napi_callback call;
  } all[] = {
    {"context", js_context},
    {"grammar", js_grammar},
    {"decode", js_decode},
    {"sampler", js_sampler},
    {"configure", js_configure},
    {"sample", js_sample},
    {"sampleAmong", js_sample_among},
    {"sampleAllowed", js_sample_allowed},
    {"allowed", js_allowed},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    napi_value made;
    if (napi_create_function(env, all[i].name, (size_t)-1, all[i].call, NULL, &made) != 0) return exports;
    napi_set_named_property(env, exports, all[i].name, made);
  }
  return exports;
}
