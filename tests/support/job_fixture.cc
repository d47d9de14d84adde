#include "tests/support/job_fixture.h"
#include "tests/support/send_signal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <thread>

namespace ramspan {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// Processes that end after the one that was waited for: moments; on a busy machine each of them waits for a core.
constexpr std::chrono::seconds kEndsMayTake{30};

void Redirect(int fd, const std::string& path, int flags) {
  const int opened = open(path.c_str(), flags, 0600);
  dup2(opened, fd);
  close(opened);
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> pids;
  std::error_code error;
  for (auto it = fs::directory_iterator("/proc", error); !error && it != fs::directory_iterator(); it.increment(error)) {
    const pid_t pid = static_cast<pid_t>(std::atol(it->path().filename().c_str()));
    if (pid > 0) pids.push_back(pid);
  }
  return pids;
}

}  // namespace

std::string ReadFile(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

namespace {

struct Stat {
  char state = 'X';
  pid_t parent = -1;
};
Stat StatOf(pid_t pid) {
  Stat stat;
  const std::string text = ReadFile("/proc/" + std::to_string(pid) + "/stat");
  const size_t name_end = text.rfind(')');
  if (name_end != std::string::npos) std::istringstream(text.substr(name_end + 1)) >> stat.state >> stat.parent;
  return stat;
}
bool IsRunning(pid_t pid) {
  const char state = StatOf(pid).state;
  return state != 'X' && state != 'Z';
}

}  // namespace

JobFixture::JobFixture() {
  std::string name = testing::TempDir() + "ramspan-test-XXXXXX";
  folder_ = mkdtemp(name.data());
  for (const char* part : {"bin", "home", "ready", "tmp"}) fs::create_directory(folder_ / part);
  marker_ = "RAMSPAN_TEST_JOB=" + folder_.filename().string();
  shm_before_ = SharedMemory();
}

JobFixture::~JobFixture() {
  ExpectNothingLeft();
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void JobFixture::SetChildEnvironment(const Words& environment) {
  Words foreign;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string name = std::string(*variable).substr(0, std::string(*variable).find('='));
    if (name.starts_with("RAMSPAN_") && !name.starts_with("RAMSPAN_TEST_")) foreign.push_back(name);
  }
  for (const std::string& name : foreign) unsetenv(name.c_str());
  setenv("HOME", (folder_ / "home").c_str(), 1);
  setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
  setenv("RAMSPAN_TEST_READY", (folder_ / "ready").c_str(), 1);
  setenv("RAMSPAN_TEST_JOB", folder_.filename().c_str(), 1);
  for (const std::string& one : environment) {
    const size_t equals = one.find('=');
    setenv(one.substr(0, equals).c_str(), one.substr(equals + 1).c_str(), 1);
  }
}

pid_t JobFixture::StartCommand(Words command, const Words& environment, const std::string& input) {
  const pid_t pid = fork();
  if (pid < 0) {
    std::perror("a test cannot start a process");
    std::abort();
  }
  if (pid > 0) return pid;
  setpgid(0, 0);
  // A shell that starts tests in the background lets them ignore ^C, and so would what they start.
  for (const int number : {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE}) signal(number, SIG_DFL);
  Redirect(STDIN_FILENO, input, O_RDONLY);
  Redirect(STDOUT_FILENO, (folder_ / "out").string(), O_WRONLY | O_CREAT | O_TRUNC);
  Redirect(STDERR_FILENO, (folder_ / "err").string(), O_WRONLY | O_CREAT | O_TRUNC);
  SetChildEnvironment(environment);
  std::vector<char*> argv;
  for (std::string& one : command) argv.push_back(one.data());
  argv.push_back(nullptr);
  execvp(argv[0], argv.data());
  _exit(126);
}

Outcome JobFixture::Wait(pid_t pid, std::chrono::seconds patience) {
  Outcome outcome;
  const auto begin = std::chrono::steady_clock::now(), deadline = begin + patience;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the job hangs; stderr: " << ReadFile(folder_ / "err");
      SendSignal(pid, SIGKILL);
    }
    std::this_thread::sleep_for(milliseconds(5));
  }
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.out = ReadFile(folder_ / "out");
  outcome.err = ReadFile(folder_ / "err");
  return outcome;
}

bool JobFixture::Becomes(const std::function<bool()>& condition, std::chrono::seconds patience) {
  for (const auto deadline = std::chrono::steady_clock::now() + patience; !condition();) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(milliseconds(5));
  }
  return true;
}

pid_t JobFixture::Ready(int rank) {
  const fs::path path = folder_ / "ready" / ("rank-" + std::to_string(rank));
  EXPECT_TRUE(Becomes([&] { return fs::exists(path); })) << ReadFile(folder_ / "err");
  return static_cast<pid_t>(std::atol(ReadFile(path).c_str()));
}

void JobFixture::ClearReady() {
  fs::remove_all(folder_ / "ready");
  fs::create_directory(folder_ / "ready");
}

std::set<pid_t> JobFixture::JobProcesses() {
  std::set<pid_t> found;
  std::map<pid_t, pid_t> parents;  // of those whose environment is empty: kernel threads, zombies, and in an exec
  for (pid_t pid : AllProcesses()) {
    const std::string environment = ReadFile("/proc/" + std::to_string(pid) + "/environ");
    if (environment.find(marker_) != std::string::npos) found.insert(pid);
    if (environment.empty() && IsRunning(pid)) parents[pid] = ParentOf(pid);
  }
  for (size_t before = 0; before != found.size();) {
    before = found.size();
    for (const auto& [pid, parent] : parents) {
      if (found.count(parent) > 0) found.insert(pid);
    }
  }
  return found;
}

pid_t JobFixture::JobProcess(const std::string& name) {
  for (pid_t pid : JobProcesses()) {
    if (ReadFile("/proc/" + std::to_string(pid) + "/comm") == name.substr(0, 15) + "\n") return pid;
  }
  return -1;
}

pid_t JobFixture::ParentOf(pid_t pid) { return StatOf(pid).parent; }

// Processes end a moment after the one that was waited for; nothing may take longer than that.
void JobFixture::ExpectNothingLeft() {
  Becomes([&] { return JobProcesses().empty() && fs::is_empty(folder_ / "tmp"); }, kEndsMayTake);
  for (pid_t pid : JobProcesses()) {
    ADD_FAILURE() << "left running: " << pid << " " << ReadFile("/proc/" + std::to_string(pid) + "/comm");
    SendSignal(pid, SIGKILL);
  }
  for (const auto& entry : fs::directory_iterator(folder_ / "tmp")) {
    std::string inside;
    if (fs::is_directory(entry)) {
      for (const auto& file : fs::directory_iterator(entry)) inside += " " + file.path().filename().string();
    }
    ADD_FAILURE() << "left: " << entry.path() << ", in it:" << inside << "; its processes:\n" << ReadFile(entry.path() / "processes");
  }
  std::set<std::string> left;
  const auto nothing_new = [&] {
    left = SharedMemory();
    for (const std::string& name : shm_before_) left.erase(name);
    return left.empty();
  };
  Becomes(nothing_new, kEndsMayTake);  // the last keeper may still be sweeping
  for (const std::string& name : left) ADD_FAILURE() << "left in shared memory: " << name;
}

// Segments of MPI jobs that nobody uses: other jobs on this machine come and go, and are not ours to judge.
std::set<std::string> JobFixture::SharedMemory() {
  std::set<std::string> names;
  std::error_code error;
  for (auto it = fs::directory_iterator("/dev/shm", error); !error && it != fs::directory_iterator();
       it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (name.rfind("mpich", 0) == 0 || name.rfind("ucx", 0) == 0) names.insert(name);
  }
  shm_info totals{};
  const int last = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    const int id = shmctl(index, SHM_STAT, &segment);
    if (id >= 0 && segment.shm_nattch == 0) names.insert("sysv " + std::to_string(id));
  }
  return names;
}

void JobFixture::RemoveUcxProbes() const {
  shm_info totals{};
  const int last = shmctl(0, SHM_INFO, reinterpret_cast<shmid_ds*>(&totals));
  for (int index = 0; index <= last; ++index) {
    shmid_ds segment{};
    const int id = shmctl(index, SHM_STAT, &segment);
    if (id < 0 || segment.shm_nattch > 0 || segment.shm_segsz != static_cast<size_t>(sysconf(_SC_PAGESIZE))) continue;
    const bool of_this_test = shm_before_.count("sysv " + std::to_string(id)) == 0;
    if (of_this_test && !IsRunning(segment.shm_cpid)) shmctl(id, IPC_RMID, nullptr);
  }
}

}  // namespace ramspan
