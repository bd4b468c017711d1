#include "tests/oracle/emulator.hpp"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "svm/user_error.hpp"
#include "svm/vmcb_bits.hpp"

namespace svmsim::oracle {

namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

[[noreturn]] void fail(const std::string& message) {
  throw UserError(Problem{"", 0, "", message, ""});
}

/// A child process in a process group of its own, ended with this object.
class Child {
 public:
  Child(const std::vector<std::string>& command, const std::string& output) {
    std::vector<char*> arguments;
    for (const std::string& word : command)
      arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_addopen(&files, 2, (output + ".err").c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
    const int error = posix_spawnp(&pid_, arguments[0], &files, &attributes, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0)
      fail(fmt::format("cannot start {}: {} (scripts/setup installs it)", command[0], std::strerror(error)));
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { end(); }

  [[nodiscard]] bool running() {
    if (ended_) return false;
    int status = 0;
    const pid_t result = waitpid(pid_, &status, WNOHANG);
    if (result == 0) return true;
    ended_ = true;
    return false;
  }
  void end() {
    if (ended_) return;
    ::kill(-pid_, SIGKILL);
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
  }
  /// Waits; the exit status, or -1 of a signal.
  int wait() {
    int status = 0;
    while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    ended_ = true;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = 0;
  bool ended_ = false;
};

void write_file(const std::string& path, const void* bytes, std::size_t size) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(size));
  file.close();
  if (!file) fail(fmt::format("cannot write {}", path));
}
void write_file(const std::string& path, const std::string& text) {
  write_file(path, text.data(), text.size());
}
std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> qemu_command(const EmulatorSettings& settings, const std::string& vectors,
                                      const std::string& output) {
  return {"qemu-system-x86_64",
          "-nodefaults",
          "-display",
          "none",
          "-monitor",
          "none",
          "-serial",
          "none",
          "-no-reboot",
          "-machine",
          "pc,accel=tcg",
          "-cpu",
          "max,+svm",
          "-m",
          "64",
          "-device",
          "isa-debug-exit,iobase=0xf4,iosize=0x4",
          "-debugcon",
          "file:" + output,
          "-kernel",
          settings.kernel,
          "-initrd",
          vectors};
}

/// Bochs boots from CD: GRUB loads the kernel and the vector file.
std::vector<std::string> bochs_command(const EmulatorSettings& settings, const std::string& vectors) {
  const std::string& directory = settings.work_directory;
  const fs::path tree = fs::path(directory) / "iso";
  fs::remove_all(tree);
  fs::create_directories(tree / "boot" / "grub");
  fs::copy_file(settings.kernel, tree / "boot" / "kernel");
  fs::copy_file(vectors, tree / "boot" / "vectors");
  write_file(tree / "boot" / "grub" / "grub.cfg",
             "set timeout=0\nmenuentry oracle {\n  multiboot /boot/kernel\n  module /boot/vectors\n}\n");
  const std::string image = directory + "/oracle.iso";
  Child grub({"grub-mkrescue", "--output=" + image, "--directory=/usr/lib/grub/i386-pc", "--locales=",
              "--fonts=", "--themes=", "--install-modules=normal multiboot iso9660 biosdisk", tree.string()},
             directory + "/grub-mkrescue.log");
  if (grub.wait() != 0) {
    fail(fmt::format(
        "grub-mkrescue failed (it needs grub-pc-bin and xorriso, which scripts/setup installs):\n{}",
        read_file(directory + "/grub-mkrescue.log.err")));
  }
  // A low instruction rate shortens the waits of BIOS and boot loader: nothing here depends on time. Sound
  // and display are off: without a sound card Debian's Bochs dies in its ALSA driver.
  write_file(directory + "/bochsrc",
             "megs: 64\n"
             "romimage: file=/usr/share/bochs/BIOS-bochs-latest\n"
             "vgaromimage: file=/usr/share/bochs/VGABIOS-lgpl-latest\n"
             "cpu: model=ryzen, count=1, ips=4000000, reset_on_triple_fault=0, ignore_bad_msrs=1\n"
             "clock: sync=none\n"
             "display_library: rfb, options=\"timeout=0\"\n"
             "ata0-master: type=cdrom, path=\"" +
                 image +
                 "\", status=inserted\n"
                 "boot: cdrom\n"
                 "log: /dev/null\n"
                 "panic: action=fatal\nerror: action=ignore\ninfo: action=ignore\ndebug: action=ignore\n"
                 "speaker: enabled=0\n"
                 "sound: driver=dummy, waveoutdrv=dummy, waveindrv=dummy, midioutdrv=dummy\n"
                 "port_e9_hack: enabled=1\n");
  write_file(directory + "/bochs-commands", "c\n");
  return {"bochs", "-q", "-f", directory + "/bochsrc", "-rc", directory + "/bochs-commands"};
}

constexpr unsigned physical_address_bits = 40;  ///< of both

bool finished(const std::string& text) {
  return text.find("\nE ") != std::string::npos || text.find("\nF ") != std::string::npos;
}

void parse_output(const std::string& text, Boot& boot) {
  std::stringstream lines(text);
  std::string line;
  bool complete = false;
  while (std::getline(lines, line)) {
    // What an emulator itself prints may stand before a line of the kernel.
    if (const auto result = parse_result(line)) {
      boot.results[result->first] = result->second;
    } else if (const auto processor = parse_processor(line)) {
      boot.processor = processor;
    } else if (line.rfind("E ", 0) == 0) {
      complete = true;
    } else if (line.rfind("F ", 0) == 0) {
      boot.words += line + '\n';
    }
  }
  if (complete) boot.end = BootEnd::complete;
}

}  // namespace

std::string_view name_of(EmulatorKind kind) noexcept {
  return kind == EmulatorKind::qemu ? "qemu" : "bochs";
}

Boot boot(const EmulatorSettings& settings, const std::vector<const Vector*>& vectors) {
  const std::string vector_file = settings.work_directory + "/vectors";
  const auto bytes = pack(vectors);
  write_file(vector_file, bytes.data(), bytes.size());

  const bool qemu = settings.kind == EmulatorKind::qemu;
  const std::string console = settings.work_directory + "/console";
  const std::string output = qemu ? settings.work_directory + "/debugcon" : console;
  fs::remove(output);
  const auto command =
      qemu ? qemu_command(settings, vector_file, output) : bochs_command(settings, vector_file);

  Boot result;
  Child child(command, console);
  auto progress = Clock::now();
  std::uintmax_t size = 0;
  bool started = false;
  bool timed_out = false;
  while (child.running()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::error_code error;
    const std::uintmax_t now = fs::file_size(output, error);
    if (!error && now != size) {
      started = started || now > 200;
      size = now;
      progress = Clock::now();
      continue;
    }
    const unsigned limit = started ? settings.answer_limit_s : settings.start_limit_s;
    if (Clock::now() - progress > std::chrono::seconds(limit)) {
      timed_out = !finished(read_file(output));
      child.end();
    }
  }
  parse_output(read_file(output), result);
  if (result.end != BootEnd::complete) {
    if (timed_out) result.end = BootEnd::timed_out;
    const std::string errors = read_file(console + ".err");
    result.words += errors.substr(errors.size() > 600 ? errors.size() - 600 : 0);
  }
  return result;
}

svm::Knobs knobs_of(EmulatorKind kind) {
  svm::Knobs knobs;
  knobs.shadow_delays_intr_exit = true;
  knobs.msrpm_at_limit_is_invalid = kind == EmulatorKind::qemu;
  return knobs;
}

std::string_view not_askable(EmulatorKind kind, const Vector& vector) {
  const svm::VmcbControl& control = vector.vmcb.control;
  const bool v_irq = (control.int_ctl & svm::int_ctl::v_irq) != 0;
  const bool qemu = kind == EmulatorKind::qemu;
  const std::uint64_t other_tables = (vector.vmcb.save.cr3 ^ layout::page_tables) & ~std::uint64_t{0xfff};
  if (other_tables != 0 && other_tables >> physical_address_bits == 0)
    return "the guest would run on page tables that are none, and its stores would hit the arena";
  // LA57, SMEP, SMAP, PKE and CET would make other pages of the guest's.
  if (((vector.vmcb.save.cr4 ^ base_vmcb().save.cr4) & 0x00f01000) != 0)
    return "the guest could not run on its pages with this bit of CR4";
  const bool writes_cr8 = vector.program.has("mov_to_cr8") || vector.program.has("mov_to_cr8_reserved");
  if (qemu && v_irq && writes_cr8 && !vector.intercepts(svm::Intercept::write_cr8))
    return "QEMU aborts when a write of CR8 lets a virtual interrupt through";
  if (vector.program.has("mwait") && !vector.intercepts(svm::Intercept::mwait))
    return "an emulator sleeps for ever in MWAIT, armed or not";
  const bool shadow = (control.int_state & svm::int_state::interrupt_shadow) != 0;
  const bool halts = vector.program.has("hlt") && !vector.intercepts(svm::Intercept::hlt);
  if (qemu && halts && shadow && (v_irq || vector.pending_intr))
    return "QEMU takes an interrupt in the shadow of VMRUN, before the HLT that it was to wake";
  const bool masking = (control.int_ctl & svm::int_ctl::v_intr_masking) != 0;
  if (!qemu && halts && (v_irq || masking))
    return "Bochs sleeps for ever in a HLT that a virtual interrupt, or with V_INTR_MASKING a physical one, "
           "is to end";
  if (!qemu && (vector.vmcb.save.cr0 & svm::cr0::pe) == 0) return "Bochs dies of long mode without CR0.PE";
  if (!qemu && (other_tables >> physical_address_bits & 0xfff) != 0)
    return "Bochs dies of CR3 bits above its physical address width";
  return "";
}

}  // namespace svmsim::oracle
