#!/bin/sh
# errors_kept.sh COMMAND...: becomes the command; what it says on standard error goes into expect.sh's report. mpiexec may end, when a rank
# does so in another way than MPI_Finalize, before it has passed on what that rank has said.
exec "$@" 2>>"$RAMSPAN_TEST_REPORT"
