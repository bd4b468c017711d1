#include "workloads/trace/trace_dat_records.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

extern "C" {
// tracefs.h is no C++ (libtracefs 1.6 converts int to an enum in it), and nothing here needs it.
#define _TRACE_FS_H
#include <trace-cmd/trace-cmd.h>
#include <traceevent/event-parse.h>
#include <traceevent/trace-seq.h>
}

#include "workloads/trace/record_decoder.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t flush_bytes = std::size_t{1} << 16;

class RecordSender {
 public:
  RecordSender(int out, const TraceSink& sink) : out_(out), sink_(sink) { trace_seq_init(&text_); }

  void record(tracecmd_input* handle, tep_record* record, int cpu) {
    tep_handle* const tep = tracecmd_get_tep(handle);
    const auto* const data = static_cast<const unsigned char*>(record->data);
    const auto size = static_cast<std::size_t>(std::max(record->size, 0));
    if (record->missed_events != 0) {
      put(RecordTag::lost);
      put(static_cast<std::uint64_t>(std::max<long long>(record->missed_events, 1)));
    }
    const int type = tep_data_type(tep, record);
    Known* const known = known_event(tep, type);
    if (known == nullptr) return;
    TraceEvent event;
    event.time = record->ts;
    event.cpu = cpu;
    event.tid = size >= 8 ? tep_data_pid(tep, record) : -1;
    name_thread(event.tid, [&] { return tep_data_comm_from_pid(tep, event.tid); });
    if (known->decoder.kind() == EventKind::other || !known->decoder.decode(data, size, event)) {
      if (known->decoder.kind() != EventKind::other) {
        put(RecordTag::problem);
        put_text(known->name + ": the record is shorter than its format");
        return;
      }
      event.kind = EventKind::other;
    } else {
      name_threads(*known, data, size, event);
    }
    put(RecordTag::event);
    put(known->id);
    put(event);
    if (event.kind == EventKind::other) put_text(known->wants_text ? event_text(tep, record) : "");
    if (buffer_.size() >= flush_bytes) flush();
  }

  void refuse(std::string_view why) {
    put(RecordTag::refused);
    put_text(why);
    flush();
  }

  void done() {
    put(RecordTag::done);
    flush();
  }

 private:
  struct Known {
    std::uint32_t id = 0;
    std::string name;
    bool wants_text = false;
    RecordDecoder decoder;
  };

  Known* known_event(tep_handle* tep, int type) {
    const auto key = std::make_pair(tep, type);
    if (last_ != nullptr && last_key_ == key) return last_;
    auto& slot = by_tep_[tep][type];
    if (slot == nullptr) {
      slot = std::make_unique<Known>();
      tep_event* const format = tep_find_event(tep, type);
      const bool usable = format != nullptr && format->name != nullptr && format->system != nullptr;
      slot->id = next_id_++;
      slot->name = usable ? format->name : "event " + std::to_string(type);
      slot->wants_text = slot->name == "print" || sink_.wants_text(slot->name);
      const std::string_view system = usable ? format->system : "";
      const std::optional<EventKind> kind = readable_event_kind_of(slot->name);
      if (kind && (system == "kvm" || system == "sched" || system == "power")) {
        slot->decoder = RecordDecoder(*kind, [&](const char* name, RawField& field) {
          const tep_format_field* const found = tep_find_field(format, name);
          if (found == nullptr || found->offset < 0 || found->size <= 0) return false;
          field.offset = static_cast<std::uint32_t>(found->offset);
          field.size = static_cast<std::uint32_t>(found->size);
          field.is_signed = (found->flags & TEP_FIELD_IS_SIGNED) != 0;
          return true;
        });
      }
      put(RecordTag::name);
      put_text(slot->name);
    }
    last_key_ = key;
    last_ = slot.get();
    return last_;
  }

  template <typename Comm>
  void name_thread(std::int32_t tid, Comm comm) {
    if (tid <= 0 || tid == last_tid_) return;
    last_tid_ = tid;
    const char* const found = comm();
    if (found != nullptr) name_thread_as(tid, found);
  }

  void name_thread_as(std::int32_t tid, std::string_view comm) {
    std::string& known = threads_[tid];
    if (known == comm || comm == "<...>" || comm.empty()) return;
    known = comm;
    put(RecordTag::thread);
    put(tid);
    put_text(comm);
  }

  void name_threads(const Known& known, const unsigned char* data, std::size_t size,
                    const TraceEvent& event) {
    const EventKind kind = known.decoder.kind();
    if (kind != EventKind::sched_switch && kind != EventKind::sched_waking && kind != EventKind::sched_wakeup)
      return;
    const auto comms = known.decoder.comms(data, size);
    if (event.field[0] != 0) name_thread_as(static_cast<std::int32_t>(event.field[0]), comms[0]);
    if (kind == EventKind::sched_switch && event.field[3] != 0)
      name_thread_as(static_cast<std::int32_t>(event.field[3]), comms[1]);
  }

  std::string_view event_text(tep_handle* tep, tep_record* record) {
    trace_seq_reset(&text_);
    tep_print_event(tep, &text_, record, "%s", TEP_PRINT_INFO);
    trace_seq_terminate(&text_);
    std::string_view text = text_.buffer == nullptr ? std::string_view{} : std::string_view{text_.buffer};
    while (!text.empty() && (text.back() == '\n' || text.back() == ' '))
      text.remove_suffix(1);
    return text;
  }

  template <typename Value>
  void put(const Value& value) {
    buffer_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void put_text(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    buffer_.append(text);
  }
  void flush() {
    std::size_t sent = 0;
    while (sent < buffer_.size()) {
      const ssize_t got = ::write(out_, buffer_.data() + sent, buffer_.size() - sent);
      if (got <= 0) ::_exit(1);
      sent += static_cast<std::size_t>(got);
    }
    buffer_.clear();
  }

  int out_;
  const TraceSink& sink_;
  trace_seq text_{};
  std::string buffer_;
  std::unordered_map<tep_handle*, std::unordered_map<int, std::unique_ptr<Known>>> by_tep_;
  std::pair<tep_handle*, int> last_key_;
  Known* last_ = nullptr;
  std::uint32_t next_id_ = 0;
  std::unordered_map<std::int32_t, std::string> threads_;
  std::int32_t last_tid_ = -1;
};

int on_record(tracecmd_input* handle, tep_record* record, int cpu, void* sender) {
  static_cast<RecordSender*>(sender)->record(handle, record, cpu);
  return 0;
}

// A forged length must not take the machine's memory.
void limit_memory() {
#if !defined(__SANITIZE_ADDRESS__) && !defined(SVMSIM_SANITIZE)
  constexpr rlim_t bytes = rlim_t{4} << 30;
  rlimit limit{bytes, bytes};
  (void)::setrlimit(RLIMIT_AS, &limit);
#endif
}

}  // namespace

void send_records(const std::vector<int>& files, int out, const TraceSink& sink) {
  limit_memory();
  rlimit no_core{0, 0};
  (void)::setrlimit(RLIMIT_CORE, &no_core);
  // The parent's handlers would print, and go on in a copy of the parent.
  for (const int signal : {SIGPIPE, SIGSEGV, SIGBUS, SIGABRT, SIGFPE, SIGILL, SIGTERM, SIGINT})
    (void)std::signal(signal, SIG_DFL);
  const int quiet = ::open("/dev/null", O_WRONLY);
  if (quiet >= 0) ::dup2(quiet, STDERR_FILENO);
  tracecmd_set_loglevel(TEP_LOG_NONE);
  tep_set_loglevel(TEP_LOG_NONE);
  RecordSender sender(out, sink);
  std::vector<tracecmd_input*> handles;
  for (const int fd : files) {
    tracecmd_input* const handle = tracecmd_open_fd(fd, TRACECMD_FL_LOAD_NO_PLUGINS);
    if (handle == nullptr) {
      sender.refuse("is no trace.dat that libtracecmd can open, or it is damaged");
      return;
    }
    handles.push_back(handle);
    const int instances = tracecmd_buffer_instances(handle);
    for (int i = 0; i < instances; ++i) {
      tracecmd_input* const instance = tracecmd_buffer_instance_handle(handle, i);
      if (instance != nullptr) handles.push_back(instance);
    }
  }
  tracecmd_iterate_events_multi(handles.data(), static_cast<int>(handles.size()), on_record, &sender);
  sender.done();
}

}  // namespace svmsim::workloads
