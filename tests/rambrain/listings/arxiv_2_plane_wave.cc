// arXiv 1510.06358, listing 2 (and SoftwareX, listing 2): a field of plane waves, 8 MiB in 4 MiB of memory. Line 8 of the
// paper lacks its semicolon; the rest is as printed.
#include <cmath>
#include <cstdio>

#include "rambrain/managedPtr.h"
using namespace rambrain;

int main() {
  double k_x=1.,k_y=1.; unsigned int x_max=1024 ,y_max=1024;

  managedPtr<double> *arr [x_max];
  for (int x=0;x<x_max;++x){
    arr[x] = new managedPtr<double>(y_max); //allocate rows
  }
  for (int x=0;x<x_max;++x){
     adhereTo<double> glue(arr[x]);
     double *line = glue;
     double xx = x / (double) x_max;
     for (int y=0;y<y_max;++y){
        double yy = y/(double) y_max;
        line[y] = sin((xx*k_x+yy*k_y)); //initialize field
     }
  }

  int wrong = 0;
  for (int x=0;x<x_max;++x){
     const adhereTo<double> glue(*arr[x]);
     const double *line = glue;
     for (int y=0;y<y_max;++y)
        if (line[y] != sin(x / (double) x_max * k_x + y / (double) y_max * k_y)) ++wrong;
  }
  if (managedMemory::defaultManager->getTotalSwappedOutBytes() == 0) ++wrong;  // nothing was swapped

  //do something and delete afterwards:
  for (int x=0;x<x_max;++x){
     delete arr[x]; //deallocate lines
  }
  printf("%d wrong\n", wrong);
  return wrong != 0;
}
