#include "workloads/trace/trace_dat_reader.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <optional>
#include <unordered_map>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "workloads/trace/guest_marker.hpp"
#include "workloads/trace/line_source.hpp"
#include "workloads/trace/trace_dat_records.hpp"

namespace svmsim::workloads {

namespace {

constexpr int silence_limit_ms = 60'000;

/// A file descriptor that closes itself.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { reset(); }
  void reset() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

/// libtracecmd seeks, so a packed file is unpacked into a nameless one.
int open_seekable(const std::string& path, const ReadOptions& options, std::string& failure) {
  UnpackingFile file(path, options.max_expansion);
  if (file.plain()) {
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) throw TraceError(Problem{path, 0, "", "cannot be read", ""});
    return fd;
  }
  std::FILE* const out = std::tmpfile();
  if (out == nullptr) throw TraceError(Problem{path, 0, "", "no room to unpack it (temporary file)", ""});
  std::vector<char> chunk(std::size_t{1} << 18);
  bool written = true;
  while (written && file.stream()) {
    file.stream().read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
    const auto got = static_cast<std::size_t>(file.stream().gcount());
    written = std::fwrite(chunk.data(), 1, got, out) == got;
  }
  written = std::fflush(out) == 0 && written;
  failure = file.failure();
  const int fd = ::dup(::fileno(out));
  std::fclose(out);
  if (!written || fd < 0) throw TraceError(Problem{path, 0, "", "no room to unpack it (temporary file)", ""});
  ::lseek(fd, 0, SEEK_SET);
  return fd;
}

/// What the child process has sent, unpacked.
class RecordStream {
 public:
  explicit RecordStream(int fd) : fd_(fd) { buffer_.reserve(std::size_t{1} << 18); }

  /// Makes `size` bytes available; false at the end of the data.
  bool need(std::size_t size) {
    while (buffer_.size() - begin_ < size) {
      if (!fill()) return false;
    }
    return true;
  }
  template <typename Value>
  bool take(Value& value) {
    if (!need(sizeof value)) return false;
    std::memcpy(&value, buffer_.data() + begin_, sizeof value);
    begin_ += sizeof value;
    return true;
  }
  /// Valid until the next call.
  bool take_text(std::string_view& text) {
    std::uint32_t size = 0;
    if (!take(size) || !need(size)) return false;
    text = {buffer_.data() + begin_, size};
    begin_ += size;
    return true;
  }
  [[nodiscard]] bool silent() const noexcept { return silent_; }

 private:
  bool fill() {
    buffer_.erase(0, begin_);
    begin_ = 0;
    pollfd wait{fd_, POLLIN, 0};
    int ready = 0;
    do
      ready = ::poll(&wait, 1, silence_limit_ms);
    while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
      silent_ = true;
      return false;
    }
    constexpr std::size_t chunk = std::size_t{1} << 17;
    const std::size_t old = buffer_.size();
    buffer_.resize(old + chunk);
    ssize_t got = 0;
    do
      got = ::read(fd_, buffer_.data() + old, chunk);
    while (got < 0 && errno == EINTR);
    buffer_.resize(old + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    return got > 0;
  }

  int fd_;
  std::string buffer_;
  std::size_t begin_ = 0;
  bool silent_ = false;
};

/// Turns the records of the stream into what a sink is told.
class Delivery {
 public:
  Delivery(RecordStream& in, TraceSink& sink) : in_(in), sink_(sink) {}

  /// True when the child has said that it is done.
  bool run() {
    sink_.begin_capture("", 1, names_);
    RecordTag tag{};
    while (in_.take(tag)) {
      switch (tag) {
        case RecordTag::done:
          return true;
        case RecordTag::name:
          if (!name()) return false;
          break;
        case RecordTag::thread:
          if (!thread()) return false;
          break;
        case RecordTag::event:
          if (!event()) return false;
          break;
        case RecordTag::lost:
        case RecordTag::problem:
          if (!remark(tag)) return false;
          break;
        case RecordTag::refused:
          (void)in_.take_text(text_);
          refusal = text_;
          return false;
      }
    }
    return false;
  }

  std::uint64_t records = 0;
  std::string refusal;

 private:
  bool name() {
    std::string_view text;
    if (!in_.take_text(text)) return false;
    event_names_.emplace_back(text);
    return true;
  }

  bool thread() {
    std::int32_t tid = 0;
    std::string_view comm;
    if (!in_.take(tid) || !in_.take_text(comm)) return false;
    names_.threads.set(tid, printable(comm, 64));
    return true;
  }

  bool event() {
    std::uint32_t id = 0;
    ReadEvent read;
    if (!in_.take(id) || !in_.take(read.event) || id >= event_names_.size()) return false;
    if (read.event.kind == EventKind::other && !in_.take_text(read.text)) return false;
    ++records;
    read.line = records;
    read.name = event_names_[id];
    read.comm = names_.threads.comm(read.event.tid);
    read.time_base = TimeBase::nanoseconds;
    if (read.event.kind == EventKind::kvm_exit) name_foreign_exit(read.event);
    if (read.event.kind == EventKind::other) marker(read);
    sink_.event(read);
    return true;
  }

  static void marker(ReadEvent& read) {
    std::string_view text = read.text;
    TraceEvent event = read.event;
    if (guest_marker::is_marker(read.name, text) && guest_marker::parse(text, event)) read.event = event;
  }

  bool remark(RecordTag tag) {
    ReadNote note;
    note.line = records;
    if (tag == RecordTag::lost) {
      note.kind = NoteKind::lost;
      note.text = "events lost by the recorder";
      if (!in_.take(note.count)) return false;
    } else {
      note.kind = NoteKind::unreadable;
      if (!in_.take_text(note.text)) return false;
    }
    sink_.note(note);
    return true;
  }

  // A VMX reason without a name keeps its number.
  void name_foreign_exit(TraceEvent& event) {
    std::uint64_t& code = event.field[0];
    if (code < vmx_exit_base || code >= foreign_exit_base) return;
    const std::uint64_t reason = code - vmx_exit_base;
    if (!vmx_reason_name(reason).empty()) return;
    const auto [found, fresh] = foreign_.try_emplace(reason, names_.foreign_exits.size());
    if (fresh) names_.foreign_exits.push_back(fmt::format("0x{:x}", reason));
    code = foreign_exit_base + found->second;
  }

  RecordStream& in_;
  TraceSink& sink_;
  TraceNames names_;
  std::vector<std::string> event_names_;
  std::unordered_map<std::uint64_t, std::size_t> foreign_;
  std::string_view text_;
};

}  // namespace

void TraceDatReader::read(TraceSink& sink) {
  std::vector<int> files;
  std::string packing_failure;
  for (const std::string& path : paths_)
    files.push_back(open_seekable(path, options_, packing_failure));
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw TraceError(Problem{paths_.front(), 0, "", "no pipe to its reader", ""});
  }
  Descriptor in(ends[0]);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    send_records(files, ends[1], sink);
    ::_exit(0);
  }
  ::close(ends[1]);
  for (const int fd : files)
    ::close(fd);
  if (child < 0) throw TraceError(Problem{paths_.front(), 0, "", "no process for its reader", ""});

  RecordStream stream(in.get());
  Delivery delivery(stream, sink);
  bool done = false;
  int status = 0;
  const auto reap = [&] {
    in.reset();  // a child that still writes ends by SIGPIPE
    if (stream.silent()) ::kill(child, SIGKILL);
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
  };
  try {
    done = delivery.run();
  } catch (...) {
    reap();
    throw;
  }
  reap();
  std::string why;
  if (!done) {
    why = !delivery.refusal.empty() ? delivery.refusal
          : stream.silent()         ? "the file is damaged: reading it came to a stand"
                                    : "the file is damaged: reading it broke off";
  } else if (!packing_failure.empty()) {
    why = packing_failure;
  }
  if (!why.empty()) {
    if (delivery.records == 0) throw TraceError(Problem{paths_.front(), 0, "", why, ""});
    ReadNote note;
    note.kind = NoteKind::unreadable;
    note.line = delivery.records;
    const std::string text =
        fmt::format("{} behind record {}; what follows is missing", why, delivery.records);
    note.text = text;
    sink.note(note);
  }
  sink.end_capture("trace.dat", delivery.records);
  sink.end_file(delivery.records);
}

}  // namespace svmsim::workloads
