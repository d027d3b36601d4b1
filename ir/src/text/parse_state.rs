//! Parsing states: what sequences keep.

use super::parse::{Parsed, Parser};
use crate::kv::{KvDType, KvSpec};
use crate::state::{AdapterSpec, FixedSpec, StateSpec};

impl Parser<'_> {
    /// Any of the next three.
    pub fn state_spec(&mut self) -> Parsed<StateSpec> {
        Ok(match self.peek_word() {
            "state" => self.fixed_spec()?.into(),
            "adapter" => self.adapter_spec()?.into(),
            _ => self.kv_spec()?.into(),
        })
    }

    /// `adapter<bf16, 48x64, slots 4>`
    pub fn adapter_spec(&mut self) -> Parsed<AdapterSpec> {
        self.expect_word("adapter")?;
        self.expect(b'<')?;
        self.expect_word("bf16")?;
        self.expect(b',')?;
        let n = self.size("`rows x columns`, as in `48x64`")?;
        // `48x64` is the number 48 and the word `x64`.
        let by = self.peek_word().strip_prefix('x').and_then(|k| k.parse().ok());
        let Some(k) = by else { return Err(self.unexpected("`x` and the columns, as in `48x64`")) };
        self.next();
        self.expect(b',')?;
        self.expect_word("slots")?;
        let slots = self.size("how many adapters there is room for")?;
        self.expect(b'>')?;
        Ok(AdapterSpec { n, k, slots })
    }

    /// `name=[16, 32]`
    pub fn field_sizes(&mut self, name: &str) -> Parsed<Vec<usize>> {
        self.expect_word(name)?;
        self.expect(b'=')?;
        self.expect(b'[')?;
        self.list(b']', |p| p.size("a whole number"))
    }

    /// `state<f32, 4x64x128>`
    pub fn fixed_spec(&mut self) -> Parsed<FixedSpec> {
        self.expect_word("state")?;
        self.expect(b'<')?;
        self.expect_word("f32")?;
        self.expect(b',')?;
        let heads = self.size("`heads x rows x columns`, as in `4x64x128`")?;
        // `4x64x128` is the number 4 and the word `x64x128`.
        let rest = self.peek_word().strip_prefix('x').and_then(|rest| rest.split_once('x'));
        let sizes = rest.and_then(|(rows, cols)| Some((rows.parse().ok()?, cols.parse().ok()?)));
        let Some((rows, cols)) = sizes else {
            return Err(self.unexpected("`x`, rows, `x` and columns, as in `4x64x128`"));
        };
        self.next();
        self.expect(b'>')?;
        Ok(FixedSpec { heads, rows, cols })
    }

    /// `kv<f16, 4x32, window 4096>`, `kv<f16, 4x48/32>`, `kv<f16, 1x576/512, latent>`
    pub fn kv_spec(&mut self) -> Parsed<KvSpec> {
        self.expect_word("kv")?;
        self.expect(b'<')?;
        let Some(dtype) = KvDType::parse(self.peek_word()) else {
            let names: Vec<&'static str> = KvDType::ALL.iter().map(|(_, n)| *n).collect();
            return Err(self.one_of("an element type of keys and values", &names));
        };
        self.next();
        self.expect(b',')?;
        let kv_heads = self.size("`heads x head size`, as in `8x64`")?;
        // `8x64` is the number 8 and the word `x64`.
        let by = self.peek_word().strip_prefix('x').and_then(|n| n.parse().ok());
        let Some(key_dim) = by else { return Err(self.unexpected("`x` and the head size, as in `8x64`")) };
        self.next();
        let value_dim = if self.eat(b'/') { self.size("the size of a value, as in `8x192/128`")? } else { key_dim };
        let mut spec = KvSpec { dtype, kv_heads, key_dim, value_dim, latent: false, window: None };
        let mut more = self.eat(b',');
        if more && self.eat_word("latent") {
            spec.latent = true;
            more = self.eat(b',');
        }
        if more {
            self.expect_word("window")?;
            spec.window = Some(self.size("the window's length")?);
        }
        self.expect(b'>')?;
        Ok(spec)
    }
}
