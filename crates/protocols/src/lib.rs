//! The protocols udpath speaks, each as a service (the answering side) and as a load template (the asking side).
//!
//! - [`echo`]: the payload comes back.
//! - [`sink`]: datagrams are counted and not answered, except the question how many there were.

pub mod echo;
pub mod sink;
