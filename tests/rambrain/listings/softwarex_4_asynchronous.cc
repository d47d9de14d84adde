// SoftwareX 2017, listing 4: explicit asynchronous access.
#include <cstdio>

#include "rambrain/managedPtr.h"
using namespace rambrain;

void do_something_on_data(double* p) { p[1023] = 1; }
void do_something_on_data2(double* p) { p[0] = 2; }

int main() {
  managedPtr<double> data(1024),
                     data2(1024);
  {
    adhereTo<double> glue(data);
    adhereTo<double> glue2(data2);
    double* ptr = glue;
    do_something_on_data(ptr);
    double* ptr2 = glue2;
    do_something_on_data2(ptr2);
  }
  { const managedPtr<double>& member = data; ADHERETOLOCCONST(double, member, first); if (!(first[1023] == 1 && first[0] == 0)) return 1; }
  ADHERETOLOCCONST(double, data2, second);
  return second[0] != 2;
}
