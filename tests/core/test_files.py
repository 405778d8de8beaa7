"""Files that others rely on: written atomically, secret from the start, locked by one process."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from qtide.core.errors import UsageError
from qtide.core.files import (
    SECRET,
    Locked,
    check_own,
    config_folder,
    lock,
    state_folder,
    write_whole,
)
from qtide.core.sockets import free_ports


def test_a_file_is_replaced_as_a_whole(tmp_path: Path) -> None:
    file = tmp_path / "file"
    write_whole(file, b"old")
    with file.open("rb") as reader:
        write_whole(file, b"the new content")
        assert reader.read() == b"old"  # an open handle still reads the old content
    assert file.read_bytes() == b"the new content"
    assert list(tmp_path.iterdir()) == [file]


def test_a_secret_is_for_its_owner_alone_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        write_whole(tmp_path / "secret", b"s", SECRET)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600


def test_a_failed_write_leaves_the_old_file_and_no_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_whole(tmp_path / "file", b"old")

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "file", b"new")
    assert [each.read_bytes() for each in tmp_path.iterdir()] == [b"old"]


def test_a_lock_is_for_one_process_and_goes_with_it(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    code = (
        "import os, sys; from qtide.core.files import lock\n"
        "lock(os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)); print('held', flush=True); input()"
    )
    other = subprocess.Popen(
        [sys.executable, "-c", code, file],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert other.stdout is not None and other.stdout.readline() == "held\n"
        handle = os.open(file, os.O_RDWR)
        with pytest.raises(Locked):
            lock(handle)
        with pytest.raises(Locked):
            lock(handle, shared=True)
    finally:
        other.kill()
        other.wait()
    lock(handle)
    os.close(handle)


def test_folders_follow_the_users_wishes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    assert state_folder() == tmp_path / "state" / "qtide"
    assert config_folder() == Path.home() / ".config" / "qtide"


def test_free_ports_are_different() -> None:
    assert len(set(free_ports(20))) == 20


def test_other_files_follow_the_mask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        write_whole(tmp_path / "mine", b"m")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "mine").stat().st_mode) == SECRET


def test_what_others_own_or_everybody_can_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    file.touch(0o644)
    check_own(file, "leave it")
    file.chmod(0o646)
    with pytest.raises(UsageError, match=r"can be written by everybody; .* chmod o-w"):
        check_own(file, "leave it")
    file.chmod(0o644)
    owner = file.stat().st_uid
    if owner != 0:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    else:
        os.chown(file, 12345, -1)
    with pytest.raises(UsageError, match=r"belongs to another user .*; leave it"):
        check_own(file, "leave it")
