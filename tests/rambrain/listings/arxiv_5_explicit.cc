// arXiv 1510.06358, listing 5: explicitly asynchronous loading. As printed (but for a stray slash), down to the adhereTo
// that it forgets at the end.
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

  adhereTo <char> *adharr[numel]; //Array to store adhereTos
  adharr[0] = new adhereTo<char> ( ptr[0] ); // Prepare first

  for ( int i = 0; i < iterations; ++i ) {
    unsigned int use = ( i % numel );
    unsigned int prepare = ( ( i + 1 ) % numel );

    //AdhereTo next one
    adharr[prepare] = new adhereTo<char> ( ptr[prepare] );
    //Glue to current object:
    char *loc = *adharr[use];
    //Produce some computational load
    for ( int r = 0; r < rewritetimes * bytesize; r++ ) {
        loc[r % bytesize] = r * i;
    }

    //remove glue
    delete adharr[use];
  }

  int wrong = 0;
  for ( int i = iterations - numel; i < iterations; ++i ) {
    const adhereTo<char> loc_glue(ptr[i % numel]); const char* loc = loc_glue;
    for ( int r = 0; r < rewritetimes * bytesize; r++ ) wrong += loc[r] != ( char ) ( r * i );
  }
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
