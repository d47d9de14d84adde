// A program that never said `using namespace std;` because Rambrain's headers did, and that has globals of names which the
// standard took later.
#include "rambrain/managedPtr.h"
using namespace rambrain;

managedPtr<double> data(1024, 1.);
unsigned int size = 1024;
typedef unsigned char byte;

int main() {
  vector<string> words;
  map<string, int> count;
  words.push_back("swap");
  ++count[words[0]];
  byte b = 1;
  double sum = 0;
  {
    ADHERETOLOC(double, data, values);
    for (unsigned int i = 0; i < size; ++i) sum += values[i] * b;
  }
  cout << words[0] << " " << to_string(count["swap"]) << " " << max(sum, 1.) << endl;
  ofstream nowhere("/dev/null");
  nowhere << sum << endl;
  return sum != 1024;
}
