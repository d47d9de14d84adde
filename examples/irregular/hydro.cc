// hydro_original.cc out of core: lines marked (*) differ. A Lagrangian gas in one dimension (von Neumann and Richtmyer): a class of vectors behind accessors, and loops that use many of them at once.
// usage: hydro [cells] [steps]
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

 private:
  friend class MeshView;  // (*)
  ramspan::managedVector<double> x_, v_;  // (*) of nodes
  ramspan::managedVector<double> mass_, rho_, energy_, pressure_, viscosity_;  // (*)
};

// What loops use in place of the mesh: the same accessors, of which each goes through a view.
class MeshView {  // (*) and all of it
 public:
  explicit MeshView(Mesh& m)
      : x_(m.x_.view()), v_(m.v_.view()), mass_(m.mass_.cview()), rho_(m.rho_.view()), energy_(m.energy_.view()), pressure_(m.pressure_.view()), viscosity_(m.viscosity_.view()) {}
  size_t cells() const { return rho_.size(); }
  double& x(size_t i) const { return x_[i]; }
  double& v(size_t i) const { return v_[i]; }
  double mass(size_t i) const { return mass_[i]; }
  double& rho(size_t i) const { return rho_[i]; }
  double& energy(size_t i) const { return energy_[i]; }
  double& pressure(size_t i) const { return pressure_[i]; }
  double& viscosity(size_t i) const { return viscosity_[i]; }

 private:
  ramspan::vectorView<double> x_, v_;
  ramspan::vectorView<const double> mass_;
  ramspan::vectorView<double> rho_, energy_, pressure_, viscosity_;
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
#pragma omp parallel
  {
    MeshView m(mesh);  // (*)
#pragma omp for schedule(static) nowait
    for (size_t i = 1; i < m.cells(); ++i) {
      const double force = m.pressure(i - 1) + m.viscosity(i - 1) - m.pressure(i) - m.viscosity(i);
      m.v(i) += dt * force / (0.5 * (m.mass(i - 1) + m.mass(i)));
    }
  }
}

void Move(Mesh& mesh, double dt) {
#pragma omp parallel
  {
    MeshView m(mesh);  // (*)
#pragma omp for schedule(static) nowait
    for (size_t i = 0; i <= m.cells(); ++i) m.x(i) += dt * m.v(i);
  }
}

void Update(Mesh& mesh, double dt) {
#pragma omp parallel
  {
    MeshView m(mesh);  // (*)
#pragma omp for schedule(static) nowait
    for (size_t i = 0; i < m.cells(); ++i) {
      const double squeeze = m.v(i) - m.v(i + 1), width = m.x(i + 1) - m.x(i);
      m.energy(i) -= dt * (m.pressure(i) + m.viscosity(i)) * -squeeze / m.mass(i);
      m.rho(i) = m.mass(i) / width;
      m.viscosity(i) = squeeze > 0 ? 2 * m.rho(i) * squeeze * squeeze : 0;
      m.pressure(i) = (kGamma - 1) * m.rho(i) * m.energy(i);
    }
  }
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
