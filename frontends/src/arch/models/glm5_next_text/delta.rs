//! GLM-5.3's configuration of delta attention, with two names for each field.

use crate::arch::blocks::kimi_delta::{DESCRIPTION, IN_OBJECT, KimiDelta, OBJECT};
use crate::arch::blocks::prelude::*;

/// Further fields of the object in published files.
const SAFE: &[Field] = fields! { safe_gate };

/// The delta attention: its object comes before the fields that Transformers writes.
pub(super) fn delta(f: &Fields) -> Result<KimiDelta, ConfigError> {
    const FLOOR: f64 = -5.0;
    let own = f.object(OBJECT).map(|map| f.inside_alone(map, IN_OBJECT, &[DESCRIPTION, SAFE], &[])).transpose()?;
    let size = |inside: &str, name: &str, default| {
        own.as_ref().and_then(|own| own.size(inside).value()).unwrap_or(f.size(name).or(default))
    };
    let conv = size("short_conv_kernel_size", "linear_conv_kernel_dim", 4);
    if conv < 2 {
        return Err(f.invalid("linear_conv_kernel_dim", &conv, "at least 2".into()));
    }
    let floor = match f.get("linear_lower_bound") {
        Given::Absent => Some(FLOOR),
        Given::Null | Given::Value(_) => f.number("linear_lower_bound"),
    };
    let floor = own.as_ref().map_or(floor, |own| {
        let floor = match own.get("gate_lower_bound") {
            Given::Absent => floor,
            Given::Null | Given::Value(_) => own.number("gate_lower_bound"),
        };
        floor.or(own.flag_or("safe_gate", true).then_some(FLOOR))
    });
    Ok(KimiDelta {
        heads: size("num_heads", "linear_num_heads", 64),
        dim: size("head_dim", "linear_head_dim", 128),
        conv,
        act: common::activation(f, "hidden_act", UnaryOp::Silu),
        rates: Kind::Bare,
        spare_rates: false,
        low_rank: [true; 2],
        floor: floor.map(|floor| floor as f32),
    })
}
