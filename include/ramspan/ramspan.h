// All of Ramspan at once, but for <ramspan/mpi.h>, which stands for <mpi.h>. Who includes the headers that a file needs (managed_ptr.h,
// adhere_to.h, managed_vector.h, ...) compiles faster.
#pragma once

#include "ramspan/adhere_all.h"
#include "ramspan/adhere_to.h"
#include "ramspan/advice.h"
#include "ramspan/blocked_array.h"
#include "ramspan/errors.h"
#include "ramspan/extend.h"
#include "ramspan/lockstep.h"
#include "ramspan/loops.h"
#include "ramspan/managed_array.h"
#include "ramspan/managed_ptr.h"
#include "ramspan/managed_vector.h"
#include "ramspan/mapped_file.h"
#include "ramspan/options.h"
#include "ramspan/pages.h"
#include "ramspan/pinned_span.h"
#include "ramspan/rs_malloc.h"
#include "ramspan/runtime.h"
#include "ramspan/vector_span.h"
#include "ramspan/vector_view.h"
