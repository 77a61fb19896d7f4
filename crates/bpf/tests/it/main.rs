//! Programs that outlive the process that attached them, and what tracers count.

mod locks;
mod policy;
mod selection;
