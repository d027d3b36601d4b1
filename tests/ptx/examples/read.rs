//! Reads PTX files and prints their kernels, or the parts that the emulator does not know.

use llmcc_ptx::Module;

fn main() {
    for path in std::env::args().skip(1) {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) => {
                println!("{path}: {e}");
                continue;
            }
        };
        match Module::parse(&text) {
            Err(e) => println!("{path}: {e}"),
            Ok(m) => {
                for k in m.kernels() {
                    println!(
                        "{path}: {} for {}: {} parameters, {} bytes of shared memory",
                        k.name(),
                        m.target(),
                        k.params().len(),
                        k.static_shared()
                    );
                }
            }
        }
    }
}
