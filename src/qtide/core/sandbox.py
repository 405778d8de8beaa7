"""A sandbox for a process that reads untrusted bytes: it can compute and do little else.

It uses kernel features that need no privileges: resource limits; a seccomp filter that passes only
the system calls that reading needs; and, if available, Landlock, which leaves only Python's own
files readable. On processors other than those below, only the limits apply.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER_MODE = 38, 22, 2
"""Arguments of prctl (linux/prctl.h, linux/seccomp.h)."""
LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
"""Filter instructions (linux/bpf_common.h)."""
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NUMBER_AT, ARCHITECTURE_AT, ARGUMENTS_AT = 0, 4, 16
ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

ALLOWED = {
    "x86_64": {
        "read": 0, "write": 1, "close": 3, "stat": 4, "fstat": 5, "lstat": 6, "poll": 7,
        "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11, "brk": 12, "rt_sigaction": 13,
        "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "readv": 19, "writev": 20,
        "access": 21, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32,
        "nanosleep": 35, "getpid": 39, "exit": 60, "uname": 63, "getdents": 78,
        "getcwd": 79, "readlink": 89, "gettimeofday": 96, "getrlimit": 97, "getrusage": 98,
        "sysinfo": 99, "times": 100, "getuid": 102, "getgid": 104, "geteuid": 107,
        "getegid": 108, "getppid": 110, "sigaltstack": 131, "arch_prctl": 158, "gettid": 186,
        "futex": 202, "sched_getaffinity": 204, "getdents64": 217, "set_tid_address": 218,
        "restart_syscall": 219, "clock_gettime": 228, "clock_getres": 229,
        "clock_nanosleep": 230, "exit_group": 231, "newfstatat": 262, "readlinkat": 267,
        "faccessat": 269, "pselect6": 270, "ppoll": 271, "set_robust_list": 273, "getcpu": 309,
        "getrandom": 318, "membarrier": 324, "statx": 332, "rseq": 334, "faccessat2": 439,
    },
    "aarch64": {
        "getcwd": 17, "dup": 23, "faccessat": 48, "close": 57, "getdents64": 61,
        "lseek": 62, "read": 63, "write": 64, "readv": 65, "writev": 66, "pread64": 67,
        "pselect6": 72, "ppoll": 73, "readlinkat": 78, "newfstatat": 79, "fstat": 80, "exit": 93,
        "exit_group": 94, "set_tid_address": 96, "futex": 98, "set_robust_list": 99,
        "nanosleep": 101, "clock_gettime": 113, "clock_getres": 114, "clock_nanosleep": 115,
        "sched_getaffinity": 123, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132,
        "rt_sigaction": 134, "rt_sigprocmask": 135, "rt_sigreturn": 139, "times": 153,
        "uname": 160, "getrlimit": 163, "getrusage": 165, "getcpu": 168, "gettimeofday": 169,
        "getpid": 172, "getppid": 173, "getuid": 174, "geteuid": 175, "getgid": 176,
        "getegid": 177, "gettid": 178, "sysinfo": 179, "brk": 214, "munmap": 215, "mremap": 216,
        "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278, "membarrier": 283,
        "statx": 291, "rseq": 293, "faccessat2": 439,
    },
}  # fmt: skip
"""System calls that reading needs, with their numbers; all others fail with EPERM."""
OPENING = {"x86_64": [(2, 1), (257, 2)], "aarch64": [(56, 2)]}
"""open and openat, and the index of their flags argument: only reading is allowed."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | 0o20000000
CLONE = {"x86_64": 56, "aarch64": 220}
"""Threads are allowed, processes are not."""
CLONE_THREAD = 0x10000
CLONE3 = 435
"""Fails with ENOSYS, as a filter cannot see its flags; the C library falls back to clone."""
ONE_OF = {
    "x86_64": [(302, 0, (0,)), (72, 1, (0, 1, 2, 3, 4, 1030))],
    "aarch64": [(261, 0, (0,)), (25, 1, (0, 1, 2, 3, 4, 1030))],
}
"""prlimit64 and fcntl, each with the index of an argument and its allowed values.

A limit may be changed of the process itself only. An open file may be duplicated, and its flags
read and set; but no process can be named as its owner (F_SETOWN), which the kernel would signal.
"""

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""Landlock's system calls, the same on every processor (linux/landlock.h)."""
READ_FILE, READ_DIR, EVERYTHING = 1 << 2, 1 << 3, (1 << 13) - 1
BENEATH = 1
READABLE = ("/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo", "/dev/null")
"""Readable besides Python's own folders, e.g. for shared libraries that are loaded late."""


def confine(memory: int | None = None) -> None:
    """Confine this process for good; `memory` is how many more bytes it may allocate."""
    if memory is not None:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        _limit(resource.RLIMIT_AS, pages * resource.getpagesize() + memory)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    allow_reading_only()


def allow_reading_only() -> bool:
    """Make everything but reading fail from now on; return whether the kernel agreed."""
    machine = platform.machine()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl.argtypes = (ctypes.c_int, *[ctypes.c_ulong] * 4)
    if machine not in ALLOWED or libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        return False
    _hide_files(libc)
    code = _filter(machine)
    words = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(words))
    place = ctypes.create_string_buffer(program)
    return bool(libc.prctl(SET_SECCOMP, FILTER_MODE, ctypes.addressof(place), 0, 0) == 0)


def _hide_files(libc: ctypes.CDLL) -> bool:
    """Leave only Python's files and shared libraries readable; return whether that worked."""
    handled = ctypes.create_string_buffer(struct.pack("Q", EVERYTHING), 8)
    rules: int = libc.syscall(CREATE_RULESET, handled, ctypes.c_size_t(8), 0)
    if rules < 0:
        return False
    try:
        for path in {sys.prefix, sys.base_prefix, *sys.path, *READABLE} - {str(Path.cwd())}:
            with suppress(OSError):
                place = os.open(path, os.O_PATH | os.O_CLOEXEC)
                allowed = READ_FILE | (READ_DIR if Path(path).is_dir() else 0)
                rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, place), 12)
                libc.syscall(ADD_RULE, rules, BENEATH, rule, 0)
                os.close(place)
        return bool(libc.syscall(RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _filter(machine: str) -> bytes:
    """Build the filter: allowed calls pass; others, and other architectures' calls, fail."""
    refusal = _instruction(RETURN, FAIL | errno.EPERM)
    allow = _instruction(RETURN, ALLOW)
    code = [
        _instruction(LOAD, ARCHITECTURE_AT),
        _instruction(EQUAL, ARCHITECTURE[machine], 1, 0),
        refusal,
        _instruction(LOAD, NUMBER_AT),
        _instruction(EQUAL, CLONE3, 0, 1),
        _instruction(RETURN, FAIL | errno.ENOSYS),
    ]
    for number, argument in OPENING[machine]:
        code += _if_call(number, argument, _instruction(ANY_BIT, WRITING, 1, 0), allow, refusal)
    code += _if_call(CLONE[machine], 0, _instruction(ANY_BIT, CLONE_THREAD, 0, 1), allow, refusal)
    for number, argument, values in ONE_OF[machine]:
        tests = _any_of(values)
        load = _instruction(LOAD, ARGUMENTS_AT + 8 * argument)
        code.append(_instruction(EQUAL, number, 0, len(tests) + 3))
        code += [load, *tests, refusal, allow]
    return b"".join([*code, *_any_of(ALLOWED[machine].values()), refusal, allow])


def _any_of(values: Collection[int]) -> list[bytes]:
    """Tests that jump to the second instruction behind them if one holds, else to the first."""
    lefts = range(len(values), 0, -1)
    return [_instruction(EQUAL, value, left, 0) for left, value in zip(lefts, values, strict=True)]


def _if_call(number: int, argument: int, test: bytes, allow: bytes, refuse: bytes) -> list[bytes]:
    """Test an argument of one call; the test's jumps select `allow` or `refuse` after it.

    Only the lower four of an argument's eight bytes are tested, which hold flags or process ids.
    """
    load = _instruction(LOAD, ARGUMENTS_AT + 8 * argument)
    return [_instruction(EQUAL, number, 0, 4), load, test, allow, refuse]


def _instruction(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("HBBI", code, then, otherwise, value)


def _limit(kind: int, most: int) -> None:
    """Lower a limit for good."""
    _, hard = resource.getrlimit(kind)
    if hard != resource.RLIM_INFINITY:
        most = min(most, hard)
    resource.setrlimit(kind, (most, most))
