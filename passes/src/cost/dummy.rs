//! The cost of a new family of kernels in the cost model: this file and its `mod`. Not part of
//! shipped code.

use super::{Cost, ELEMENTWISE, OnCpu, OnGpu, cols};
use crate::cost_gpu::{LATENCY, bytes_of_row};
use llmcc_ir::kernel::Climb;

impl Cost for Climb {
    /// One thread takes all tokens.
    fn cpu(&self, on: &OnCpu<'_>) -> f64 {
        (on.m * cols(on.kernel, self.out)) as f64 / ELEMENTWISE
    }

    fn gpu(&self, on: &OnGpu<'_>) -> f64 {
        LATENCY + on.l2(on.m * bytes_of_row(on.kernel, self.out))
    }
}

#[cfg(test)]
mod tests {
    use crate::cost::seconds;
    use llmcc_ir::target::find;
    use llmcc_ir::ty::Env;

    #[test]
    fn its_cost_grows_with_its_rows() {
        let text = "kernel @k rows T {\n  param %x: rows f32[T, 64]\n  param %n: tally<u32, most 7>\n  \
                    param %y: rows f32[T, 64]\n  climb x=%x step=1.0 tally=%n out=%y\n}\n";
        let kernel = llmcc_ir::text::parse_kernel(text).unwrap();
        for target in ["x86-64-v3", "sm90"] {
            let at = |tokens| seconds(&kernel, find(target).unwrap(), Env { tokens, rows: 1 });
            assert!(at(1) > 0.0 && at(4096) > at(1) && at(4096) < 1.0, "{target}: {} {}", at(1), at(4096));
        }
    }
}
