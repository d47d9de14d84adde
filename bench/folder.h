// A folder of one run of the benchmark, gone with its object: a servers' secret, scripts. Thread-safety: none needed.
#pragma once

#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <system_error>

namespace ramspan::bench {

class Folder {
 public:
  // Throws std::runtime_error.
  Folder() : path_((std::filesystem::temp_directory_path() / "ramspan-bench-XXXXXX").string()) {
    if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("cannot make a folder " + path_ + ": " + std::strerror(errno));
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  std::string Script(const std::string& name, const std::string& text) const {
    std::ofstream(Path(name)) << "#!/bin/sh\n" << text;
    chmod(Path(name).c_str(), 0700);
    return Path(name);
  }

 private:
  std::string path_;
};

}  // namespace ramspan::bench
