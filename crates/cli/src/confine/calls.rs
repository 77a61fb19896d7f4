//! seccomp: the system calls of a server. All others fail as on a kernel that does not have them (ENOSYS), which the C
//! library and Rust's know how to handle.
//!
//! The kernel remembers which calls are always allowed (since Linux 5.11), so that one costs a few nanoseconds more,
//! with or without arguments that the filter looks at.

use std::collections::BTreeMap;
use std::env::consts::ARCH;

use libc::c_long;
use seccompiler::{
    BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

use super::{Error, Needs};

/// Calls with any arguments.
const ALLOWED: &[c_long] = &[
    // Descriptors that are open, and files that the user may read; Landlock says what is written.
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_pread64,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_close,
    libc::SYS_lseek,
    libc::SYS_openat,
    libc::SYS_openat2,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_readlinkat,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_getdents64,
    libc::SYS_getcwd,
    libc::SYS_fcntl,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_pipe2,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    // Results of an agent: whole files by renaming.
    libc::SYS_pwrite64,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_linkat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_fchmod,
    libc::SYS_mkdirat,
    // Sockets.
    libc::SYS_socket,
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_connect,
    libc::SYS_shutdown,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_recvfrom,
    libc::SYS_sendmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvmmsg,
    // Waiting, and time.
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_eventfd2,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    // Memory.
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_mprotect,
    libc::SYS_madvise,
    libc::SYS_brk,
    // Threads and signals.
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_rseq,
    libc::SYS_membarrier,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_getcpu,
    libc::SYS_set_tid_address,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_tgkill,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_prctl,
    libc::SYS_wait4,
    libc::SYS_kill,
    // What the process is, and how much it has used.
    libc::SYS_getpid,
    libc::SYS_gettid,
    libc::SYS_getppid,
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getrusage,
    libc::SYS_prlimit64,
    libc::SYS_uname,
    libc::SYS_sysinfo,
    libc::SYS_getrandom,
    libc::SYS_capget,
    // Maps of programs that are loaded already, and their counters; loading takes a capability.
    libc::SYS_bpf,
    // Of other processes: their descriptors, by an exporter that keeps CAP_SYS_PTRACE.
    libc::SYS_pidfd_open,
    libc::SYS_pidfd_getfd,
];

/// Calls that newer architectures do not have.
#[cfg(target_arch = "x86_64")]
const OLDER: &[c_long] = &[
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_poll,
    libc::SYS_select,
    libc::SYS_epoll_wait,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_time,
    libc::SYS_arch_prctl,
    libc::SYS_link,
    libc::SYS_chmod,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[c_long] = &[];

/// Requests (ioctl(2)) that type into a terminal, or paste there: TIOCSTI and TIOCLINUX (asm-generic/ioctls.h;
/// tty_ioctl(4), ioctl_console(2)). stderr may be the terminal of the root shell that started the server. The kernel
/// looks at 32 bits of a request.
const TYPING: [u64; 2] = [0x5412, 0x541c];

/// Restricts all threads.
pub(super) fn restrict(needs: &Needs<'_>) -> Result<(), Error> {
    let program = filter().map_err(|error| Error::Calls(error.into()))?;
    match seccompiler::apply_filter_all_threads(&program) {
        // A kernel without seccomp, or a filter around this process that forbids further ones.
        Err(seccompiler::Error::Seccomp(error) | seccompiler::Error::Prctl(error)) if is_missing(&error) => {
            needs.refused("seccomp", error.to_string(), "every system call can still be made")
        }
        done => done.map_err(Error::Calls),
    }
}

fn is_missing(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EINVAL | libc::EPERM))
}

fn filter() -> Result<BpfProgram, BackendError> {
    let mut rules: BTreeMap<c_long, Vec<SeccompRule>> =
        ALLOWED.iter().chain(OLDER).map(|call| (*call, Vec::new())).collect();
    // Threads, but no new user namespace, which brings capabilities within it. clone3, whose flags are in memory, is
    // missing; the C library falls back to clone.
    let user_namespace = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let no_namespace =
        SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(user_namespace), 0)?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![no_namespace])?]);
    let is_not = |request| SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, request);
    let types_nothing = TYPING.map(is_not).into_iter().collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_ioctl, vec![SeccompRule::new(types_nothing)?]);
    // The nice value of the calling thread, for reloads; of no other.
    let zero = |argument| SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0);
    let own_thread = vec![zero(0)?, zero(1)?];
    rules.insert(libc::SYS_setpriority, vec![SeccompRule::new(own_thread)?]);
    let missing = SeccompAction::Errno(libc::ENOSYS.unsigned_abs());
    SeccompFilter::new(rules, missing, SeccompAction::Allow, TargetArch::try_from(ARCH)?)?.try_into()
}
