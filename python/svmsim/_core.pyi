"""The C++ side. Strings are JSON text unless said otherwise; see scenario.py, result.py, cli."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

def version() -> str: ...
def describe() -> str: ...
def json_schema() -> str: ...
def resolve(source: str, is_file: bool, base_dir: str, overrides: list[str]) -> str: ...
def run(
    source: str,
    is_file: bool,
    base_dir: str,
    overrides: list[str],
    trace: str = "",
    progress: Callable[[float], None] | None = None,
    waveform: str = "",
    events: dict[str, Any] | None = None,
    most_events: int = 20_000_000,
    trace_format: str = "",
    markers: bool = False,
) -> str: ...
def perf_table(result_json: str, layout: str = "") -> str: ...
def diagnosis(paths: list[str], capture: int = 0, isa: str = "") -> str: ...
def convert_trace(
    paths: list[str], output: str, trace_format: str = "", capture: int = 0
) -> None: ...
def adapt_workload(paths: list[str], output: str, operation: str) -> str: ...
def import_trace(paths: list[str], output: str, capture: int, options: str) -> str: ...
def replay(path: str, capture: int, overrides: list[str], trace: str) -> str: ...
def calibrate(profile: str, inputs: list[str], options: str = "{}") -> str: ...
def explain_vmcb(
    path: str,
    dump: int = 0,
    features: list[str] = ...,
    profile: str = "",
    physical_address_bits: int = 0,
) -> str: ...
def hlt_table() -> str: ...

class Segment:
    """A segment register of a `Vmcb`."""

    selector: int
    attrib: int
    """Descriptor bits 55:52 and 47:40: type 3:0, S 4, DPL 6:5, P 7, AVL 8, L 9, D 10, G 11."""
    limit: int
    base: int

class Vmcb:
    """A VMCB, at first a legal one: a flat 64-bit guest with IF = 0 and nested paging.

    It intercepts VMRUN, VMMCALL and shutdown. Keyword arguments change it as `update` does. Every
    field is an attribute; `vmcb["int_ctl.v_irq"]` reaches named bits, `vmcb["cs.base"]` parts of
    segments. Values that do not fit raise `CaseError`.
    """

    def __init__(self, **fields: Any) -> None: ...
    @staticmethod
    def from_bytes(data: bytes) -> Vmcb:
        """Make one of a 4 KiB page."""
    def to_bytes(self) -> bytes: ...
    def update(self, **fields: Any) -> None:
        """Set fields, bits and intercepts, named and nested as in case files.

        ``vmcb.update(intercepts=["HLT", "-VMMCALL"], int_ctl={"v_irq": 1}, asid=2)``
        """
    def copy(self) -> Vmcb: ...
    def __getitem__(self, path: str) -> int: ...
    def __setitem__(self, path: str, value: int) -> None: ...
    @property
    def intercepts(self) -> list[str]:
        """Names of the intercepts that are set, as in the manual."""
    @property
    def exit(self) -> str:
        """Name and number of the exit code: ``HLT (78h)``."""
    def violations(
        self,
        features: Iterable[str] = (),
        knobs: Mapping[str, Any] = ...,
        limits: Mapping[str, Any] = ...,
        environment: Environment | None = None,
    ) -> list[dict[str, str]]:
        """Return the rules of VMRUN that it fails: `id`, `section` of APM vol. 2, and `text`.

        `features` are changes to a processor that has all: ``["-vnmi"]``.
        """
    @property
    def es(self) -> Segment: ...
    @property
    def cs(self) -> Segment: ...
    @property
    def ss(self) -> Segment: ...
    @property
    def ds(self) -> Segment: ...
    @property
    def fs(self) -> Segment: ...
    @property
    def gs(self) -> Segment: ...
    @property
    def gdtr(self) -> Segment: ...
    @property
    def ldtr(self) -> Segment: ...
    @property
    def idtr(self) -> Segment: ...
    @property
    def tr(self) -> Segment: ...
    intercepts_0: int
    intercepts_1: int
    intercepts_2: int
    intercepts_3: int
    intercepts_4: int
    intercepts_5: int
    pause_filter_thresh: int
    pause_filter_count: int
    iopm_base_pa: int
    msrpm_base_pa: int
    tsc_offset: int
    asid: int
    tlb_ctl: int
    erap_ctl: int
    int_ctl: int
    int_vector: int
    int_state: int
    exit_code: int
    exit_info_1: int
    exit_info_2: int
    exit_int_info: int
    exit_int_info_err: int
    nested_ctl: int
    avic_vapic_bar: int
    ghcb_gpa: int
    event_inj: int
    event_inj_err: int
    nested_cr3: int
    virt_ext: int
    clean: int
    next_rip: int
    insn_len: int
    avic_backing_page: int
    avic_logical_id: int
    avic_physical_id: int
    vmsa_pa: int
    vmgexit_rax: int
    vmgexit_cpl: int
    bus_lock_counter: int
    update_irr: int
    allowed_sev_features: int
    guest_sev_features: int
    vmpl: int
    cpl: int
    efer: int
    cr4: int
    cr3: int
    cr0: int
    dr7: int
    dr6: int
    rflags: int
    rip: int
    rsp: int
    s_cet: int
    ssp: int
    isst_addr: int
    rax: int
    star: int
    lstar: int
    cstar: int
    sfmask: int
    kernel_gs_base: int
    sysenter_cs: int
    sysenter_esp: int
    sysenter_eip: int
    cr2: int
    g_pat: int
    dbgctl: int
    br_from: int
    br_to: int
    last_excp_from: int
    last_excp_to: int
    spec_ctrl: int

class Environment:
    """What surrounds a guest: MSRs, ports, permission maps, nested pages, pending events, time.

    Keyword arguments are the keys that describe surroundings in case files.
    """

    tsc: int
    """Of the host, in cycles."""
    smi_pending: bool
    init_pending: bool
    nmi_pending: bool
    interrupts_pending: list[int]
    """Vectors, the next to take first; a copy."""
    def __init__(self, **surroundings: Any) -> None: ...
    def update(self, **surroundings: Any) -> None:
        """Change them: ``environment.update(msrs={0x10a: 5}, pending={"nmi": True})``."""
    def arrive(self, **events: Any) -> None:
        """Make more events pending: ``environment.arrive(intr=0x51)``."""
    def advance(self, cycles: int) -> None:
        """Let time pass."""
    @property
    def msrs(self) -> dict[int, int]: ...
    @property
    def ports(self) -> dict[int, int]: ...
    @property
    def vmcb_pages(self) -> dict[int, Vmcb]: ...

class Step:
    """What VMRUN, a boundary or an action led to."""

    @property
    def kind(self) -> str:
        """One of none, entered, retired, halted, delivered, vmexit, shutdown, reset."""
    @property
    def vector(self) -> int:
        """Of what was delivered."""
    @property
    def result(self) -> int:
        """Value read by a retired action, error code of what was delivered."""
    @property
    def exit_code(self) -> int | None: ...
    @property
    def exit(self) -> str | None:
        """Name and number of the exit code of a vmexit."""

class GuestCpu:
    """A core that executes guest actions under a VMCB: `vmrun`, then `step` until a vmexit.

    `features`, `knobs` and `limits` are named as in case files.
    """

    def __init__(
        self,
        environment: Environment | None = None,
        *,
        features: Iterable[str] = (),
        knobs: Mapping[str, Any] = ...,
        limits: Mapping[str, Any] = ...,
    ) -> None: ...
    def vmrun(self, vmcb: Vmcb, host_if: bool = True) -> Step:
        """Enter the guest; `host_if` is the host's RFLAGS.IF.

        Raises:
            RuntimeError: the guest is running.
        """
    def boundary(self) -> Step:
        """Look for events, as before every instruction; kind none when there is none."""
    def execute(self, action: str, **operands: Any) -> Step:
        """Execute one action at `rip`, without a look at events.

        ``cpu.execute("wrmsr", msr=0x10a, value=5)`` or ``cpu.execute("wrmsr msr=0x10a value=5")``.

        Raises:
            RuntimeError: the guest is not running, or halted.
            CaseError: the action or an operand does not exist.
        """
    def step(self, action: str, **operands: Any) -> Step:
        """`boundary`, and `execute` if no event came up."""
    rip: int
    @property
    def environment(self) -> Environment: ...
    @property
    def vmcb(self) -> Vmcb | None: ...
    @property
    def rflags(self) -> int: ...
    @property
    def cpl(self) -> int: ...
    @property
    def v_tpr(self) -> int: ...
    @property
    def running(self) -> bool: ...
    @property
    def halted(self) -> bool: ...
    @property
    def shut_down(self) -> bool: ...
    @property
    def gif(self) -> bool: ...
    @property
    def interrupt_shadow(self) -> bool: ...
    @property
    def frames(self) -> int:
        """Depth of handlers that have not returned."""

def vmcb_paths() -> list[str]: ...
def describe_actions() -> dict[str, dict[str, Any]]: ...
def check(files: list[str], tree: dict[str, Any] | None = None, glob: str = "") -> str: ...
def list_cases(files: list[str], glob: str = "") -> str: ...
def halt_poll_windows(
    halts_ns: list[int],
    halt_poll_ns: int = 200_000,
    grow: int = 2,
    grow_start: int = 10_000,
    shrink: int = 2,
) -> list[int]:
    """KVM's polling window at each halt."""

def guest_halt_poll_limits(
    blocks_ns: list[int],
    max_ns: int = 200_000,
    grow: int = 2,
    grow_start_ns: int = 50_000,
    shrink: int = 2,
    allow_shrink: bool = True,
) -> list[int]:
    """Haltpoll's limit before the first HLT and after each."""
