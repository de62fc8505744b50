/* What `kept-threads.c` tells of a context. */
__attribute__((visibility("hidden"))) void forget_context(void *context);
