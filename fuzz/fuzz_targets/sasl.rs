#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| kafka_harbor::machine::fuzzing::sasl(bytes));
