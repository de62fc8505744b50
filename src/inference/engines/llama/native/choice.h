/* Called by `kept-threads.c` when a context is freed. */
__attribute__((visibility("hidden"))) void forget_context(void *context);
