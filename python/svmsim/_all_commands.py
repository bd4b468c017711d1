"""Every command of `svmsim` on one `app`: a module that adds commands is named here alone."""

from svmsim import (  # noqa: F401 - they add their commands
    _calibrate_command,
    _study_command,
    _sweep_commands,
    _validate_command,
    _workload_commands,
)
from svmsim._commands import app

__all__ = ["app"]
