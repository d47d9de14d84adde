// hydro_original.cc out of core: lines marked (*) differ. A Lagrangian gas in one dimension (von Neumann and Richtmyer): a class of vectors behind accessors, and loops that use many of them at once.
// usage: hydro [cells] [steps]
#include <ramspan/lockstep.h>  // (*)
#include <ramspan/managed_vector.h>  // (*)

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>

class Mesh {
 public:
  explicit Mesh(size_t cells) : x_(cells + 1), v_(cells + 1), mass_(cells), rho_(cells), energy_(cells), pressure_(cells), viscosity_(cells) {}
  size_t cells() const { return rho_.size(); }
  auto x(size_t i) { return x_[i]; }  // (*)
  auto v(size_t i) { return v_[i]; }  // (*)
  auto mass(size_t i) { return mass_[i]; }  // (*)
  auto rho(size_t i) { return rho_[i]; }  // (*)
  auto energy(size_t i) { return energy_[i]; }  // (*)
  auto pressure(size_t i) { return pressure_[i]; }  // (*)
  auto viscosity(size_t i) { return viscosity_[i]; }  // (*)

 public:  // (*) to loops
  ramspan::managedVector<double> x_, v_;  // (*) of nodes
  ramspan::managedVector<double> mass_, rho_, energy_, pressure_, viscosity_;  // (*)
};

constexpr double kGamma = 1.4;

void Start(Mesh& mesh) {
  const size_t n = mesh.cells();
  for (size_t i = 0; i <= n; ++i) {
    mesh.x(i) = static_cast<double>(i) / static_cast<double>(n);
    mesh.v(i) = 0;
  }
  for (size_t i = 0; i < n; ++i) {
    mesh.rho(i) = i < n / 2 ? 1 : 0.125;
    mesh.mass(i) = mesh.rho(i) / static_cast<double>(n);
    mesh.pressure(i) = i < n / 2 ? 1 : 0.1;
    mesh.energy(i) = mesh.pressure(i) / ((kGamma - 1) * mesh.rho(i));
    mesh.viscosity(i) = 0;
  }
}

void Accelerate(Mesh& mesh, double dt) {
  parallelFor(lockstep({1, mesh.cells(), 1}, mesh.v_, std::as_const(mesh.pressure_), std::as_const(mesh.viscosity_), std::as_const(mesh.mass_)), [dt](auto& part) {  // (*)
    auto& [first, end, v, pressure, viscosity, mass] = part;  // (*)
    for (size_t i = first; i < end; ++i) {  // (*)
      const double force = pressure[i - 1] + viscosity[i - 1] - pressure[i] - viscosity[i];  // (*)
      v[i] += dt * force / (0.5 * (mass[i - 1] + mass[i]));  // (*)
    }
  });  // (*)
}

void Move(Mesh& mesh, double dt) {
  parallelFor(lockstep({0, mesh.cells() + 1}, mesh.x_, std::as_const(mesh.v_)), [dt](auto& part) {  // (*)
    auto& [first, end, x, v] = part;  // (*)
    for (size_t i = first; i < end; ++i) x[i] += dt * v[i];  // (*)
  });  // (*)
}

void Update(Mesh& mesh, double dt) {
  parallelFor(lockstep({0, mesh.cells(), 1}, std::as_const(mesh.x_), std::as_const(mesh.v_), std::as_const(mesh.mass_), mesh.rho_, mesh.energy_, mesh.pressure_, mesh.viscosity_), [dt](auto& part) {  // (*)
    auto& [first, end, x, v, mass, rho, energy, pressure, viscosity] = part;  // (*)
    for (size_t i = first; i < end; ++i) {  // (*)
      const double squeeze = v[i] - v[i + 1], width = x[i + 1] - x[i];  // (*)
      energy[i] -= dt * (pressure[i] + viscosity[i]) * -squeeze / mass[i];  // (*)
      rho[i] = mass[i] / width;  // (*)
      viscosity[i] = squeeze > 0 ? 2 * rho[i] * squeeze * squeeze : 0;  // (*)
      pressure[i] = (kGamma - 1) * rho[i] * energy[i];  // (*)
    }
  });  // (*)
}

int main(int argc, char** argv) {
  const size_t cells = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1500000;
  const int steps = argc > 2 ? std::atoi(argv[2]) : 30;
  Mesh mesh(cells);
  Start(mesh);
  const double dt = 0.2 / static_cast<double>(cells);
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < steps; ++step) {
    Accelerate(mesh, dt);
    Move(mesh, dt);
    Update(mesh, dt);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  double energy = 0;
  for (size_t i = 0; i < cells; ++i) energy += mesh.mass(i) * mesh.energy(i);
  std::printf("%.12g\n", energy);
  std::fprintf(stderr, "%.3f s\n", seconds);
}
