// arXiv 1510.06358, listing 4: implicitly asynchronous loading; 16 MiB in 4 MiB of memory.
#include <cstdio>

#include "rambrain/managedPtr.h"
using namespace rambrain;

int main() {
  const int bytesize = 16384, load = 10;
  unsigned int numel = 1024;
  managedPtr<managedPtr<char>> arr ( numel, bytesize );
  ADHERETOLOC ( managedPtr<char>, arr, ptr );

  float rewritetimes = ( float ) load / 100.;
  int iterations = 10230;

  for ( int i = 0; i < iterations; ++i ) {
    unsigned int use = ( i % numel );
    //AdhereTo
    adhereTo<char> glue ( ptr[use] );
    //Glue to the object:
    char *loc = glue;

    //Produce some computational load
    for ( int r = 0; r < rewritetimes * bytesize; r++ ) {
        loc[r % bytesize] = r * i;
    }
  }

  int wrong = 0;
  for ( int i = iterations - numel; i < iterations; ++i ) {
    const adhereTo<char> loc_glue(ptr[i % numel]); const char* loc = loc_glue;
    for ( int r = 0; r < rewritetimes * bytesize; r++ ) wrong += loc[r] != ( char ) ( r * i );
  }
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
