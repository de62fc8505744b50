/*
 * The part of Node-API (node_api.h) that is used. Node itself exports its functions, and the interface is stable, so Node's headers are not
 * needed.
 */
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
typedef void (*napi_finalize)(napi_env, void *data, void *hint);
/* 0: success. */
typedef int napi_status;

napi_status napi_get_cb_info(napi_env, napi_callback_info, size_t *count, napi_value *arguments, napi_value *self, void **data);
napi_status napi_create_function(napi_env, const char *name, size_t length, napi_callback, void *data, napi_value *result);
napi_status napi_set_named_property(napi_env, napi_value object, const char *name, napi_value value);
napi_status napi_create_external(napi_env, void *data, napi_finalize, void *hint, napi_value *result);
napi_status napi_get_value_external(napi_env, napi_value, void **result);
napi_status napi_create_int32(napi_env, int32_t, napi_value *result);
napi_status napi_get_value_int32(napi_env, napi_value, int32_t *result);
napi_status napi_get_value_double(napi_env, napi_value, double *result);
napi_status napi_get_boolean(napi_env, bool, napi_value *result);
napi_status napi_get_typedarray_info(
  napi_env, napi_value, int *type, size_t *length, void **data, napi_value *buffer, size_t *offset);
napi_status napi_throw_error(napi_env, const char *code, const char *message);

/* napi_typedarray_type */
enum { uint8_array = 1, int32_array = 5, uint32_array = 6, float32_array = 7, float64_array = 8 };
