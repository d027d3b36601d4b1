//! Elements of matrix instructions.

use std::sync::OnceLock;

use half::f16;

use crate::value::{E4M3, E5M2, Format};

/// Type of the elements of a matrix operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    F16,
    Bf16,
    Tf32,
    E4m3,
    E5m2,
    S8,
    U8,
}

fn table(format: Format, table: &'static OnceLock<Vec<f64>>) -> &'static [f64] {
    table.get_or_init(|| (0..256).map(|b| format.decode(b)).collect())
}

impl Element {
    pub fn of(name: &str) -> Option<Element> {
        Some(match name {
            "f16" => Element::F16,
            "bf16" => Element::Bf16,
            "tf32" => Element::Tf32,
            "e4m3" => Element::E4m3,
            "e5m2" => Element::E5m2,
            "s8" => Element::S8,
            "u8" => Element::U8,
            _ => return None,
        })
    }

    pub fn bits(self) -> u32 {
        match self {
            Element::F16 | Element::Bf16 => 16,
            Element::Tf32 => 32,
            Element::E4m3 | Element::E5m2 | Element::S8 | Element::U8 => 8,
        }
    }

    pub fn is_int(self) -> bool {
        matches!(self, Element::S8 | Element::U8)
    }

    /// The value of the lowest element of `word`.
    #[inline]
    pub fn value(self, word: u32) -> f64 {
        static E4: OnceLock<Vec<f64>> = OnceLock::new();
        static E5: OnceLock<Vec<f64>> = OnceLock::new();
        match self {
            Element::F16 => f64::from(f16::from_bits(word as u16).to_f32()),
            Element::Bf16 => f64::from(f32::from_bits(word << 16)),
            // The hardware reads the upper 19 bits only.
            Element::Tf32 => f64::from(f32::from_bits(word & !0x1fff)),
            Element::E4m3 => table(E4M3, &E4)[(word & 0xff) as usize],
            Element::E5m2 => table(E5M2, &E5)[(word & 0xff) as usize],
            Element::S8 => f64::from(word as i8),
            Element::U8 => f64::from(word as u8),
        }
    }
}
