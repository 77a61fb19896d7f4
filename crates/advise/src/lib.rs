//! Trials and their statistics, and the boost loop that climbs a ladder with them.
pub mod result;
pub mod statistics;
