// arXiv 1510.06358, listing 3: the inline features. As printed, but for missing semicolons and for names that the paper
// uses twice; checks stand behind.
#include <cstdio>

#include "rambrain/managedPtr.h"
using namespace rambrain;

int errors = 0;
#define CHECK(x) if (!(x)) { printf("line %d: %s\n", __LINE__, #x); ++errors; }

int constructed_default = 0, constructed_with = 0, destructed = 0;

class B {
public:
    B();
    B(double &a, double &b);
    ~B();
    void someFunction();
    managedPtr<double> data;
}; //Class with constructors

B::B() : data(1) { ++constructed_default; }
B::B(double &a, double &b) : data(2, a + b) { ++constructed_with; }
B::~B() { ++destructed; }

void B::someFunction() {
    ADHERETO(double, data); //shadows member B::data
    data[0] = 42.;
}

void features() {
  double a = 1.5, b = 2.5;
  managedPtr<double> a1; //single element
  managedPtr<double> a2(5); //array of five elements
  managedPtr<double> a3(5,1.); //five elements, all set to 1.
  managedPtr<double,2> a4(5,3,1.); //the journal paper's: two dimensions

  managedPtr<B> b1; //single element, default constructor
  managedPtr<B> b2(1); //single element, default constructor
  managedPtr<B> b3(1,a,b); //single element, calling parametrized constructor
  managedPtr<B> b4(5,a,b); //5 elements, calling parametrized constructor
  CHECK(constructed_default == 2);
  CHECK(constructed_with == 6);

  adhereTo<double> glue1(a1); //Load right away
  adhereTo<double> glue2(a2,false); // Load when used
  const adhereTo<double> glue3(a3); // Access const

  double * c1=glue1;
  double * c2=glue2; //If not present, will be fetched here
  const double *c3 = glue3;
  c1[0] = 7;
  c2[4] = 8;
  for (int i = 0; i < 5; ++i) CHECK(c3[i] == 1.);

  // same as adhereTo<double> a1_glue(a1); double * a1data = a1_glue;
  {
    ADHERETOLOC(double, a1, a1data);
    CHECK(a1data == c1 && a1data[0] == 7);
  }
  {
    ADHERETOLOCCONST(double, a2, a2data);
    CHECK(a2data[4] == 8);
  }
  for (int i = 0; i < 5; ++i) {
    const adhereTo<double> row_glue(a4[i]); const double* row = row_glue;
    CHECK(row[0] == 1. && row[2] == 1.);
  }
  {
    ADHERETOLOC(B, b4, objects);
    for (int i = 0; i < 5; ++i) {
      {
        const adhereTo<double> values_glue(objects[i].data); const double* values = values_glue;
        CHECK(values[0] == 4. && values[1] == 4.);
      }
      objects[i].someFunction();
      const adhereTo<double> values_glue(objects[i].data); const double* values = values_glue;
      CHECK(values[0] == 42.);
    }
  }

  //Multithreading: Do not fail if too much memory is requested:
  managedMemory::defaultManager->setOutOfSwapIsFatal(false);
  //Multithreading: Avoid deadlock when needing multiple data at once:
  double *c5,*c6;
  adhereTo<double> c5_glue(a1),c6_glue(a2);
  {LISTOFINGREDIENTS
  c5 = c5_glue;
  c6 = c6_glue;
  }
  CHECK(c5[0] == 7 && c6[4] == 8);
}

int main() {
  features();
  CHECK(destructed == 8);
  return errors != 0;
}
