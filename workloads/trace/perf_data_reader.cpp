#include "workloads/trace/perf_data_reader.hpp"

#include <array>
#include <cerrno>
#include <cstdio>

#include <boost/iostreams/device/file_descriptor.hpp>
#include <boost/iostreams/stream.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workloads/trace/text_reader.hpp"

extern char** environ;  // NOLINT(readability-redundant-declaration): POSIX wants it declared

namespace svmsim::workloads {

namespace {

/// The whole of a packed file in a temporary one, since perf opens what it reads by name.
std::FILE* unpack(UnpackingFile& file) {
  std::FILE* const out = std::tmpfile();
  std::array<char, 1 << 16> chunk{};
  while (out != nullptr && file.stream()) {
    file.stream().read(chunk.data(), chunk.size());
    (void)std::fwrite(chunk.data(), 1, static_cast<std::size_t>(file.stream().gcount()), out);
  }
  if (out != nullptr) (void)std::fflush(out);
  return out;
}

}  // namespace

void PerfDataReader::read(TraceSink& sink) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> unpacked(nullptr, std::fclose);
  std::string input = path_;
  if (!file_->plain()) {
    unpacked.reset(unpack(*file_));
    if (unpacked == nullptr) throw TraceError(Problem{path_, 0, "", "no room to unpack it", ""});
    input = fmt::format("/proc/{}/fd/{}", ::getpid(), ::fileno(unpacked.get()));
  }
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw TraceError(Problem{path_, 0, "", "no pipe to perf script", ""});
  }
  std::array<std::string, 8> words{options_.perf, "script", "--force", "--ns",
                                   "-i",          input,    "-F",      "comm,pid,tid,cpu,time,event,trace"};
  std::array<char*, words.size() + 1> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i)
    arguments[i] = words[i].data();
  posix_spawn_file_actions_t actions{};
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  pid_t child = -1;
  const int error =
      ::posix_spawnp(&child, options_.perf.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) {
    ::close(ends[0]);
    throw TraceError(
        Problem{path_, 0, "",
                "is perf.data, which `perf script` reads, and there is no such program here; run "
                "`perf script --ns` where it was recorded and give the text",
                ""});
  }
  namespace io = boost::iostreams;
  io::stream<io::file_descriptor_source> text(io::file_descriptor_source(ends[0], io::close_handle));
  int status = 0;
  const auto reap = [&] {
    text.close();
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  };
  TextParser parser(sink, options_);
  try {
    read_lines(text, options_, parser);
  } catch (...) {
    reap();
    throw;
  }
  reap();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    const std::string why =
        WIFEXITED(status) ? fmt::format("`perf script` refused it (exit status {})", WEXITSTATUS(status))
                          : std::string{"`perf script` broke off"};
    if (parser.events() == 0) throw TraceError(Problem{path_, 0, "", why, ""});
    parser.stopped_early(why);
  }
  parser.finish("perf.data");
}

}  // namespace svmsim::workloads
