//! Options of the sockets that carry a load.

use serde::{Deserialize, Serialize};

use super::{MAX_BUFFER, Plan, PlanError, Transport};

/// Options of the kernel sockets of the flows. None: the kernel's default, or a receive buffer for the requests in
/// flight.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketOptions {
    /// Congestion control (`TCP_CONGESTION`) by the kernel's name, such as `bbr`. TCP only.
    pub congestion: Option<String>,
    /// Send buffer (`SO_SNDBUF`), bytes; the kernel doubles it.
    pub send_buffer: Option<usize>,
    /// Receive buffer (`SO_RCVBUF`), bytes; the kernel doubles it.
    pub receive_buffer: Option<usize>,
}

impl SocketOptions {
    /// Whether every option has its default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl Plan {
    /// Checks what the machine need not be asked for; an unknown congestion control is found when the flows are opened.
    pub(super) fn check_sockets(&self) -> Result<(), PlanError> {
        let SocketOptions { congestion, send_buffer, receive_buffer } = &self.sockets;
        if let (Some(name), Transport::Udp) = (congestion, self.transport) {
            return Err(PlanError::CongestionOfUdp(name.clone()));
        }
        for (what, bytes) in [("send", send_buffer), ("receive", receive_buffer)] {
            match bytes {
                Some(bytes) if !(1..=MAX_BUFFER).contains(bytes) => {
                    return Err(PlanError::Buffer { what, bytes: *bytes });
                }
                _ => {}
            }
        }
        Ok(())
    }
}
