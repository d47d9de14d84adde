# Sourced by ./demo and ./check.
# Makes sure that the packages of packages.txt are there. Needs $root, the source folder.
# Installs with apt-get when root or when sudo asks for no password; else says what to install and ends with status 2.
ramspan_setup() {
  local wanted missing=() package sudo=""
  wanted=$(sed 's/#.*//' "$root/packages.txt")
  for package in $wanted; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return 0
  if [ "$(id -u)" -ne 0 ]; then
    if sudo -n true 2>/dev/null; then
      sudo="sudo"
    else
      echo "Missing packages. As an administrator: sudo apt-get install ${missing[*]}" >&2
      exit 2
    fi
  fi
  echo "installing: ${missing[*]}"
  local log
  log=$(mktemp)
  if ! { $sudo apt-get update && $sudo env DEBIAN_FRONTEND=noninteractive \
         apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
    tail -20 "$log" >&2
    rm -f "$log"
    echo "apt-get could not install: ${missing[*]}" >&2
    exit 2
  fi
  rm -f "$log"
}

# ramspan_build PRESET [TARGET...]: configures and builds in the working folder. A build folder that exists keeps its generator, which
# CMake cannot change: `cmake -S . -B build` may have chosen another one than the presets do.
ramspan_build() {
  local preset=$1 folder=build generator
  shift
  [ "$preset" = release ] || folder=build-$preset
  generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$folder/CMakeCache.txt" 2>/dev/null)
  cmake --preset "$preset" ${generator:+-G "$generator"} || {
    [ ! -e "$folder/CMakeCache.txt" ] || echo "If CMake complains of what was used previously: rm -r $folder" >&2
    return 1
  }
  cmake --build --preset "$preset" -j "$(nproc)" ${1:+--target "$@"}
}
