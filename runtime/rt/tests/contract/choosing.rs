//! Wrong arguments of `llmcc_sample`.

use super::*;

pub fn rows<'a>() -> Vec<Row<'a>> {
    static LOGITS: [f32; 3] = [0.0, 1.0, f32::NEG_INFINITY];
    let sampling =
        |temperature, top_p, reserved| llmcc_sampling { temperature, top_p, reserved, ..llmcc_sampling::default() };
    let l = LOGITS.as_ptr();
    vec![
        row!(llmcc_sample, Invalid, "logits is a null", |_w, o| (null(), 3, null(), null(), 0, 0, &mut o.token)),
        row!(llmcc_sample, Numeric, "no logit is finite", |_w, o| (l, 0, null(), null(), 0, 0, &mut o.token)),
        row!(llmcc_sample, Invalid, "history is a null", |_w, o| (l, 3, null(), null(), 2, 0, &mut o.token)),
        row!(llmcc_sample, Invalid, "token is a null", |_w, _o| (l, 3, null(), null(), 0, 0, null_mut())),
        row!(llmcc_sample, Invalid, "top_p is 0; use a number above 0", |_w, o| (
            l,
            3,
            &sampling(1.0, 0.0, 0),
            null(),
            0,
            0,
            &mut o.token
        )),
        row!(llmcc_sample, Invalid, "top_p is 2", |_w, o| (l, 3, &sampling(1.0, 2.0, 0), null(), 0, 0, &mut o.token)),
        row!(llmcc_sample, Invalid, "temperature is NaN", |_w, o| (
            l,
            3,
            &sampling(f32::NAN, 1.0, 0),
            null(),
            0,
            0,
            &mut o.token
        )),
        row!(llmcc_sample, Invalid, "reserved", |_w, o| (l, 3, &sampling(0.0, 0.0, 1), null(), 0, 0, &mut o.token)),
    ]
}
