#pragma once

namespace svmsim::model {

/// Is told by a pCPU, before it gives the kernel the floor, that what it did at this moment is done: a
/// waveform takes its values then. Only with run-ahead off, where every pCPU acts at kernel time.
class WaveProbe {
 public:
  WaveProbe() = default;
  WaveProbe(const WaveProbe&) = delete;
  WaveProbe& operator=(const WaveProbe&) = delete;
  virtual ~WaveProbe() = default;

  virtual void sample() = 0;
};

}  // namespace svmsim::model
