//! Loading an object and attaching its program, with readable errors for the kernel's refusals.

use std::io;
use std::path::Path;

use aya::programs::links::FdLink;
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{
    LinkOrder, ProgramError, RawTracePoint, SchedClassifier, SocketFilter, TcAttachType, Xdp, XdpMode,
};
use aya::{Ebpf, EbpfError, EbpfLoader};

use crate::error::Cause;
use crate::{Error, holder};

/// Includes the compiled object of a program, aligned as the ELF reader requires.
macro_rules! object {
    ($name:literal) => {
        aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/", $name, ".o"))
    };
}
pub(crate) use object;

/// A loaded object with its program attached; dropping it detaches and unloads.
#[derive(Debug)]
pub struct Attached {
    /// The object: its maps, and the program the link refers to.
    pub object: Ebpf,
    /// Closing this descriptor detaches.
    _link: FdLink,
}

/// Loads `object` with `loader` and attaches its XDP program `program` to `interface`, in native mode.
///
/// # Errors
/// No such interface, no native XDP, another program attached, no permission.
pub fn xdp(
    program: &'static str,
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
    interface: &str,
) -> Result<Attached, Error> {
    let mut object = load_xdp(program, loader, object)?;
    let link = xdp_link(program, &mut object, interface, XdpMode::Driver)?;
    Ok(Attached { object, _link: link })
}

/// Attaches the XDP program `program` of a loaded `object` to `interface`, until the link is closed.
pub(crate) fn xdp_link(
    program: &'static str,
    object: &mut Ebpf,
    interface: &str,
    mode: XdpMode,
) -> Result<FdLink, Error> {
    if interface.contains('\0') {
        return Err(Error::NoInterface { program, interface: interface.replace('\0', " ") });
    }
    let xdp: &mut Xdp = find(object, program)?;
    let link = xdp
        .attach(interface, mode)
        .and_then(|id| xdp.take_link(id))
        .map_err(|error| attach_error(program, interface, error))?;
    // Without links the loader falls back to netlink, and such an attachment outlives a killed process.
    FdLink::try_from(link).map_err(|_| Error::Attach {
        program,
        interface: interface.into(),
        source: "the kernel has no BPF links for XDP (Linux 5.9 and later have)".into(),
    })
}

/// Times that a program is given to a verifier which signals interrupt, as many as libbpf's PROG_LOAD_ATTEMPTS. Fewer:
/// a burst of signals fails a load. More: a stream of them keeps a program here that somebody wants to end.
const ATTEMPTS: u32 = 5;

/// Has the kernel verify a program. With a signal pending it stops with EAGAIN (`do_check` of kernel/bpf/verifier.c),
/// which says nothing about the program.
pub(crate) fn verified(mut load: impl FnMut() -> Result<(), ProgramError>) -> Result<(), ProgramError> {
    let interrupted = |result: &Result<(), ProgramError>| {
        let Err(ProgramError::LoadError { io_error, .. }) = result else { return false };
        io_error.raw_os_error() == Some(libc::EAGAIN)
    };
    let mut result = load();
    for _again in 1..ATTEMPTS {
        if !interrupted(&result) {
            break;
        }
        result = load();
    }
    result
}

/// Loads `object` with `loader` and verifies its XDP program `program`.
pub(crate) fn load_xdp(
    program: &'static str,
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
) -> Result<Ebpf, Error> {
    let mut object = loader.load(object).map_err(|error| load_error(program, error))?;
    let xdp: &mut Xdp = find(&mut object, program)?;
    verified(|| xdp.load()).map_err(|error| load_error(program, error.into()))?;
    Ok(object)
}

/// Loads `object` with `loader` and verifies its socket filter `program`.
pub(crate) fn load_socket_filter(
    program: &'static str,
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
) -> Result<Ebpf, Error> {
    let mut object = loader.load(object).map_err(|error| load_error(program, error))?;
    let filter: &mut SocketFilter = find(&mut object, program)?;
    verified(|| filter.load()).map_err(|error| load_error(program, error.into()))?;
    Ok(object)
}

/// Loads `object` with `loader` and attaches its classifier `program` to the egress of `interface`.
///
/// # Errors
/// No such interface, no permission, a kernel before 6.6.
pub fn tc_egress(
    program: &'static str,
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
    interface: &str,
) -> Result<Attached, Error> {
    let mut object = loader.load(object).map_err(|error| load_error(program, error))?;
    let tc: &mut SchedClassifier = find(&mut object, program)?;
    verified(|| tc.load()).map_err(|error| load_error(program, error.into()))?;
    let link: SchedClassifierLink = tc
        .attach_with_options(interface, TcAttachType::Egress, TcAttachOptions::TcxOrder(LinkOrder::last()))
        .and_then(|id| tc.take_link(id))
        .map_err(|error| attach_error(program, interface, error))?;
    let link = FdLink::try_from(link).map_err(|_| Error::Attach {
        program,
        interface: interface.into(),
        source: "the kernel has no BPF links for tc (Linux 6.6 and later have)".into(),
    })?;
    Ok(Attached { object, _link: link })
}

/// Verifies the raw tracepoint program `program` of a loaded `object`, unless that is done, and attaches it until the
/// link is closed.
pub(crate) fn raw_tracepoint(
    program: &'static str,
    object: &mut Ebpf,
    tracepoint: &str,
) -> Result<FdLink, Error> {
    let refused = |error: ProgramError| {
        let error = EbpfError::from(error);
        let cause = match verifier_log(&error) {
            Some(log) if log.contains(NO_FIELD) => {
                "this kernel's structures lack a field that it reads".to_owned()
            }
            Some(_) => return load_error(program, error),
            None if errno(&error) == Some(libc::ENOENT) => absent(tracepoint),
            None => chain(&error),
        };
        Error::Load { program, source: format!("cannot read tracepoint {tracepoint}: {cause}").into() }
    };
    let found: &mut RawTracePoint = find(object, program)?;
    if found.fd().is_err() {
        verified(|| found.load()).map_err(refused)?;
    }
    let link = found.attach(tracepoint).and_then(|id| found.take_link(id)).map_err(refused)?;
    Ok(link.into())
}

/// Tracepoints that udpath reads and that Linux 6.1 or kernels before it lack, and the first version with each.
const FIRST_WITH: [(&str, &str); 6] = [
    ("contention_begin", "5.19"),
    ("contention_end", "5.19"),
    ("sk_data_ready", "6.3"),
    ("sock_recv_length", "6.3"),
    ("ipi_send_cpu", "6.4"),
    ("ipi_send_cpumask", "6.4"),
];

/// Why a tracepoint does not exist.
fn absent(tracepoint: &str) -> String {
    let first = FIRST_WITH.iter().find(|(name, _)| *name == tracepoint);
    let first = first.map_or_else(String::new, |(_, first)| format!(" (Linux {first} and later have it)"));
    format!("this kernel has no such tracepoint{first}")
}

/// The verifier's text for an instruction that the loader poisoned because its field was not found.
const NO_FIELD: &str = "195896080";

/// The kernel's type information.
const TYPES: &str = "/sys/kernel/btf/vmlinux";

/// Loads `object`, whose programs read kernel structures, with `loader`: field offsets come from the kernel's own type
/// information.
pub(crate) fn load_tracing(
    program: &'static str,
    loader: &mut EbpfLoader<'_>,
    object: &[u8],
) -> Result<Ebpf, Error> {
    // Without it the loader would use the field offsets of the C source.
    if !Path::new(TYPES).exists() {
        let missing = format!("{TYPES} does not exist: the kernel is built without CONFIG_DEBUG_INFO_BTF");
        return Err(Error::Load { program, source: missing.into() });
    }
    loader.load(object).map_err(|error| load_error(program, error))
}

pub(crate) fn find<'a, T>(object: &'a mut Ebpf, program: &'static str) -> Result<&'a mut T, Error>
where
    &'a mut T: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    object
        .program_mut(program)
        .ok_or_else(|| Error::Load { program, source: "the object has no program of that name".into() })?
        .try_into()
        .map_err(|error: ProgramError| Error::Load { program, source: cause(&error) })
}

pub(crate) fn load_error(program: &'static str, error: EbpfError) -> Error {
    if let Some(log) = verifier_log(&error) {
        // Readable by everyone; the sentence is right without the number.
        let release = udpath_files::kernel::text("/proc/sys/kernel/osrelease").unwrap_or_default();
        return Error::Refused { program, release: release.trim().to_owned(), log };
    }
    match errno(&error) {
        // The verifier returns EACCES, too, but then there is a log.
        Some(libc::EPERM | libc::EACCES) => {
            Error::NotPermitted { program, cause: io::Error::from_raw_os_error(libc::EPERM) }
        }
        _ => Error::Load { program, source: cause(&error) },
    }
}

fn attach_error(program: &'static str, interface: &str, error: ProgramError) -> Error {
    let interface = interface.to_owned();
    if matches!(error, ProgramError::UnknownInterface { .. }) {
        return Error::NoInterface { program, interface };
    }
    match errno(&error) {
        Some(libc::EPERM) => {
            Error::NotPermitted { program, cause: io::Error::from_raw_os_error(libc::EPERM) }
        }
        Some(libc::EOPNOTSUPP) => Error::NoXdp { program, interface },
        Some(libc::EBUSY | libc::EEXIST) => {
            let holder = holder::of(&interface).map_or_else(String::new, |holder| format!(", {holder},"));
            Error::Busy { program, interface, holder }
        }
        Some(libc::ERANGE) => Error::Attach {
            program,
            interface,
            source: "its MTU, or its peer's, is too large for XDP; about 3,500 bytes fit".into(),
        },
        Some(libc::ENOSPC) => Error::Attach {
            program,
            interface,
            source: "it has fewer receive queues than its peer has transmit queues".into(),
        },
        Some(libc::ENODEV) => Error::NoInterface { program, interface },
        _ => Error::Attach { program, interface, source: cause(&error) },
    }
}

/// What the verifier wrote about a program that it rejected.
fn verifier_log(error: &EbpfError) -> Option<String> {
    let EbpfError::ProgramError(ProgramError::LoadError { verifier_log, .. }) = error else { return None };
    Some(verifier_log.to_string()).filter(|log| !log.is_empty())
}

/// The errno somewhere in the chain of causes.
pub(crate) fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if let Some(code) = error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
            return Some(code);
        }
        cause = error.source();
    }
    None
}

/// The system error somewhere in the chain of causes.
pub(crate) fn system_error(error: &(dyn std::error::Error + 'static)) -> io::Error {
    errno(error).map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error)
}

/// Bytes kept of an error's text, the reason at its end: it must fit a few lines of a terminal.
const EXPLANATION: usize = 300;

/// An error of the loader as a source: as text, because the loader's own chain repeats itself and may contain the whole
/// verifier log.
pub(crate) fn cause(error: &dyn std::error::Error) -> Cause {
    chain(error).into()
}

/// The error and its causes on one line; the end of a long text.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    let start = text.len().saturating_sub(EXPLANATION);
    match (start..text.len()).find(|at| text.is_char_boundary(*at)) {
        Some(at) if at > 0 => format!("... {}", text[at..].replace('\n', "; ")),
        _ => text.replace('\n', "; "),
    }
}

#[cfg(test)]
mod tests {
    use aya_obj::VerifierLog;

    use super::*;

    fn rejected(code: i32, log: &str) -> Error {
        let io_error = io::Error::from_raw_os_error(code);
        let verifier_log = VerifierLog::new(log.to_owned());
        load_error("live", EbpfError::ProgramError(ProgramError::LoadError { io_error, verifier_log }))
    }

    #[test]
    fn a_verifier_that_signals_interrupt_is_asked_again() {
        let of = |code| {
            let io_error = io::Error::from_raw_os_error(code);
            ProgramError::LoadError { io_error, verifier_log: VerifierLog::new(String::new()) }
        };
        // Interruptions, what follows them, and how often it is asked.
        for (interruptions, then, asked) in [
            (0, Ok(()), 1),
            (2, Ok(()), 3),
            (ATTEMPTS - 1, Ok(()), ATTEMPTS),
            (ATTEMPTS, Ok(()), ATTEMPTS),
            (1, Err(libc::EACCES), 2),
            (0, Err(libc::EINVAL), 1),
        ] {
            let mut asks = 0;
            let result = verified(|| {
                asks += 1;
                if asks <= interruptions { Err(of(libc::EAGAIN)) } else { then.map_err(of) }
            });
            assert_eq!(asks, asked, "{interruptions} interruptions");
            assert_eq!(
                result.is_ok(),
                then.is_ok() && interruptions < ATTEMPTS,
                "{interruptions} interruptions"
            );
        }
    }

    #[test]
    fn a_verifiers_refusal_is_one_sentence_without_its_log() {
        let log = "57: (2c) w3 *= w7; R3_w=scalar()\nmath between map_value pointer and register\nprocessed 56 insns";
        for code in [libc::EACCES, libc::EINVAL] {
            let error = rejected(code, log);
            let said = error.to_string();
            assert!(said.ends_with(" refuses it; udpath is tested on 6.1, 6.12 and 6.18"), "{said}");
            assert!(!said.contains("insns") && !said.contains('\n') && said.contains(" Linux "), "{said}");
            // A developer's test prints it.
            assert!(format!("{error:?}").contains("processed 56 insns"), "{error:?}");
        }
    }

    #[test]
    fn a_missing_tracepoint_is_named_with_the_first_kernel_that_has_it() {
        assert_eq!(
            absent("sk_data_ready"),
            "this kernel has no such tracepoint (Linux 6.3 and later have it)"
        );
        assert_eq!(absent("napi_poll"), "this kernel has no such tracepoint");
    }

    #[test]
    fn without_a_log_a_missing_right_is_named() {
        let said = rejected(libc::EPERM, "").to_string();
        assert!(said.contains("run as root"), "{said}");
        let too_big = error_reporter::Report::new(rejected(libc::E2BIG, "")).to_string();
        assert!(too_big.contains("Argument list too long"), "{too_big}");
    }
}
