/*
 * Keeps the threads of llama.cpp between two steps. Without a pool, and built without OpenMP as node-llama-cpp's binaries are, it starts
 * and joins its threads at each step, which takes as long as a step of a small model with one more thread
 * (docs/decisions/042-embedded-speed.md). The functions for a pool are public (llama.h, ggml-cpu.h), but the addon does not call them.
 *
 * This library is loaded first and globally (RTLD_GLOBAL), so that the addon's calls of the two functions below arrive here and are passed
 * on to llama.cpp. All other symbols are looked up when needed, so nothing of llama.cpp or Node is compiled in. Linux only: other systems
 * bind a call to the library that it was linked with.
 */
#include "choice.h"
#include "llama-library.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

enum { threads_max = 512 /* GGML_MAX_N_THREADS */, device_type_cpu = 0 /* GGML_BACKEND_DEVICE_TYPE_CPU */ };

/* ggml_threadpool_params (ggml.h), with room for members of later releases. */
struct params {
  bool cpumask[threads_max];
  int n_threads;
  int prio;
  uint32_t poll;
  bool strict_cpu;
  bool paused;
  char later[1024];
};

static struct {
  void (*set_n_threads)(void *context, int32_t threads, int32_t threads_batch);
  void (*free)(void *context);
  void (*attach)(void *context, void *pool, void *pool_batch);
  void (*detach)(void *context);
  void (*init_params)(struct params *, int threads);
  void *(*new_pool)(struct params *);
  void (*free_pool)(void *pool);
} llama;

/* Pools of contexts that ever stepped with more than one thread. */
struct pool {
  void *context;
  void *pool;
  int32_t threads;
  struct pool *next;
};
static struct pool *pools;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void find_functions(void) {
  void *library = llama_library();
  llama.set_n_threads = dlsym(library, "llama_set_n_threads");
  llama.free = dlsym(library, "llama_free");
  llama.attach = dlsym(library, "llama_attach_threadpool");
  llama.detach = dlsym(library, "llama_detach_threadpool");
  llama.init_params = dlsym(library, "ggml_threadpool_params_init");
  /* The CPU backend is a separate library, chosen by the processor's features. */
  void *(*device_by_type)(int) = dlsym(library, "ggml_backend_dev_by_type");
  void *(*registry_of)(void *) = dlsym(library, "ggml_backend_dev_backend_reg");
  void *(*address)(void *, const char *) = dlsym(library, "ggml_backend_reg_get_proc_address");
  void *cpu = device_by_type && registry_of && address ? device_by_type(device_type_cpu) : NULL;
  if (cpu == NULL) return;
  llama.new_pool = address(registry_of(cpu), "ggml_threadpool_new");
  llama.free_pool = address(registry_of(cpu), "ggml_threadpool_free");
}

static bool has_pools(void) {
  return llama.attach && llama.detach && llama.init_params && llama.new_pool && llama.free_pool;
}

/*
 * Returns a pool. A context that needs more threads gets another pool and keeps the old one, which llama.cpp still pauses when it takes the
 * new one.
 */
static void *pool_of(void *context, int32_t threads) {
  for (struct pool *each = pools; each != NULL; each = each->next)
    if (each->context == context && each->threads >= threads) return each->pool;
  struct pool *added = calloc(1, sizeof *added);
  if (added == NULL) return NULL;
  struct params params;
  memset(&params, 0, sizeof params);
  llama.init_params(&params, threads);
  /* Threads spin for some milliseconds before they sleep, waiting for the next step: waking them takes a tenth of a short step. */
  params.poll = 1;
  added->pool = llama.new_pool(&params);
  if (added->pool == NULL) {
    free(added);
    return NULL;
  }
  added->context = context;
  added->threads = threads;
  added->next = pools;
  pools = added;
  return added->pool;
}

/* Called between two steps. A step of one thread needs no pool, whose other threads would be woken for nothing. */
void llama_set_n_threads(void *context, int32_t threads, int32_t threads_batch) {
  pthread_mutex_lock(&lock);
  if (llama.set_n_threads == NULL) find_functions();
  llama.set_n_threads(context, threads, threads_batch);
  int32_t most = threads > threads_batch ? threads : threads_batch;
  if (has_pools()) {
    llama.detach(context);
    void *pool = most > 1 && most <= threads_max ? pool_of(context, most) : NULL;
    if (pool != NULL) llama.attach(context, pool, pool);
  }
  pthread_mutex_unlock(&lock);
}

/* The context's threads end after the context. */
void llama_free(void *context) {
  pthread_mutex_lock(&lock);
  if (llama.set_n_threads == NULL) find_functions();
  struct pool *own = NULL;
  for (struct pool **place = &pools; *place != NULL;) {
    struct pool *each = *place;
    if (each->context == context) {
      *place = each->next;
      each->next = own;
      own = each;
    } else {
      place = &each->next;
    }
  }
  pthread_mutex_unlock(&lock);
  forget_context(context);
  llama.free(context);
  while (own != NULL) {
    struct pool *next = own->next;
    llama.free_pool(own->pool);
    free(own);
    own = next;
  }
}
