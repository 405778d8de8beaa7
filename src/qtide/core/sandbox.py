"""A sandbox for a process that reads untrusted bytes: little memory, no network, no new programs.

It uses what the kernel offers to everybody: resource limits, and a filter of system calls. Where
there is no filter, as on other processors, the limits hold alone.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import resource
import struct
from pathlib import Path

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 38, 22, 2
"""Arguments of prctl (linux/prctl.h, linux/seccomp.h)."""
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
"""Instructions of a filter (linux/bpf_common.h)."""
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT = 0, 4

FORBIDDEN = {
    "x86_64": {
        "socket": 41, "connect": 42, "accept": 43, "sendto": 44, "bind": 49, "listen": 50,
        "socketpair": 53, "execve": 59, "kill": 62, "rename": 82, "mkdir": 83, "rmdir": 84,
        "link": 86, "unlink": 87, "symlink": 88, "chmod": 90, "chown": 92, "ptrace": 101,
        "mount": 165, "unlinkat": 263, "renameat": 264, "process_vm_readv": 310,
        "process_vm_writev": 311, "renameat2": 316, "bpf": 321, "execveat": 322,
        "io_uring_setup": 425,
    },
    "aarch64": {
        "socket": 198, "socketpair": 199, "bind": 200, "listen": 201, "accept": 202,
        "connect": 203, "sendto": 206, "execve": 221, "kill": 129, "ptrace": 117, "mount": 40,
        "mkdirat": 34, "unlinkat": 35, "symlinkat": 36, "linkat": 37, "renameat": 38,
        "fchmodat": 53, "fchownat": 54, "process_vm_readv": 270, "process_vm_writev": 271,
        "renameat2": 276, "bpf": 280, "execveat": 281, "io_uring_setup": 425,
    },
}  # fmt: skip
"""System calls that reading needs none of, by their numbers."""
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def confine(memory: int | None = None) -> None:
    """Confine this process for good; `memory` is what it may take beyond what it has."""
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    forbid_calls()


def forbid_calls() -> bool:
    """Let network, programs and changes of files fail from now on; whether the kernel agreed."""
    machine = platform.machine()
    if machine not in FORBIDDEN:
        return False
    code = _filter(machine)
    words = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(words))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    place = ctypes.create_string_buffer(program)
    return bool(libc.prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(place), 0, 0) == 0)


def _filter(machine: str) -> bytes:
    """Each forbidden call fails with EPERM; calls of another architecture are all forbidden."""
    numbers = FORBIDDEN[machine].values()
    refusal = FAIL | errno.EPERM
    code = [
        _instruction(LOAD, ARCHITECTURE_AT),
        _instruction(EQUAL, ARCHITECTURE[machine], 1, 0),
        _instruction(RETURN, refusal),
        _instruction(LOAD, NUMBER_AT),
    ]
    for left, number in zip(range(len(numbers), 0, -1), numbers, strict=True):
        code.append(_instruction(EQUAL, number, left, 0))
    return b"".join([*code, _instruction(RETURN, ALLOW), _instruction(RETURN, refusal)])


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)


def _limit(kind: int, most: int) -> None:
    """Lower a limit, which nobody may raise again."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
