#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| udpath_fuzz_bodies::fleet_message(data));
