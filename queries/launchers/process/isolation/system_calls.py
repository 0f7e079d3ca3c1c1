"""The system calls that a driver can make: an allowlist enforced by the kernel (seccomp(2)).

The list contains the calls that a JVM, Python and their libraries need, but none that container
engines reject too: namespaces, mounts, modules, keys, BPF, io_uring, clocks, virtual machines'
sockets. Other calls fail like calls that the kernel does not have (ENOSYS), for which libraries
have a fallback. libseccomp creates the filter program for this processor.
"""

import ctypes
import errno
import os
from pathlib import Path

from queries.launchers.process.isolation.trial import IsolationMissing

LIBRARY = "libseccomp.so.2"
_ALLOW, _REFUSE = 0x7FFF_0000, 0x0005_0000 | errno.ENOSYS  # seccomp.h: SCMP_ACT_…
_EQUAL, _MASKED = 4, 7  # SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ
_OPTIMIZE, _TREE = 8, 2  # SCMP_FLTATR_CTL_OPTIMIZE: a search, not a list
_NEW_NAMESPACES = 0x7E02_0000  # sched.h: every CLONE_NEW… that clone(2) accepts
_FAMILIES = (1, 2, 10, 16)  # socket.h: AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_PERSONAS = (0, 0x0002_0000, 0xFFFF_FFFF)  # Linux; without random addresses (debuggers); a question

_ALLOWED = """
read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek _llseek close
close_range dup dup2 dup3 fcntl fcntl64 ioctl open openat openat2 creat pipe pipe2 sendfile
sendfile64 splice tee vmsplice copy_file_range readahead fadvise64 fadvise64_64 fallocate fsync
fdatasync sync syncfs sync_file_range ftruncate ftruncate64 truncate truncate64 flock cachestat
stat stat64 lstat lstat64 fstat fstat64 fstatat64 newfstatat statx statfs statfs64 fstatfs
fstatfs64 access faccessat faccessat2 readlink readlinkat getdents getdents64 getcwd chdir fchdir
mkdir mkdirat rmdir rename renameat renameat2 link linkat symlink symlinkat unlink unlinkat mknod
mknodat chmod fchmod fchmodat fchmodat2 chown chown32 fchown fchown32 fchownat lchown lchown32
umask utime utimes utimensat utimensat_time64 futimesat getxattr lgetxattr fgetxattr listxattr
llistxattr flistxattr setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr
inotify_init inotify_init1 inotify_add_watch inotify_rm_watch
poll ppoll ppoll_time64 select _newselect pselect6 pselect6_time64 epoll_create epoll_create1
epoll_ctl epoll_wait epoll_pwait epoll_pwait2 eventfd eventfd2 signalfd signalfd4 io_setup
io_destroy io_submit io_cancel io_getevents io_pgetevents io_pgetevents_time64
brk mmap mmap2 munmap mremap mprotect madvise mincore msync mlock mlock2 mlockall munlock
munlockall remap_file_pages memfd_create membarrier pkey_alloc pkey_free pkey_mprotect
map_shadow_stack shmget shmat shmctl shmdt semget semop semctl semtimedop semtimedop_time64 msgget
msgsnd msgrcv msgctl ipc mq_open mq_unlink mq_timedsend mq_timedsend_time64 mq_timedreceive
mq_timedreceive_time64 mq_notify mq_getsetattr
fork vfork execve execveat exit exit_group wait4 waitid waitpid kill tkill tgkill pidfd_open
pidfd_send_signal getpid getppid gettid getpgid getpgrp setpgid getsid setsid set_tid_address
set_robust_list get_robust_list rseq futex futex_time64 futex_waitv futex_wake futex_wait
futex_requeue restart_syscall prctl arch_prctl set_thread_area get_thread_area set_tls cacheflush
riscv_flush_icache riscv_hwprobe ptrace process_vm_readv process_vm_writev process_mrelease
rt_sigaction rt_sigprocmask rt_sigpending rt_sigtimedwait rt_sigtimedwait_time64 rt_sigsuspend
rt_sigqueueinfo rt_tgsigqueueinfo rt_sigreturn sigaltstack sigreturn sigprocmask pause alarm
sched_yield sched_getaffinity sched_setaffinity sched_getparam sched_setparam sched_getscheduler
sched_setscheduler sched_getattr sched_setattr sched_get_priority_max sched_get_priority_min
sched_rr_get_interval sched_rr_get_interval_time64 getpriority setpriority ioprio_get ioprio_set
getcpu getrlimit ugetrlimit setrlimit prlimit64 getrusage times sysinfo uname getrandom
getuid getuid32 geteuid geteuid32 getgid getgid32 getegid getegid32 getresuid getresuid32 getresgid
getresgid32 getgroups getgroups32 setuid setuid32 setgid setgid32 setreuid setreuid32 setregid
setregid32 setresuid setresuid32 setresgid setresgid32 setgroups setgroups32 setfsuid setfsuid32
setfsgid setfsgid32 capget capset seccomp landlock_create_ruleset landlock_add_rule
landlock_restrict_self
socketpair bind listen accept accept4 connect getsockname getpeername getsockopt setsockopt
send sendto sendmsg sendmmsg recv recvfrom recvmsg recvmmsg recvmmsg_time64 shutdown
time gettimeofday clock_gettime clock_gettime64 clock_getres clock_getres_time64 clock_nanosleep
clock_nanosleep_time64 nanosleep getitimer setitimer timer_create timer_settime timer_settime64
timer_gettime timer_gettime64 timer_getoverrun timer_delete timerfd_create timerfd_settime
timerfd_settime64 timerfd_gettime timerfd_gettime64
"""


class _Compared(ctypes.Structure):
    """struct scmp_arg_cmp of seccomp.h."""

    _fields_ = (
        ("argument", ctypes.c_uint),
        ("operator", ctypes.c_int),
        ("first", ctypes.c_uint64),
        ("second", ctypes.c_uint64),
    )


def compiled() -> int:
    """Return a descriptor for the filter's program, at its start; the caller must close it.

    Raises `IsolationMissing` if the library is missing or the kernel does not support filters.
    """
    if not Path("/proc/sys/kernel/seccomp/actions_avail").exists():
        raise IsolationMissing("the kernel does not support system call filters.")
    try:
        library = ctypes.CDLL(LIBRARY)
    except OSError:
        raise IsolationMissing(
            f"{LIBRARY} is not installed; it is in the libseccomp2 package."
        ) from None
    library.seccomp_init.restype = ctypes.c_void_p
    made = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(_REFUSE)))
    descriptor = os.memfd_create("headgate-system-calls")
    try:
        library.seccomp_attr_set(made, _OPTIMIZE, _TREE)  # before 2.5: a list, which works too
        for name in _ALLOWED.split():
            _allow(library, made, name)
        for family in _FAMILIES:
            _allow(library, made, "socket", _Compared(0, _EQUAL, family, 0))
        for persona in _PERSONAS:
            _allow(library, made, "personality", _Compared(0, _EQUAL, persona, 0))
        flags = 1 if os.uname().machine == "s390x" else 0  # the order of clone's arguments
        _allow(library, made, "clone", _Compared(flags, _MASKED, _NEW_NAMESPACES, 0))
        _insist(library.seccomp_export_bpf(made, descriptor), "the filter")
    except BaseException:
        os.close(descriptor)
        raise
    finally:
        library.seccomp_release(made)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _allow(library: ctypes.CDLL, made: ctypes.c_void_p, name: str, *compared: _Compared) -> None:
    """Allow a call, if this processor's kernel and this library have it."""
    number = library.seccomp_syscall_resolve_name(name.encode())
    if number < 0:
        return
    compares = (_Compared * len(compared))(*compared)
    rule = (ctypes.c_uint32(_ALLOW), number, len(compared), compares)
    _insist(library.seccomp_rule_add_array(made, *rule), name)


def _insist(code: int, what: str) -> None:
    if code < 0:
        raise IsolationMissing(f"libseccomp refuses {what}: {os.strerror(-code)}.")
