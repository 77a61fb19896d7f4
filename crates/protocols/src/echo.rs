//! Echo: the payload comes back as it was sent (RFC 862).

mod service;
mod template;

pub use service::Echo;
pub use template::{EchoLoad, EchoTemplate, HEADER};
