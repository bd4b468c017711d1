#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include <boost/iostreams/copy.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filter/zstd.hpp>
#include <boost/iostreams/filtering_stream.hpp>
#include <doctest/doctest.h>

#include "workloads/trace/ftrace_reader.hpp"
#include "workloads/trace/import.hpp"
#include "workloads/trace/line_source.hpp"

// What no recorder wrote: a clear message, or a partial import that says what was left out.

using namespace svmsim;
using namespace svmsim::workloads;

namespace {

const std::string data = std::string{SVMSIM_SOURCE_DIR} + "/tests/data/trace/";

/// A file that goes away with its test.
class Scratch {
 public:
  explicit Scratch(const std::string& bytes) {
    static int number = 0;
    path = (std::filesystem::temp_directory_path() /
            ("svmsim-hard-" + std::to_string(std::random_device{}()) + "-" + std::to_string(number++)))
               .string();
    std::ofstream(path, std::ios::binary) << bytes;
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() { std::filesystem::remove(path); }
  std::string path;
};

std::string unpacked(const std::string& path) {
  UnpackingFile file(path, 400);
  std::ostringstream text;
  text << file.stream().rdbuf();
  return text.str();
}

template <typename Filter>
std::string packed(const std::string& bytes, Filter filter) {
  std::ostringstream out;
  boost::iostreams::filtering_ostream stream;
  stream.push(filter);
  stream.push(out);
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  boost::iostreams::close(stream);
  return out.str();
}

ImportReport report_of(const std::string& bytes, const ReadOptions& reading = {}) {
  const Scratch file(bytes);
  return import_report_of_files({file.path}, {}, 0, reading);
}

std::string message_of(const std::string& bytes, const ReadOptions& reading = {}) {
  try {
    const ImportReport report = report_of(bytes, reading);
    return report.refused            ? "refused: " + *report.refused
           : report.problems.empty() ? ""
                                     : report.problems[0].text();
  } catch (const TraceError& error) {
    return error.what();
  }
}

}  // namespace

TEST_CASE("hard inputs: gzip, xz and zstd unpack; damaged and boastful files say so") {
  const std::string text = unpacked(data + "kvm-6.12-d1.txt.gz");
  const Counts events = report_of(text).events;
  namespace io = boost::iostreams;
  const std::vector<std::string> files{packed(text, io::gzip_compressor()),
                                       packed(text, io::lzma_compressor()),
                                       packed(text, io::zstd_compressor())};
  for (const std::string& bytes : files) {
    CHECK(report_of(bytes).events == events);
    const std::string half = message_of(bytes.substr(0, bytes.size() / 2));
    CHECK(half.find("damaged or ends early") != std::string::npos);
  }
  const std::string bomb = packed(std::string(80 << 20, '\n'), io::gzip_compressor());
  CHECK(message_of(bomb).find("unpacks to more than") != std::string::npos);
}

TEST_CASE("hard inputs: lines of 10 MB, NULs, invalid UTF-8, no line feed at the end") {
  const std::string good = " 1.000001: kvm_entry: vcpu 0, rip 0x1\n";
  const ImportReport report =
      report_of(good + std::string(10 << 20, 'x') + "\n" + good + " 1.0: kvm_exit: reason " +
                std::string(10 << 20, '\0') + "\n" + "\xff\xfe\xc3(\n" + "kvm_fpu: load");
  CHECK(report.events == Counts{{"kvm_entry", 2}, {"kvm_fpu", 1}});
  CHECK(report.problem_count == 2);
  CHECK(report.lines == 6);
  CHECK(report.problems[0].line == 2);
  CHECK(to_json(report).find('\xff') == std::string::npos);
}

TEST_CASE("hard inputs: wrong files are refused by what they are") {
  CHECK(message_of("\x7f"
                   "ELF...")
            .find("ELF") != std::string::npos);
  CHECK(message_of("PK\x03\x04...").find("zip") != std::string::npos);
  CHECK(message_of("").find("it has no text") != std::string::npos);
  CHECK(message_of("Dear all,\nit works now.\n").find("line 1 is \"Dear all,\"") != std::string::npos);
  CHECK_THROWS_AS((void)import_report_of_files({data + "nothing-here"}), TraceError);
  CHECK_THROWS_AS((void)import_report_of_files({data}), TraceError);
  ReadOptions no_perf;
  no_perf.perf = "no-such-perf";
  CHECK(message_of("PERFILE2........", no_perf).find("perf script") != std::string::npos);
  no_perf.perf = "/bin/false";
  CHECK(message_of("PERFILE2........", no_perf).find("refused it") != std::string::npos);
}

TEST_CASE("hard inputs: perf.data is what perf script prints of it") {
  const Scratch script(
      "#!/bin/sh\n[ \"$1\" = script ] && printf ' CPU 0/KVM 7/8 [001] 1.000000002: kvm:kvm_fpu: load\\n'\n");
  std::filesystem::permissions(script.path, std::filesystem::perms::owner_all);
  ReadOptions reading;
  reading.perf = script.path;
  const ImportReport report = report_of("PERFILE2........", reading);
  CHECK(report.format == "perf.data");
  CHECK(report.events == Counts{{"kvm_fpu", 1}});
}

TEST_CASE("hard inputs: shuffled, duplicated and cut text never counts a line twice") {
  std::vector<std::string> lines;
  std::istringstream in(unpacked(data + "kvm-6.12-d1.txt.gz"));
  for (std::string line; std::getline(in, line);)
    lines.push_back(line);
  std::mt19937 random(7);  // NOLINT: the same lines every time
  for (int round = 0; round < 20; ++round) {
    std::shuffle(lines.begin(), lines.end(), random);
    std::string text;
    for (const std::string& line : lines) {
      const std::size_t length = random() % 7 == 0 ? random() % (line.size() + 1) : line.size();
      text += line.substr(0, length) + "\n";
      if (random() % 9 == 0) text += line + "\n";
    }
    ImportReport report = report_of(text);
    std::uint64_t events = 0;
    for (const auto& [name, count] : report.events)
      events += count;
    CHECK(events + report.problem_count <= report.lines);
    CHECK(report.exits["hlt"] + report.exits["msr"] <= report.events["kvm_exit"]);
  }
}

TEST_CASE("hard inputs: trace.dat cut or forged breaks off with a message, and what was read stands") {
  const std::string good = unpacked(data + "kvm-6.12-d1.dat.gz");
  const ImportReport whole = report_of(good);
  CHECK(whole.problem_count == 0);
  CHECK(whole.lines > 400);
  for (const std::size_t size : {std::size_t{10}, std::size_t{300}, good.size() / 2}) {
    CHECK_FALSE(message_of(good.substr(0, size)).empty());
  }
  std::mt19937 random(11);  // NOLINT
  for (int round = 0; round < 60; ++round) {
    std::string forged = good;
    for (int i = 0; i < 30; ++i)
      forged[10 + random() % (forged.size() - 10)] = static_cast<char>(random());
    try {
      const ImportReport report = report_of(forged);
      CHECK(report.format == "trace.dat");
    } catch (const TraceError& error) {
      CHECK(std::string{error.what()}.find("damaged") != std::string::npos);
    }
  }
}

TEST_CASE("trace.dat: two files are merged by time into one capture") {
  const std::string one = unpacked(data + "kvm-6.12-d1.dat.gz");
  const Scratch first(one);
  const Scratch second(one);
  const ImportReport single = import_report_of_files({first.path});
  const ImportReport merged = import_report_of_files({first.path, second.path});
  CHECK(merged.captures.size() == 1);
  CHECK(merged.lines == 2 * single.lines);
  const TraceFile file = read_trace_files({first.path, second.path});
  for (std::size_t i = 1; i < file.captures[0].events.size(); ++i) {
    CHECK(file.captures[0].events[i - 1].time <= file.captures[0].events[i].time);
  }
}
