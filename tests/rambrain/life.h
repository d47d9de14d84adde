// Runs the program of life_program.cc in a folder of its own and returns what it printed.
#pragma once

#include <stdlib.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

struct Life {
  std::string out;
  std::string log;  // rambrain-swapstats.log
  int status = 0;

  explicit Life(const std::string& life, const std::string& environment = "") {
    char name[] = "/tmp/rambrain-life-XXXXXX";
    const std::string folder = mkdtemp(name);
    // The program forgets on purpose, so no leak is reported.
    const std::string command = "cd " + folder + " && env ASAN_OPTIONS=detect_leaks=0 RAMSPAN_MEMORY=4MiB " + environment + " " LIFE_PROGRAM " " + life;
    std::FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    while (const size_t n = std::fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
    status = pclose(pipe);
    std::stringstream text;
    text << std::ifstream(folder + "/rambrain-swapstats.log").rdbuf();
    log = text.str();
    std::filesystem::remove_all(folder);
  }
};

inline std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}
