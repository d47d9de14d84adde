/* malloc and its relatives over ramspan/pages.h, for C and for Fortran's iso_c_binding. Small requests are malloc's; rs_free takes both.
   rs_realloc and rs_free take what ramspan::AllocatePages has given, too; blocks only change their addresses then, and nothing is copied.
   Null with errno ENOMEM where Ramspan cannot give the memory; the reason is on standard error, once. */
#ifndef RAMSPAN_RS_MALLOC_H
#define RAMSPAN_RS_MALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

void* rs_malloc(size_t bytes);
void* rs_calloc(size_t count, size_t bytes);
void* rs_realloc(void* begin, size_t bytes);
void* rs_aligned_alloc(size_t alignment, size_t bytes);
void rs_free(void* begin);

#ifdef __cplusplus
}
#endif

#endif
