#include "workloads/trace/line_source.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <streambuf>

#include <boost/iostreams/device/file.hpp>
#include <boost/iostreams/filter/gzip.hpp>
#include <boost/iostreams/filter/lzma.hpp>
#include <boost/iostreams/filtering_streambuf.hpp>
#include <boost/iostreams/read.hpp>
#include <fmt/format.h>
#include <sys/stat.h>
#include <zstd.h>

#include "svm/user_error.hpp"

namespace svmsim::workloads {

namespace {

constexpr std::size_t chunk_bytes = std::size_t{1} << 18;
constexpr std::uint64_t always_allowed = std::uint64_t{64} << 20;

}  // namespace

LineSource::LineSource(std::istream& in, std::size_t max_line_bytes)
    : in_(in), max_line_bytes_(std::max<std::size_t>(max_line_bytes, 1)), chunk_(chunk_bytes) {}

bool LineSource::fill() {
  begin_ = 0;
  end_ = 0;
  if (!in_.good()) return false;
  in_.read(chunk_.data(), static_cast<std::streamsize>(chunk_.size()));
  end_ = static_cast<std::size_t>(in_.gcount());
  return end_ != 0;
}

bool LineSource::next(std::string_view& line) {
  carry_.clear();
  cut_ = false;
  bool carried = false;
  for (;;) {
    if (begin_ == end_ && !fill()) {
      if (!carried) return false;
      line = carry_;  // the last line has no line feed
      break;
    }
    const char* const start = chunk_.data() + begin_;
    const auto* const feed = static_cast<const char*>(std::memchr(start, '\n', end_ - begin_));
    const std::size_t length = feed != nullptr ? static_cast<std::size_t>(feed - start) : end_ - begin_;
    begin_ += length + (feed != nullptr ? 1 : 0);
    if (feed != nullptr && !carried) {
      line = {start, length};
      break;
    }
    const std::size_t room = max_line_bytes_ + 1 - std::min(carry_.size(), max_line_bytes_ + 1);
    carry_.append(start, std::min(length, room));
    carried = true;
    if (feed != nullptr) {
      line = carry_;
      break;
    }
  }
  ++number_;
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  if (line.size() > max_line_bytes_) {
    line = line.substr(0, max_line_bytes_);
    cut_ = true;
  }
  return true;
}

/// zstd, like Boost's filter, but one that notices when the data end inside a frame.
class ZstdFilter {
 public:
  using char_type = char;
  struct category : boost::iostreams::multichar_input_filter_tag {};

  ZstdFilter() : stream_(ZSTD_createDStream(), ZSTD_freeDStream), packed_(ZSTD_DStreamInSize()) {
    if (stream_ == nullptr) throw std::bad_alloc();
  }

  template <typename Source>
  std::streamsize read(Source& source, char* out, std::streamsize size) {
    ZSTD_outBuffer output{out, static_cast<std::size_t>(size), 0};
    while (output.pos == 0) {
      if (begin_ == end_) {
        const std::streamsize got =
            boost::iostreams::read(source, packed_.data(), static_cast<std::streamsize>(packed_.size()));
        if (got <= 0) {
          if (inside_frame_) throw std::runtime_error("the data end inside a frame");
          return -1;
        }
        begin_ = 0;
        end_ = static_cast<std::size_t>(got);
      }
      ZSTD_inBuffer input{packed_.data(), end_, begin_};
      const std::size_t left = ZSTD_decompressStream(stream_.get(), &output, &input);
      if (ZSTD_isError(left) != 0) throw std::runtime_error(ZSTD_getErrorName(left));
      inside_frame_ = left != 0;
      begin_ = input.pos;
    }
    return static_cast<std::streamsize>(output.pos);
  }

 private:
  std::shared_ptr<ZSTD_DStream> stream_;  // filters are copied
  std::vector<char> packed_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
  bool inside_frame_ = false;
};

/// Buffer between the decompressor and the reader: counts, bounds, and turns a decompressor's exception into
/// an end of file with a reason.
struct UnpackingFile::State : std::streambuf {
  std::string path;
  std::ifstream file;
  std::string_view packing;  ///< "" for a plain file
  boost::iostreams::filtering_istreambuf filter;
  std::uint64_t limit = 0;
  std::uint64_t produced = 0;
  std::string failure;
  std::vector<char> buffer = std::vector<char>(chunk_bytes);
  std::unique_ptr<std::istream> stream;

  int_type underflow() override {
    if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
    if (!failure.empty()) return traits_type::eof();
    const auto room = static_cast<std::streamsize>(buffer.size());
    std::streamsize got = 0;
    if (packing.empty()) {
      file.read(buffer.data(), room);
      got = file.gcount();
    } else {
      try {
        got = filter.sgetn(buffer.data(), room);
      } catch (const std::exception&) {
        failure = fmt::format("the {} data is damaged or ends early", packing);
        return traits_type::eof();
      }
      produced += static_cast<std::uint64_t>(std::max<std::streamsize>(got, 0));
      if (produced > limit) {
        failure =
            fmt::format("the file unpacks to more than {} bytes, which is the limit for its size", limit);
        return traits_type::eof();
      }
    }
    if (got <= 0) return traits_type::eof();
    setg(buffer.data(), buffer.data(), buffer.data() + got);
    return traits_type::to_int_type(*gptr());
  }
};

UnpackingFile::UnpackingFile(const std::string& path, unsigned max_expansion)
    : state_(std::make_unique<State>()) {
  State& state = *state_;
  state.path = path;
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw TraceError(Problem{path, 0, "", "no such file", ""});
  if (S_ISDIR(status.st_mode)) throw TraceError(Problem{path, 0, "", "is a directory", ""});
  if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode))
    throw TraceError(Problem{path, 0, "", "is a device, not a file", ""});
  state.file.open(path, std::ios::binary);
  if (!state.file) throw TraceError(Problem{path, 0, "", "cannot be read", ""});
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  state.limit = std::max(always_allowed, size * max_expansion);
  std::array<char, 6> magic{};
  state.file.read(magic.data(), magic.size());
  const std::string_view first{magic.data(), static_cast<std::size_t>(state.file.gcount())};
  state.file.clear();
  state.file.seekg(0);
  namespace io = boost::iostreams;
  if (first.substr(0, 2) == "\x1f\x8b") {
    state.packing = "gzip";
    state.filter.push(io::gzip_decompressor());
  } else if (first == std::string_view{"\xfd\x37\x7a\x58\x5a\0", 6}) {
    state.packing = "xz";
    state.filter.push(io::lzma_decompressor());
  } else if (first.substr(0, 4) == "\x28\xb5\x2f\xfd") {
    state.packing = "zstd";
    state.filter.push(ZstdFilter());
  }
  if (!state.packing.empty()) state.filter.push(state.file);
  state.stream = std::make_unique<std::istream>(&state);
}

UnpackingFile::~UnpackingFile() = default;

std::istream& UnpackingFile::stream() {
  return *state_->stream;
}

std::string_view UnpackingFile::head() {
  State& state = *state_;
  if (state.underflow() == std::streambuf::traits_type::eof()) return {};
  return {state.buffer.data(), state.in_avail() > 0 ? static_cast<std::size_t>(state.in_avail()) : 0};
}

bool UnpackingFile::plain() const noexcept {
  return state_->packing.empty();
}

std::string UnpackingFile::failure() const {
  return state_->failure;
}

}  // namespace svmsim::workloads
