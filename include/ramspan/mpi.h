// <ramspan/mpi.h> replaces <mpi.h> in MPI programs that use Ramspan. Some ranks of the job may be memory servers; with
// this header the program sees only its own ranks, the compute ranks:
//
//   MPI_COMM_WORLD   means ramspan::computeComm(), ordered as started
//   MPI_Init, MPI_Init_thread   obtain MPI_THREAD_MULTIPLE whatever was asked for, and meet the memory servers
//   MPI_Finalize     empties Ramspan's use of the servers, leaves them, and finalises MPI
//
// Include it in every file of the program that names MPI_COMM_WORLD, after no other header that includes <mpi.h> and
// uses that name in its own inline code. -DRAMSPAN_NO_MPI_MACROS switches the replacing off: the program then calls
// computeComm() itself, and asks MPI_Init_thread for MPI_THREAD_MULTIPLE. Functions are safe from any thread once MPI
// is initialised. A job without memory servers behaves as if this were <mpi.h>.
#pragma once

#if !__has_include(<mpi.h>)
#error "<mpi.h> is not found: compile by mpicxx, with `pkg-config ramspan-mpi`, or with CMake's ramspan::mpi"
#include <the-mpi.h-of-MPICH>  // there is none: the compiler stops here, before a page of errors that follow from it
#endif
#include <mpi.h>

namespace ramspan {

// The communicator of the compute ranks. Valid from MPI_Init to MPI_Finalize; the library owns it, never free it.
// Collective in one case: where the program has called the real MPI_Init by itself, the first use of Ramspan on each
// rank (this call or the first managedPtr) meets the servers, and every compute rank must get there.
// Throws ConfigError before MPI_Init in a job with memory servers (without any it is the real MPI_COMM_WORLD).
MPI_Comm computeComm();

namespace detail {
// What the macros below name. They return MPI_SUCCESS, or end the job with a message as MPI_Init does by default.
int MpiInit(int* argc, char*** argv);
int MpiInitThread(int* argc, char*** argv, int required, int* provided);
int MpiFinalize();
}  // namespace detail

}  // namespace ramspan

#ifndef RAMSPAN_NO_MPI_MACROS
#undef MPI_COMM_WORLD
#define MPI_COMM_WORLD (::ramspan::computeComm())
#define MPI_Init(argc, argv) ::ramspan::detail::MpiInit((argc), (argv))
#define MPI_Init_thread(argc, argv, required, provided) \
  ::ramspan::detail::MpiInitThread((argc), (argv), (required), (provided))
#define MPI_Finalize() ::ramspan::detail::MpiFinalize()
#endif
