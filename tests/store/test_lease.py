"""A lease: one holder at a time, whoever asks and whoever sleeps."""

import errno
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import lease_racer
import pytest
from patience import PATIENCE, wait_until

from lately.core.errors import LeaseError
from lately.store import lease as module
from lately.store.lease import Lease, Process, Renewal, lease_folder

NOON = 1_770_000_000.0


class Clock:
    """Time as a test has it."""

    def __init__(self, now=NOON):
        self.now = now

    def __call__(self):
        return self.now


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path / "state" / "lease")


def lease_content(folder, number):
    return json.loads(Path(f"{folder}/{number:012d}.json").read_text())


def rewrite(folder, number, **changes):
    """Make a lease that of another process, ``process`` being what is different about that."""
    content = lease_content(folder, number)
    process = changes.pop("process", {})
    content |= changes | {"process": content["process"] | process}
    Path(f"{folder}/{number:012d}.json").write_text(json.dumps(content))


# -- one holder ----------------------------------------------------------------------------------------------------------


def test_who_comes_second_is_refused_with_who_holds_it_since_when_and_until_when(folder):
    clock = Clock()
    first = Lease.take(folder, 60, clock)
    clock.now += 15
    with pytest.raises(LeaseError) as refused:
        Lease.take(folder, 60, clock)
    text = str(refused.value)
    assert f"another run holds the lease in '{folder}': process {os.getpid()} on {socket.gethostname()}" in text
    assert "since 2026-02-02T02:40:00Z" in text
    assert "expires in 45 s, at 2026-02-02T02:41:00Z" in text
    assert os.listdir(folder) == ["000000000001.json"]
    first.check()


def test_a_lease_that_is_released_is_free_at_once(folder):
    for number in range(1, 5):
        lease = Lease.take(folder, 3600)
        assert lease.number == number
        lease.check()
        lease.release()
    assert os.listdir(folder) == ["000000000004.json"]  # those before it are of no use to anybody
    assert lease_content(folder, 4)["released"]


def test_a_lease_expires_unless_it_is_renewed(folder):
    clock = Clock()
    first = Lease.take(folder, 60, clock)
    for _ in range(5):
        clock.now += 59
        with pytest.raises(LeaseError, match="holds the lease"):
            Lease.take(folder, 60, clock)
        first.renew()
    clock.now += 59.9
    with pytest.raises(LeaseError, match="holds the lease"):
        Lease.take(folder, 1, clock)  # it lasts as long as its holder says
    clock.now += 0.1
    second = Lease.take(folder, 60, clock)
    assert second.number == 2
    second.check()


def test_being_late_is_not_fatal_while_nobody_has_taken_over(folder):
    clock = Clock()
    lease = Lease.take(folder, 60, clock)
    clock.now += 10_000
    lease.check()
    lease.renew()
    with pytest.raises(LeaseError, match=r"since 2026-02-02T02:40:00Z.*expires in 60 s"):
        Lease.take(folder, 60, clock)


def test_who_was_overtaken_can_neither_go_on_nor_disturb(folder):
    clock = Clock()
    first = Lease.take(folder, 60, clock)
    clock.now += 61
    second = Lease.take(folder, 60, clock)
    before = lease_content(folder, 2)
    for refused in (first.check, first.renew, pickle.loads(pickle.dumps(replaced(first))).check):
        with pytest.raises(LeaseError, match=rf"another run \(process {os.getpid()} on .*\) has taken over while this one"):
            refused()
    first.release()
    assert (os.listdir(folder), lease_content(folder, 2)) == (["000000000002.json"], before)
    second.check()
    second.release()
    with pytest.raises(LeaseError, match="has taken over"):
        first.check()
    third = Lease.take(folder, 60, clock)
    assert third.number == 3
    with pytest.raises(LeaseError, match="has taken over"):
        first.check()


def replaced(lease):
    """The same with a clock that can be pickled."""
    return Lease(lease.folder, lease.number, lease.token, lease.since, lease.seconds)


# -- processes that are gone ---------------------------------------------------------------------------------------------

HOLD = """
import sys, time
from lately.store.lease import Lease
Lease.take(sys.argv[1], 3600)
print("held", flush=True)
time.sleep(600)
"""


def holding(folder):
    process = subprocess.Popen([sys.executable, "-c", HOLD, folder], stdout=subprocess.PIPE, env=environment())
    assert process.stdout.readline() == b"held\n"
    return process


def environment():
    return os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="only Linux tells when a process started")
def test_the_lease_of_a_process_that_was_killed_is_free_at_once(folder):
    with holding(folder) as process:
        with pytest.raises(LeaseError, match=f"process {process.pid} on "):
            Lease.take(folder, 3600)
        os.kill(process.pid, signal.SIGSTOP)  # one that sleeps is not dead
        with pytest.raises(LeaseError, match=f"process {process.pid} on "):
            Lease.take(folder, 3600)
        process.kill()
        # Before its parent, which is this process, has asked for its end: it is a zombie then.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        lease = Lease.take(folder, 3600)
        assert lease.number == 2
        lease.check()


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="only Linux tells when a process started")
def test_another_process_with_the_same_pid_does_not_hold_it(folder):
    Lease.take(folder, 3600)
    rewrite(folder, 1, process={"started": Process.current().started - 1})
    assert Lease.take(folder, 3600).number == 2


@pytest.mark.parametrize("elsewhere", [{"boot": "another"}, {"namespace": "pid:[1]"}, {"started": None}, {"boot": None}])
def test_of_a_process_elsewhere_nobody_knows_whether_it_is_gone(folder, elsewhere):
    clock = Clock()
    Lease.take(folder, 60, clock)
    rewrite(folder, 1, process={"host": "far-away", "pid": 4_194_305} | elsewhere)
    with pytest.raises(LeaseError, match="process 4194305 on far-away"):
        Lease.take(folder, 60, clock)
    clock.now += 60
    assert Lease.take(folder, 60, clock).number == 2


# -- races ---------------------------------------------------------------------------------------------------------------


def leave_expired(folder):
    Lease.take(folder, 60, Clock(NOON))


def leave_released(folder):
    Lease.take(folder, 3600).release()


def leave_several(folder):
    for _ in range(3):
        leave_released(folder)


BEFORE = {"nothing": lambda folder: None, "expired": leave_expired, "released": leave_released, "several": leave_several}


@pytest.mark.parametrize("left", BEFORE.values(), ids=BEFORE)
def test_of_many_threads_one_gets_it(tmp_path, left):
    for number in range(60):
        folder = str(tmp_path / str(number))
        left(folder)
        won, barrier = [], threading.Barrier(6)

        def take(folder=folder, won=won, barrier=barrier):
            barrier.wait()
            try:
                won.append(Lease.take(folder, 3600))
            except LeaseError:
                return

        threads = [threading.Thread(target=take) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        won[0].check()


def test_of_many_processes_one_gets_it(tmp_path):
    rounds, names = 80, "abcd"
    for number in range(rounds):
        list(BEFORE.values())[number % len(BEFORE)](str(tmp_path / str(number)))
    command = [sys.executable, lease_racer.__file__, str(tmp_path)]
    processes = [subprocess.Popen([*command, name, str(len(names)), str(rounds)], env=environment()) for name in names]
    assert [process.wait(timeout=PATIENCE) for process in processes] == [0] * len(names)
    for number in range(rounds):
        winners = list(tmp_path.glob(f"{number}-winner-*"))
        assert len(winners) == 1, number
        newest = max(int(path.stem) for path in (tmp_path / str(number)).glob("*.json"))
        assert lease_content(tmp_path / str(number), newest)["token"] == winners[0].read_text()


def test_a_number_that_is_free_because_others_came_and_went_is_no_lease(folder, monkeypatch):
    """It slept between looking and creating; two others have held the lease meanwhile, and the second one still does."""
    write, others = module.write_new, []

    def slept(*args):
        monkeypatch.setattr(module, "write_new", write)
        Lease.take(folder, 3600).release()
        others.append(Lease.take(folder, 3600))
        assert os.listdir(folder) == ["000000000002.json"]
        write(*args)

    monkeypatch.setattr(module, "write_new", slept)
    with pytest.raises(LeaseError, match="another run holds the lease"):
        Lease.take(folder, 3600)
    others[0].check()
    assert os.listdir(folder) == ["000000000002.json"]


def test_a_disk_without_hard_links_has_leases(folder, monkeypatch):
    def none(*_):
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", none)
    first = Lease.take(folder, 3600)
    first.renew()
    with pytest.raises(LeaseError, match="holds the lease"):
        Lease.take(folder, 3600)
    first.release()
    assert Lease.take(folder, 3600).number == 2


def test_a_lease_is_released_on_a_full_disk(folder, monkeypatch):
    lease = Lease.take(folder, 3600)

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(module, "write_whole", full)
        lease.release()
    assert lease_content(folder, 1)["released"]
    assert lease_content(folder, 1)["token"] == lease.token
    assert Lease.take(folder, 3600).number == 2


# -- what is not as it was written ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "{", "[]", '{"token": "x"}', "null"])
def test_a_damaged_lease_holds_until_it_expires(folder, text):
    os.makedirs(folder)
    path = Path(folder) / "000000000003.json"
    path.write_text(text)
    os.utime(path, (NOON, NOON))
    clock = Clock(NOON + 59)
    with pytest.raises(LeaseError, match=r"a host that is not known, since 2026-02-02T02:40:00Z.*expires in 1 s"):
        Lease.take(folder, 60, clock)
    clock.now += 1
    assert Lease.take(folder, 60, clock).number == 4


def test_files_of_others_are_no_leases(folder):
    os.makedirs(folder)
    for name in ("notes.txt", "about.json", ".000000000009.json.1234"):
        (Path(folder) / name).write_text("{}")
    lease = Lease.take(folder, 60)
    assert lease.number == 1
    lease.check()
    assert len(os.listdir(folder)) == 4


def test_a_lease_that_somebody_has_deleted_is_held_while_nobody_has_taken_it(folder):
    lease = Lease.take(folder, 60)
    shutil.rmtree(folder)
    lease.check()
    lease.renew()
    assert lease_content(folder, 1)["token"] == lease.token
    shutil.rmtree(folder)
    other = Lease.take(folder, 60)
    assert other.number == lease.number
    for refused in (lease.check, lease.renew):
        with pytest.raises(LeaseError, match="has taken over"):
            refused()
    lease.release()
    other.check()
    assert not lease_content(folder, 1)["released"]


# -- renewing ------------------------------------------------------------------------------------------------------------


def test_a_lease_is_renewed_until_it_is_lost(folder):
    lease, lost = Lease.take(folder, 0.05), threading.Event()
    with Renewal(lease, lost.set):
        for _ in range(3):
            before = lease_content(folder, 1)["renewed"]
            wait_until(lambda before=before: lease_content(folder, 1)["renewed"] > before)
        assert not lost.is_set()
        rewrite_as_taken_over(folder)
        assert lost.wait(PATIENCE)
    lease.release()
    assert not lease_content(folder, 2)["released"]


def rewrite_as_taken_over(folder):
    other = Lease(folder, 2, "another", NOON, 60)
    Path(f"{folder}/000000000002.json").write_bytes(other._content())


def test_a_disk_that_fails_for_a_while_does_not_lose_the_lease(folder):
    lease, lost = Lease.take(folder, 0.05), threading.Event()
    with Renewal(lease, lost.set):
        os.rename(folder, f"{folder} away")
        Path(folder).write_text("no directory")  # so that nothing can be written
        time.sleep(0.2)
        os.unlink(folder)
        os.rename(f"{folder} away", folder)
        before = lease_content(folder, 1)["renewed"]
        wait_until(lambda: lease_content(folder, 1)["renewed"] > before)
    assert not lost.is_set()
    lease.check()


def test_a_renewal_that_has_ended_writes_no_more(folder):
    lease = Lease.take(folder, 0.01)
    with Renewal(lease, lambda: None):
        pass
    lease.release()
    assert lease_content(folder, 1)["released"]
    assert [thread for thread in threading.enumerate() if thread.name == "lease"] == []


def test_only_local_and_mounted_disks_have_leases(tmp_path):
    assert lease_folder(f"file://{tmp_path}/a state") == f"{tmp_path}/a state/lease"
    assert lease_folder(str(tmp_path), ".lease") == f"{tmp_path}/.lease"
    assert lease_folder("memory://bucket/state") is None
