//! A load generator that does not lie: plan -> transmit -> record.
pub mod cpu;
pub mod result;
pub mod template;
