#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| llmcc_fuzz::run("turns", data));
