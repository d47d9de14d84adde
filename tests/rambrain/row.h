// ADHERETOLOC pastes the name of its managedPtr, as Rambrain's did, so it takes no expression. These do.
#pragma once

#include "rambrain/managedPtr.h"

#define ROW(type, expression, local)                \
  ::rambrain::adhereTo<type> local##_row(expression); \
  type* local = local##_row
#define ROWCONST(type, expression, local)                 \
  const ::rambrain::adhereTo<type> local##_row(expression); \
  const type* local = local##_row
