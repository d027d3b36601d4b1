//! The most probable tokens of a row.

use super::Wanted;
use llmcc_abi::layout::candidate_cols;

/// A row of candidates (see [`TopK`](crate::kernel::TopK)) of the logits `x`; undefined entries are
/// NaN.
pub(crate) fn top_k(x: &[f64], k: usize, wanted: Wanted) -> Vec<f64> {
    let mut out = vec![f64::NAN; candidate_cols(k)];
    let count = if wanted.candidates > 1 { k } else { wanted.candidates };
    let mut order: Vec<usize> = (0..x.len()).collect();
    // Stable, so equal logits stay in the order of their ids. `total_cmp` would order NaN by its
    // sign and −0 before 0.
    order.sort_by(|a, b| match (x[*a].is_nan(), x[*b].is_nan()) {
        (false, false) => x[*b].partial_cmp(&x[*a]).unwrap_or(std::cmp::Ordering::Equal),
        (a, b) => b.cmp(&a),
    });
    for (i, id) in order.iter().take(count).enumerate() {
        (out[i], out[k + i]) = (x[*id] + 0.0, *id as f64);
    }
    if let (true, Some(best)) = (wanted.candidates > 1, order.first()) {
        out[2 * k] = x.iter().map(|v| ((v - x[*best]) * f64::from(wanted.scale.get())).exp2()).sum();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::{Batch, OperandData, Rows, Wanted, eval_kernel};
    use crate::graph::F32;
    use crate::kernel::{Body, Kernel, Param, ParamKind, RowElem, TopK};
    use crate::ty::Dim;

    fn kernel(vocab: usize, k: usize) -> Kernel {
        let rows = |cols| ParamKind::Rows { rows: Dim::Rows, cols, elem: RowElem::F32 };
        let param = |name: &str, cols| Param { name: name.into(), kind: rows(cols) };
        let params = vec![param("x", vocab), param("out", TopK::columns(k))];
        Kernel { name: "h.top_k0".into(), rows: Dim::Rows, params, body: Body::TopK(TopK { x: 0, k, out: 1 }) }
    }

    fn run(k: usize, rows: &[&[f32]], wanted: Vec<Wanted>) -> Vec<Vec<f32>> {
        let kernel = kernel(rows[0].len(), k);
        let batch = Batch { wanted, ..Batch::single(&vec![0; rows.len()], 0) };
        let x = OperandData::Rows(Rows { cols: rows[0].len(), data: rows.concat() });
        let mut operands = [x, OperandData::poisoned(&kernel.params[1].kind, &batch).unwrap()];
        eval_kernel(&kernel, &batch, &mut operands).unwrap();
        let OperandData::Rows(out) = &operands[1] else { unreachable!() };
        (0..rows.len()).map(|i| out.row(i).to_vec()).collect()
    }

    #[test]
    fn by_hand() {
        let all = Wanted::default();
        let scaled = Wanted { scale: F32::new(2.0), ..all };
        let out = run(3, &[&[1.0, 3.0, 2.0, 3.0], &[-1.0, -0.0, 0.0, f32::NEG_INFINITY]], vec![all, scaled]);
        let e = std::f32::consts::E;
        assert_eq!(out[0][..6], [3.0, 3.0, 2.0, 1.0, 3.0, 2.0]);
        assert!((out[0][6] - (2.0 + 1.0 / e + 1.0 / e / e)).abs() < 1e-6);
        // Zeros of both signs are equal; −∞ weighs nothing.
        assert_eq!(out[1], [0.0, 0.0, -1.0, 1.0, 2.0, 0.0, 2.25]);
        assert!(out[1][0].is_sign_positive());
    }

    #[test]
    fn only_what_is_wanted_is_defined_and_nan_comes_first() {
        let wanted = |candidates| Wanted { candidates, ..Wanted::default() };
        let x: &[f32] = &[5.0, f32::NAN, f32::INFINITY, -f32::NAN];
        let out = run(2, &[x, x, x], vec![wanted(0), wanted(1), wanted(2)]);
        assert!(out[0].iter().all(|v| v.is_nan()));
        assert_eq!((out[1][0].is_nan(), out[1][2], out[1][3].is_nan()), (true, 1.0, true));
        assert_eq!((out[2][1].is_nan(), &out[2][2..4]), (true, &[1.0, 3.0][..]));
    }
}
