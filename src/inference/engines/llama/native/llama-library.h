/*
 * Finds the libllama that node-llama-cpp's addon is linked with. Its functions are looked up when needed, so nothing of llama.cpp is
 * compiled in.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>

/* glibc 2.34 added newer versions of these; a build on a new system would require those and fail on an old one. */
#if defined(__x86_64__) && defined(__GLIBC__)
__asm__(".symver dlopen, dlopen@GLIBC_2.2.5");
__asm__(".symver dlsym, dlsym@GLIBC_2.2.5");
#elif defined(__aarch64__) && defined(__GLIBC__)
__asm__(".symver dlopen, dlopen@GLIBC_2.17");
__asm__(".symver dlsym, dlsym@GLIBC_2.17");
#endif

static int note_llama(struct dl_phdr_info *info, size_t size, void *path) {
  (void)size;
  const char *slash = strrchr(info->dlpi_name, '/');
  const char *name = slash == NULL ? info->dlpi_name : slash + 1;
  if (strncmp(name, "libllama.", 9) != 0 || strlen(info->dlpi_name) >= 4096) return 0;
  strcpy(path, info->dlpi_name);
  return 1;
}

static void *llama_library(void) {
  char path[4096] = "";
  dl_iterate_phdr(note_llama, path);
  void *library = path[0] == 0 ? NULL : dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  /* The addon is linked with it, so it must be there. */
  if (library == NULL) abort();
  return library;
}
